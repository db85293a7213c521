#pragma once
// The Vision Transformer with a classification head (Dosovitskiy et al., arXiv:2010.11929), equal in every number to
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

/// What a file of weights does not say, or is to be changed.
struct ViTFileOptions {
  int64_t image_size = 0;  // position embeddings are interpolated to this; 0: what the model was trained at
  int64_t heads = 0;       // of weights without a config.json; 0: heads of 64 dimensions, as all published ones have
};

class ViT final : public nn::Module {
 public:
  ViT(const nn::Scope& s, const ViTConfig& config);

  /// Reads a folder with config.json and model.safetensors (or pytorch_model.bin) as transformers writes them, or as
  /// timm publishes them, or a file of weights (.safetensors, .pth, .pt, .bin: see core/io/state_file.h) with
  /// torchvision's, timm's or Hugging Face's names, whose shapes give the configuration. Throws Error on anything
  /// missing, unexpected, mis-shaped or contradictory.
  static std::unique_ptr<ViT> from_pretrained(const std::string& path, const FromPretrainedOptions& options = {},
                                              const ViTFileOptions& file = {});
  /// Writes config.json and model.safetensors under Hugging Face's names, each whole or not at all; the weights in the
  /// model's dtype. Creates the folder.
  void save_pretrained(const std::string& dir) const;

  /// images: floating [n, channels, height, width], normalised as the model was trained. Sides other than image_size
  /// must be multiples of the patch size: the position embeddings are then interpolated (bicubic, as Hugging Face's
  /// interpolate_pos_encoding). image_keys: int64 [n] or undefined, keys of the dropout masks of each image
  /// (DropoutOptions::row_keys): masks then do not depend on which images share the batch. Logits [n, labels].
  Tensor forward(const Tensor& images, const Tensor& image_keys = {}) const;
  /// The state of every token after the last norm (where pool is "mean": before it), the class token first:
  /// [n, tokens, width].
  Tensor hidden_states(const Tensor& images) const;
  /// Logits [n, labels] of pooled states [n, width]: after forward()'s pooling, for instance the class token's state
  /// after the last norm.
  Tensor classify(const Tensor& pooled) const;
  /// The probabilities with which each token attends to each, for every layer: [n, heads, tokens, tokens].
  std::vector<Tensor> attention_maps(const Tensor& images) const;

  /// Recomputes activations in backward, in stretches of this many layers; 0: none (see Encoder::set_recompute).
  void set_recompute(int64_t layers) { encoder_.set_recompute(layers); }

  const ViTConfig& config() const { return config_; }
  /// Floating-point operations of one forward pass over one image of image_size (two per multiply-add); training takes
  /// three times as many. What forward() skips in the last layer is not counted.
  double forward_flops() const;

 private:
  /// Patches as rows, the class token, positions and dropout: [n * tokens, width].
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
