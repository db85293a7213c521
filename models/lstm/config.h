#pragma once

#include <string>
#include <vector>

#include "tern/models/families.h"

namespace tern::models {

/// The configuration of an LSTM classifier of texts. Its config.json has the names in quotes.
struct LstmConfig {
  int64_t vocab_size = 30522;
  int64_t max_positions = 512;  // longest sequence: "max_position_embeddings", though it has no such embeddings
  int64_t embedding = 128;      // "embedding_size"
  int64_t hidden = 128;         // of each direction: "hidden_size"
  int64_t layers = 1;           // "num_layers"
  bool bidirectional = true;
  std::string pooling = "max";     // over the tokens: "max", "mean", or "last", the state at each direction's end
  double dropout = 0.3;            // of embeddings, between layers, and of what the classifier reads
  double initializer_range = 0.1;  // of embeddings and classifier; the LSTM's values are PyTorch's
  int64_t padding_id = 0;          // "pad_token_id": this row of the embedding gets no gradient; -1: none
  std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};
  data::LabelKind label_kind = data::LabelKind::kOne;  // "problem_type"

  /// "small" (128, one layer in two directions), "large" (256, two layers). Throws Error that lists them for another
  /// name.
  static LstmConfig preset(const std::string& name);
  static std::vector<ModelPreset> presets();
  /// Parses a config.json that to_json() wrote; `source` names it in errors. Throws Error on unknown fields, wrong
  /// types and values.
  static LstmConfig from_json(const std::string& text, const std::string& source);
  std::string to_json(DType dtype = DType::kFloat32) const;
  /// Throws Error unless all values are valid and consistent.
  void validate(const std::string& source) const;

  void set_dropout(double p) { dropout = p; }
  int64_t num_labels() const { return static_cast<int64_t>(labels.size()); }
  /// What the classifier reads.
  int64_t pooled() const { return bidirectional ? 2 * hidden : hidden; }
};

}  // namespace tern::models
