#pragma once

#include <string>
#include <vector>

#include "tern/models/encoder/encoder.h"
#include "tern/models/families.h"
#include "tern/models/log.h"

namespace tern::models {

/// The configuration of a Vision Transformer classifier (Dosovitskiy et al., arXiv:2010.11929): Hugging Face's
/// ViTConfig plus the options of torchvision's and timm's models.
struct ViTConfig {
  int64_t image_size = 224;  // pixels per side; the model accepts other sizes too, see ViT::forward
  int64_t patch_size = 16;
  int64_t channels = 3;  // "num_channels"
  int64_t width = 768;   // "hidden_size"
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t hidden = 3072;            // "intermediate_size"
  std::string activation = "gelu";  // or "relu"
  double dropout = 0;               // "hidden_dropout_prob"
  double attention_dropout = 0;     // "attention_probs_dropout_prob"
  double norm_eps = 1e-12;
  double initializer_range = 0.02;
  bool qkv_bias = true;
  bool norm_first = true;    // false: each norm follows its residual sum, and there is no final norm
  std::string pool = "cls";  // the class token's state after the last norm; "mean": the norm of the patches' mean
  bool class_token = true;   // may be absent if pool is "mean"
  std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};

  /// "tiny" (192 x 9 layers, 3 heads, patch 4 at 32 x 32), "small" (384 x 12, 6 heads), "base" (768 x 12, 12 heads:
  /// ViT-B) or "large" (1024 x 24, 16 heads: ViT-L); the last three with patch 16 at 224 x 224. "digits" is for the
  /// embedded digits (96 x 4, 3 heads, patch 2 at 8 x 8). Throws Error that lists them for another name.
  static ViTConfig preset(const std::string& name);
  static std::vector<ModelPreset> presets();
  /// Parses a config.json as written by Hugging Face or to_json(); `source` names it in errors. Unknown fields of
  /// Hugging Face's are ignored with a line in `log`. Throws Error on those of to_json(), wrong types, contradictory
  /// values and settings that Tern does not implement.
  static ViTConfig from_json(const std::string& text, const std::string& source, const Log& log = {});
  /// A config.json for weights stored in `dtype`. transformers' from_pretrained reads it unless the model has features
  /// that ViTForImageClassification lacks (mean pooling, norms after the sums, no class token): such a file has another
  /// model type, so that transformers does not load it as the wrong model.
  std::string to_json(DType dtype = DType::kFloat32) const;
  /// Throws Error unless all values are valid and consistent.
  void validate(const std::string& source) const;

  /// Replaces all dropout probabilities.
  void set_dropout(double p) { dropout = attention_dropout = p; }
  int64_t num_labels() const { return static_cast<int64_t>(labels.size()); }
  int64_t grid() const { return image_size / patch_size; }  // patches per side
  bool mean_pool() const { return pool == "mean"; }
  /// True if Hugging Face's ViTForImageClassification computes the same.
  bool plain() const { return norm_first && class_token && !mean_pool(); }
  EncoderOptions encoder() const;
};

}  // namespace tern::models
