#include "tern/models/distilbert/config.h"

#include "tern/models/hf_config.h"

namespace tern::models {

namespace {

constexpr const char* kType = "distilbert";

constexpr struct {
  ModelPreset preset;
  int64_t width, layers, heads;
} kDistilBertPresets[] = {{{"tiny", "128 x 2 layers"}, 128, 2, 2},
                          {{"small", "256 x 4"}, 256, 4, 4},
                          {{.name = "base", .size = "768 x 6", .large = true}, 768, 6, 12}};

constexpr ConfigField<DistilBertConfig> kDistilBertFields[] = {
    {"activation", &DistilBertConfig::activation},
    {"attention_dropout", &DistilBertConfig::attention_dropout},
    {"dim", &DistilBertConfig::width, 1 << 17},
    {"dropout", &DistilBertConfig::dropout},
    {"hidden_dim", &DistilBertConfig::hidden, 1 << 20},
    {"initializer_range", &DistilBertConfig::initializer_range, 1e3},
    {"max_position_embeddings", &DistilBertConfig::max_positions, 1 << 24},
    {"n_heads", &DistilBertConfig::heads, 1 << 12},
    {"n_layers", &DistilBertConfig::layers, 1 << 12},
    {"seq_classif_dropout", &DistilBertConfig::classifier_dropout},
    {"sinusoidal_pos_embds", &DistilBertConfig::sinusoidal_positions},
    {"vocab_size", &DistilBertConfig::vocab_size, 1 << 28}};

}  // namespace

DistilBertConfig DistilBertConfig::preset(const std::string& name) {
  const auto& preset = find_preset(kDistilBertPresets, name);
  DistilBertConfig config;
  config.width = preset.width;
  config.layers = preset.layers;
  config.heads = preset.heads;
  config.hidden = 4 * preset.width;
  return config;
}

std::vector<ModelPreset> DistilBertConfig::presets() { return presets_of(kDistilBertPresets); }

DistilBertConfig DistilBertConfig::from_json(const std::string& text, const std::string& source, const Log& log) {
  ConfigFields fields(text, source);
  fields.read_type({kType});
  DistilBertConfig config;
  fields.read(kDistilBertFields, config);
  fields.read_text_fields(config);
  fields.reject_not_implemented();
  // Other model families' names for the same values may be present, but must agree.
  const auto agree = [&](const char* name, int64_t expected) {
    int64_t value = expected;
    fields.read(name, value);
    TERN_CHECK(value == expected, source, ": \"", name, "\" is ", value, " but DistilBERT's field says ", expected);
  };
  agree("hidden_size", config.width);
  agree("num_hidden_layers", config.layers);
  agree("num_attention_heads", config.heads);
  fields.ignore_unknown(log);
  config.validate(source);
  return config;
}

void DistilBertConfig::validate(const std::string& source) const {
  const ConfigRules rules(source);
  rules.bounds(kDistilBertFields, *this);
  rules.heads("dim", width, "n_heads", heads);
  rules.activation("activation", activation);
  rules.padding(padding_id, vocab_size);
  check_labels(labels, source);
}

EncoderOptions DistilBertConfig::encoder() const {
  return {.width = width,
          .heads = heads,
          .hidden = hidden,
          .layers = layers,
          .activation = activation == "relu" ? Activation::kRelu : Activation::kGelu,
          .dropout = dropout,
          .attention_dropout = attention_dropout,
          .attention_output_dropout = false,
          .norm_eps = 1e-12,
          .initializer_range = initializer_range};
}

std::string DistilBertConfig::to_json(DType dtype) const {
  ConfigFields::Json json;
  json["architectures"] = {"DistilBertForSequenceClassification"};
  json["model_type"] = kType;
  write_fields(json, kDistilBertFields, *this);
  write_text_fields(json, *this);
  json["qa_dropout"] = 0.1;
  json["tie_weights_"] = true;
  json["torch_dtype"] = name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace tern::models
