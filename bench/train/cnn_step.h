#pragma once
// A step of a convolutional network.

#include <memory>

#include "tern/bench/train/model_step.h"
#include "tern/models/cnn/cnn.h"

namespace tern::bench {

class CnnStep final : public ModelStep {
 public:
  /// options.preset: of models::CnnConfig. size: pixels per side of the images; below 64 a ResNet's first layers are
  /// those for small images. No dropout; 10 labels.
  CnnStep(const ModelOptions& options, int64_t size);
  /// images: float32 [n, 3, size, size]; labels: int64 [n].
  void run(const Tensor& images, const Tensor& labels) { ModelStep::run({images}, labels); }
  int64_t num_labels() const { return model_->config().num_labels(); }
  /// Floating-point operations of a step's convolutions and dense layers for one image.
  double flops_per_image() const { return (options().train ? 3 : 1) * model_->forward_flops(); }

 private:
  Tensor logits(const std::vector<Tensor>& batch) override { return model_->forward(batch[0]); }

  std::unique_ptr<models::Cnn> model_;
};

}  // namespace tern::bench
