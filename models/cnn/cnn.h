#pragma once
// Convolutional classifiers, numerically equal to torchvision's and under its names:
//
//   auto model = Cnn::from_pretrained("resnet18-f37072fd.pth");
//   model->eval();
//   Tensor logits = model->forward(images);  // [n, 3, 224, 224], normalised

#include <memory>
#include <string>
#include <vector>

#include "tern/models/cnn/block.h"
#include "tern/models/cnn/config.h"

namespace tern::models {

class Cnn : public ImageClassifier {
 public:
  /// The class of the configuration's architecture.
  static std::unique_ptr<Cnn> make(const nn::Scope& s, const CnnConfig& config);
  /// Reads a folder as save_pretrained() writes it, or a file of weights (.safetensors, .pth, .pt, .bin: see
  /// core/io/state_file.h) with torchvision's names, whose shapes give the configuration. Throws Error that lists all
  /// missing, unexpected and mis-shaped entries.
  static std::unique_ptr<Cnn> from_pretrained(const std::string& path, const BuildOptions& options = {}) {
    return load_pretrained<Cnn>(path, options);
  }
  static PublicCheckpoint<CnnConfig> read_checkpoint(const std::string& path, const BuildOptions& options);
  /// Under torchvision's names.
  void save_pretrained(const std::string& dir) const override;

  /// images: of any size that the strides leave something of. image_keys (DropoutOptions::row_keys) make the masks of
  /// dropout and stochastic depth independent of the other images in the batch.
  Tensor forward(const Tensor& images, const Tensor& image_keys = {}) const override;
  /// The last convolution's result: [n, channels, height, width].
  Tensor feature_map(const Tensor& images, const Tensor& image_keys = {}) const;
  /// The pooled feature map, behind the hidden layer of MobileNetV3's classifier: [n, width].
  Tensor features(const Tensor& images, const Tensor& image_keys = {}) const override;
  Tensor forward_head(const Tensor& features, const Tensor& image_keys = {}) const override;
  /// Where the feature map speaks for the predicted label: Grad-CAM (Selvaraju et al., arXiv:1610.02391), for a network
  /// with one linear layer behind the mean the class-activation map of Zhou et al. (arXiv:1512.04150) up to its scale.
  std::vector<Tensor> attention_rollout(const Tensor& images) const override;

  void set_recompute(int64_t layers) override { recompute_ = layers; }
  const CnnConfig& config() const { return config_; }
  const std::vector<std::string>& labels() const override { return config_.labels; }
  std::string config_json() const override { return config_.to_json(dtype()); }
  std::string record() const override;
  Input input() const override;
  double forward_flops() const override;

 protected:
  Cnn(const nn::Scope& s, const CnnConfig& config);
  /// Registers the blocks in the order in which they run; they are members of this module.
  void run_in_order(std::vector<const CnnBlock*> blocks) { blocks_ = std::move(blocks); }
  /// features() of a feature map: its mean.
  virtual Tensor pool(const Tensor& feature_map) const;

 private:
  /// What precedes the blocks, and the side of an image behind it with the operations so far.
  virtual Tensor stem(const Tensor& images) const { return images; }
  virtual double stem_flops(int64_t& /*side*/) const { return 0; }
  /// forward_head().
  virtual Tensor head(const Tensor& features, const Tensor& image_keys) const = 0;
  virtual double head_flops() const = 0;

  CnnConfig config_;
  std::vector<const CnnBlock*> blocks_;
  int64_t recompute_ = 0;
};

/// The row of model_families().
ModelFamily cnn_family();

}  // namespace tern::models
