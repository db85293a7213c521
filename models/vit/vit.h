#pragma once
// The Vision Transformer with a classification head (Dosovitskiy et al., arXiv:2010.11929), numerically equal to
// Hugging Face's ViTForImageClassification, torchvision's VisionTransformer and timm's.
//
//   auto model = ViT::from_pretrained("vit-base-patch16-224");
//   model->eval();
//   Tensor logits = model->forward(images);  // [n, 3, 224, 224], normalised

#include <memory>
#include <string>

#include "tern/models/encoder/encoder.h"
#include "tern/models/families.h"
#include "tern/models/vit/config.h"

namespace tern::models {

class ViT final : public ImageClassifier {
 public:
  ViT(const nn::Scope& s, const ViTConfig& config);

  /// Reads a folder with config.json and model.safetensors (or pytorch_model.bin) as written by transformers or
  /// published by timm, or a weights file (.safetensors, .pth, .pt, .bin: see core/io/state_file.h) with torchvision's,
  /// timm's or Hugging Face's names, whose shapes give the configuration. Position embeddings are interpolated to
  /// BuildOptions::image_size. Throws Error on missing, unexpected, mis-shaped or contradictory entries.
  static std::unique_ptr<ViT> from_pretrained(const std::string& path, const BuildOptions& options = {}) {
    return load_pretrained<ViT>(path, options);
  }
  static PublicCheckpoint<ViTConfig> read_checkpoint(const std::string& path, const BuildOptions& options);
  /// Under Hugging Face's names.
  void save_pretrained(const std::string& dir) const override;

  /// Sides other than image_size must be multiples of the patch size: the position embeddings are then interpolated
  /// (bicubic, as Hugging Face's interpolate_pos_encoding). image_keys (DropoutOptions::row_keys) make the dropout
  /// masks independent of the other images in the batch.
  Tensor forward(const Tensor& images, const Tensor& image_keys = {}) const override;
  /// The states of all tokens after the last norm (before it if pool is "mean"), class token first: [n, tokens, width].
  Tensor hidden_states(const Tensor& images) const;
  /// The pooled states: the class token's after the last norm, or the mean of the patches'.
  Tensor features(const Tensor& images, const Tensor& image_keys = {}) const override;
  Tensor forward_head(const Tensor& features, const Tensor& image_keys = {}) const override;
  /// The attention probabilities of each layer: [n, heads, tokens, tokens].
  std::vector<Tensor> attention_maps(const Tensor& images) const;
  /// Over all layers (Abnar & Zuidema, arXiv:2005.00928): the contribution of each patch to the class token's state, or
  /// to the mean.
  std::vector<Tensor> attention_rollout(const Tensor& images) const override;

  std::string hidden_layers() const override { return "encoder."; }
  void set_recompute(int64_t layers) override { encoder_.set_recompute(layers); }

  const ViTConfig& config() const { return config_; }
  const std::vector<std::string>& labels() const override { return config_.labels; }
  std::string config_json() const override { return config_.to_json(dtype()); }
  std::string record() const override;
  Input input() const override { return {config_.image_size, config_.channels, config_.patch_size}; }
  /// What forward() skips in the last layer is not counted.
  double forward_flops() const override;

 private:
  /// Patches as rows, with class token, positions and dropout: [n * tokens, width].
  Tensor embed(const Tensor& images, const data::TokenInput& input) const;
  Tensor positions(int64_t grid_height, int64_t grid_width) const;
  data::TokenInput layout(const Tensor& images, const Tensor& image_keys) const;

  ViTConfig config_;
  std::optional<Parameter> class_token_;  // [1, 1, width]
  Parameter position_;                    // [1, tokens, width]
  Parameter patch_weight_;                // [width, channels, patch, patch]
  Parameter patch_bias_;
  Encoder encoder_;
  std::optional<nn::LayerNorm> pool_norm_;
  nn::Linear classifier_;
};

/// The row of model_families().
ModelFamily vit_family();

}  // namespace tern::models
