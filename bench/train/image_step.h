#pragma once
// A step of the Vision Transformer.

#include <vector>

#include "tern/bench/train/model_step.h"
#include "tern/models/vit/vit.h"

namespace tern::bench {

class ImageStep final : public ModelStep {
 public:
  explicit ImageStep(const ModelOptions& options);
  /// images: float32 [n, 3, size, size]; labels: int64 [n].
  void run(const Tensor& images, const Tensor& labels);
  const models::ViTConfig& config() const { return model_.config(); }
  /// Floating-point operations of a step's matrix products for one image, attention included, as computed.
  double flops_per_image() const;

 private:
  Tensor logits(const std::vector<Tensor>& batch) override;

  models::ViT model_;
};

}  // namespace tern::bench
