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
  fields.read_type({kLstmType});
  LstmConfig config;
  fields.read(kLstmFields, config);
  fields.read_text_fields(config);
  fields.reject_unknown("LstmConfig");
  config.validate(source);
  return config;
}

void LstmConfig::validate(const std::string& source) const {
  const ConfigRules rules(source);
  rules.bounds(kLstmFields, *this);
  TERN_CHECK(pooling == "max" || pooling == "mean" || pooling == "last", source,
             ": \"pooling\" must be max, mean or last, got '", pooling, "'");
  rules.padding(padding_id, vocab_size);
  check_labels(labels, source);
}

std::string LstmConfig::to_json(DType dtype) const {
  ConfigFields::Json json;
  json["architectures"] = {"LstmForSequenceClassification"};
  json["model_type"] = kLstmType;
  write_fields(json, kLstmFields, *this);
  write_text_fields(json, *this);
  json["torch_dtype"] = name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace tern::models
