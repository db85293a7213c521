#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tern/models/encoder/encoder.h"
#include "tern/models/families.h"
#include "tern/models/log.h"

namespace tern::models {

/// What stands on BERT's encoder.
enum class BertHead : uint8_t {
  kNone,         // the hidden states, and the pooler: "BertModel"
  kClassifier,   // a label for a sequence: "BertForSequenceClassification"
  kTagger,       // a label for each token: "BertForTokenClassification"
  kMaskedWords,  // the words behind [MASK]: "BertForMaskedLM"
};

/// The configuration of BERT (Devlin et al., arXiv:1810.04805) and of RoBERTa (Liu et al., arXiv:1907.11692), which is
/// the same network with other positions and another classifier: Hugging Face's BertConfig, RobertaConfig,
/// XLMRobertaConfig and CamembertConfig.
struct BertConfig {
  std::string type = "bert";  // or "roberta", "xlm-roberta", "camembert": "model_type"
  BertHead head = BertHead::kClassifier;
  int64_t vocab_size = 30522;
  int64_t position_rows = 512;  // "max_position_embeddings"
  int64_t token_types = 2;      // "type_vocab_size"
  int64_t width = 768;          // "hidden_size"
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t hidden = 3072;            // "intermediate_size"
  std::string activation = "gelu";  // or "relu"
  double dropout = 0.1;
  double attention_dropout = 0.1;
  std::optional<double> classifier_dropout = {};  // nothing: as dropout
  double norm_eps = 1e-12;
  double initializer_range = 0.02;
  int64_t padding_id = 0;  // this row of the embedding gets no gradient; -1: none
  std::vector<std::string> labels = {"LABEL_0", "LABEL_1"};
  data::LabelKind label_kind = data::LabelKind::kOne;  // "problem_type"

  /// Turc et al.'s sizes (arXiv:1908.08962): "tiny" (128 x 2 layers), "mini" (256 x 4), "small" (512 x 4), "medium"
  /// (512 x 8), "base" (768 x 12), "large" (1024 x 24); heads of 64 dimensions. Throws Error that lists them for
  /// another name.
  static BertConfig preset(const std::string& name);
  static std::vector<ModelPreset> presets();
  /// Parses a config.json as written by Hugging Face; `source` names it in errors. The head is the one of
  /// "architectures". Unknown fields are ignored with a line in `log`. Throws Error on wrong types, contradictory
  /// values and settings that Tern does not implement.
  static BertConfig from_json(const std::string& text, const std::string& source, const Log& log = {});
  /// A config.json for transformers' from_pretrained and weights stored in `dtype`.
  std::string to_json(DType dtype = DType::kFloat32) const;
  /// Throws Error unless all values are valid and consistent.
  void validate(const std::string& source) const;

  /// Replaces all dropout probabilities.
  void set_dropout(double p) { dropout = attention_dropout = p, classifier_dropout.reset(); }
  double head_dropout() const { return classifier_dropout.value_or(dropout); }
  int64_t num_labels() const { return static_cast<int64_t>(labels.size()); }
  bool is_roberta() const { return type != "bert"; }
  /// The row of the position embedding for a sequence's first token: RoBERTa leaves out those up to padding_id.
  int64_t first_position() const { return is_roberta() ? padding_id + 1 : 0; }
  /// The longest sequence.
  int64_t max_positions() const { return position_rows - first_position(); }
  EncoderOptions encoder() const;
};

}  // namespace tern::models
