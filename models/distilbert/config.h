#pragma once

#include <string>
#include <vector>

#include "tern/models/encoder/encoder.h"
#include "tern/models/families.h"
#include "tern/models/log.h"

namespace tern::models {

/// The configuration of a DistilBERT classifier (Sanh et al., arXiv:1910.01108): Hugging Face's DistilBertConfig.
struct DistilBertConfig {
  int64_t vocab_size = 30522;
  int64_t max_positions = 512;  // longest sequence
  int64_t width = 768;          // "dim"
  int64_t layers = 6;
  int64_t heads = 12;
  int64_t hidden = 3072;            // "hidden_dim"
  std::string activation = "gelu";  // or "relu"
  double dropout = 0.1;
  double attention_dropout = 0.1;
  double classifier_dropout = 0.2;  // "seq_classif_dropout"
  double initializer_range = 0.02;
  bool sinusoidal_positions = false;  // initialize position embeddings as sines; they are trained in either case
  int64_t padding_id = 0;             // this row of the embedding gets no gradient; -1: none
  std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};
  data::LabelKind label_kind = data::LabelKind::kOne;  // "problem_type"

  /// "tiny" (128 x 2 layers, 2 heads), "small" (256 x 4, 4 heads), "base" (768 x 6, 12 heads: as published). Throws
  /// Error that lists them for another name.
  static DistilBertConfig preset(const std::string& name);
  static std::vector<ModelPreset> presets();
  /// Parses a config.json as written by Hugging Face; `source` names it in errors. Unknown fields are ignored with a
  /// line in `log`. Throws Error on wrong types, contradictory values and settings that Tern does not implement.
  static DistilBertConfig from_json(const std::string& text, const std::string& source, const Log& log = {});
  /// A config.json for transformers' from_pretrained and weights stored in `dtype`.
  std::string to_json(DType dtype = DType::kFloat32) const;
  /// Throws Error unless all values are valid and consistent.
  void validate(const std::string& source) const;

  /// Replaces all dropout probabilities.
  void set_dropout(double p) { dropout = attention_dropout = classifier_dropout = p; }
  int64_t num_labels() const { return static_cast<int64_t>(labels.size()); }
  EncoderOptions encoder() const;
};

}  // namespace tern::models
