#include "tern/models/lstm/config.h"

#include "tern/models/hf_config.h"

namespace tern::models {

namespace {

constexpr const char* kLstmType = "lstm";

constexpr struct {
  ModelPreset preset;
  int64_t embedding, hidden, layers;
} kLstmPresets[] = {{{"small", "128, both directions"}, 128, 128, 1}, {{"large", "256 x 2 layers"}, 256, 256, 2}};

constexpr ConfigField<LstmConfig> kLstmFields[] = {{"bidirectional", &LstmConfig::bidirectional},
                                                   {"dropout", &LstmConfig::dropout},
                                                   {"embedding_size", &LstmConfig::embedding, 1 << 17},
                                                   {"hidden_size", &LstmConfig::hidden, 1 << 17},
                                                   {"initializer_range", &LstmConfig::initializer_range, 1e3},
                                                   {"max_position_embeddings", &LstmConfig::max_positions, 1 << 24},
                                                   {"num_layers", &LstmConfig::layers, 1 << 12},
                                                   {"pooling", &LstmConfig::pooling},
                                                   {"vocab_size", &LstmConfig::vocab_size, 1 << 28}};

}  // namespace

LstmConfig LstmConfig::preset(const std::string& name) {
  const auto& preset = find_preset(kLstmPresets, name);
  LstmConfig config;
  config.embedding = preset.embedding;
  config.hidden = preset.hidden;
  config.layers = preset.layers;
  return config;
}

std::vector<ModelPreset> LstmConfig::presets() { return presets_of(kLstmPresets); }

LstmConfig LstmConfig::from_json(const std::string& text, const std::string& source) {
  ConfigFields fields(text, source);
  std::string type = kLstmType;
  fields.read("model_type", type);
  TERN_CHECK(type == kLstmType, source, ": the model type is '", type, "'; Tern reads lstm here");
  LstmConfig config;
  fields.read(kLstmFields, config);
  if (fields.is_null("pad_token_id")) config.padding_id = -1;
  fields.read("pad_token_id", config.padding_id);
  config.labels = fields.read_labels();
  config.label_kind = fields.read_label_kind(config.labels.size());
  fields.reject_unknown("LstmConfig");
  config.validate(source);
  return config;
}

void LstmConfig::validate(const std::string& source) const {
  ConfigRules(source).bounds(kLstmFields, *this);
  TERN_CHECK(pooling == "max" || pooling == "mean" || pooling == "last", source,
             ": \"pooling\" must be max, mean or last, got '", pooling, "'");
  TERN_CHECK(padding_id >= -1 && padding_id < vocab_size, source, ": \"pad_token_id\" ", padding_id,
             " is outside the vocabulary of ", vocab_size);
  check_labels(labels, source);
}

std::string LstmConfig::to_json(DType dtype) const {
  ConfigFields::Json json;
  json["architectures"] = {"LstmForSequenceClassification"};
  json["model_type"] = kLstmType;
  write_fields(json, kLstmFields, *this);
  write_labels(json, labels);
  json["pad_token_id"] = padding_id >= 0 ? ConfigFields::Json(padding_id) : ConfigFields::Json(nullptr);
  json["problem_type"] = problem_type(label_kind);
  json["torch_dtype"] = name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace tern::models
