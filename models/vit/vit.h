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
#include "tern/models/key_map.h"
#include "tern/models/pretrained.h"
#include "tern/models/vit/config.h"

namespace tern::models {

/// Settings that a weights file lacks or that are to be changed.
struct ViTFileOptions {
  int64_t image_size = 0;  // position embeddings are interpolated to this; 0: the image size in training
  int64_t heads = 0;       // for weights without a config.json; 0: heads of 64 dimensions, as in all published ones
};

class ViT final : public nn::Module {
 public:
  ViT(const nn::Scope& s, const ViTConfig& config);

  /// Reads a folder with config.json and model.safetensors (or pytorch_model.bin) as written by transformers or
  /// published by timm, or a weights file (.safetensors, .pth, .pt, .bin: see core/io/state_file.h) with torchvision's,
  /// timm's or Hugging Face's names, whose shapes give the configuration. Throws Error on missing, unexpected,
  /// mis-shaped or contradictory entries.
  static std::unique_ptr<ViT> from_pretrained(const std::string& path, const FromPretrainedOptions& options = {},
                                              const ViTFileOptions& file = {});
  /// Writes config.json and model.safetensors under Hugging Face's names, atomically, the weights in the model's dtype.
  /// Creates the folder.
  void save_pretrained(const std::string& dir) const;

  /// images: floating [n, channels, height, width], normalised as in the model's training. Sides other than image_size
  /// must be multiples of the patch size: the position embeddings are then interpolated (bicubic, as Hugging Face's
  /// interpolate_pos_encoding). image_keys: int64 [n] or undefined, keys of each image's dropout masks
  /// (DropoutOptions::row_keys), which make the masks independent of the other images in the batch. Logits [n, labels].
  Tensor forward(const Tensor& images, const Tensor& image_keys = {}) const;
  /// The states of all tokens after the last norm (before it if pool is "mean"), class token first: [n, tokens, width].
  Tensor hidden_states(const Tensor& images) const;
  /// Logits [n, labels] of pooled states [n, width] as from forward()'s pooling, for instance the class token's state
  /// after the last norm.
  Tensor classify(const Tensor& pooled) const;
  /// The attention probabilities of each layer: [n, heads, tokens, tokens].
  std::vector<Tensor> attention_maps(const Tensor& images) const;

  /// Recomputes activations in backward, in segments of this many layers; 0: off (see Encoder::set_recompute).
  void set_recompute(int64_t layers) { encoder_.set_recompute(layers); }

  const ViTConfig& config() const { return config_; }
  /// Floating-point operations of one forward pass over one image of image_size (two per multiply-add); training takes
  /// three times as many. What forward() skips in the last layer is not counted.
  double forward_flops() const;

 private:
  /// Patches as rows, with class token, positions and dropout: [n * tokens, width].
  Tensor embed(const Tensor& images, const EncoderInput& input) const;
  Tensor positions(int64_t grid_height, int64_t grid_width) const;
  EncoderInput layout(const Tensor& images, const Tensor& image_keys) const;

  ViTConfig config_;
  std::optional<Parameter> class_token_;  // [1, 1, width]
  Parameter position_;                    // [1, tokens, width]
  Parameter patch_weight_;                // [width, channels, patch, patch]
  Parameter patch_bias_;
  Encoder encoder_;
  std::optional<nn::LayerNorm> pool_norm_;
  nn::Linear classifier_;
};

}  // namespace tern::models
