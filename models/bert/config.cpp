#include "tern/models/bert/config.h"

#include <algorithm>

#include "tern/core/io/json.h"
#include "tern/models/hf_config.h"

namespace tern::models {

namespace {

constexpr struct {
  ModelPreset preset;
  int64_t width, layers;
} kBertPresets[] = {{{"tiny", "128 x 2 layers"}, 128, 2},
                    {{"mini", "256 x 4"}, 256, 4},
                    {{"small", "512 x 4"}, 512, 4},
                    {{"medium", "512 x 8"}, 512, 8},
                    {{.name = "base", .size = "768 x 12", .large = true}, 768, 12},
                    {{.name = "large", .size = "1024 x 24", .large = true}, 1024, 24}};

constexpr ConfigField<BertConfig> kBertFields[] = {{"attention_probs_dropout_prob", &BertConfig::attention_dropout},
                                                   {"hidden_act", &BertConfig::activation},
                                                   {"hidden_dropout_prob", &BertConfig::dropout},
                                                   {"hidden_size", &BertConfig::width, 1 << 17},
                                                   {"initializer_range", &BertConfig::initializer_range, 1e3},
                                                   {"intermediate_size", &BertConfig::hidden, 1 << 20},
                                                   {"layer_norm_eps", &BertConfig::norm_eps},
                                                   {"max_position_embeddings", &BertConfig::position_rows, 1 << 24},
                                                   {"num_attention_heads", &BertConfig::heads, 1 << 12},
                                                   {"num_hidden_layers", &BertConfig::layers, 1 << 12},
                                                   {"type_vocab_size", &BertConfig::token_types, 1 << 12},
                                                   {"vocab_size", &BertConfig::vocab_size, 1 << 28}};

/// The types, and what transformers' class names begin with. The computation of all but the first is RoBERTa's.
constexpr std::pair<const char*, const char*> kBertTypes[] = {
    {"bert", "Bert"}, {"roberta", "Roberta"}, {"xlm-roberta", "XLMRoberta"}, {"camembert", "Camembert"}};

constexpr std::pair<BertHead, const char*> kBertHeads[] = {{BertHead::kNone, "Model"},
                                                           {BertHead::kClassifier, "ForSequenceClassification"},
                                                           {BertHead::kTagger, "ForTokenClassification"},
                                                           {BertHead::kMaskedWords, "ForMaskedLM"},
                                                           {BertHead::kMaskedWords, "ForPreTraining"}};

/// The head of the first architecture; kNone for another task's, whose encoder alone is of use.
BertHead head_of(const nlohmann::json* architectures, const std::string& source) {
  if (!architectures) return BertHead::kClassifier;
  TERN_CHECK(architectures->is_array() && !architectures->empty() && (*architectures)[0].is_string(), source,
             ": \"architectures\" must be a list of class names, got ", shortened(*architectures));
  const std::string& name = (*architectures)[0].get_ref<const std::string&>();
  for (const auto& [head, ending] : kBertHeads)
    if (name.ends_with(ending)) return head;
  return BertHead::kNone;
}

}  // namespace

BertConfig BertConfig::preset(const std::string& name) {
  const auto& preset = find_preset(kBertPresets, name);
  BertConfig config;
  config.width = preset.width;
  config.layers = preset.layers;
  config.heads = preset.width / 64;
  config.hidden = 4 * preset.width;
  return config;
}

std::vector<ModelPreset> BertConfig::presets() { return presets_of(kBertPresets); }

BertConfig BertConfig::from_json(const std::string& text, const std::string& source, const Log& log) {
  ConfigFields fields(text, source);
  BertConfig config;
  std::vector<std::string> types;
  for (const auto& [type, name] : kBertTypes) types.emplace_back(type);
  config.type = fields.read_type(types);
  config.head = head_of(fields.take("architectures"), source);
  if (config.is_roberta()) config.padding_id = 1;  // transformers' default
  fields.read(kBertFields, config);
  if (fields.take("classifier_dropout")) fields.read("classifier_dropout", config.classifier_dropout.emplace());
  fields.read_text_fields(config);
  fields.reject_not_implemented();
  std::string positions = "absolute";
  fields.read("position_embedding_type", positions);
  TERN_CHECK(positions == "absolute", source, ": \"position_embedding_type\" is '", positions,
             "'; Tern has absolute positions only");
  bool tied = true;
  fields.read("tie_word_embeddings", tied);
  TERN_CHECK(tied || config.head != BertHead::kMaskedWords, source,
             ": \"tie_word_embeddings\" is false; Tern's head for masked words shares the word embedding");
  fields.ignore_unknown(log);
  config.validate(source);
  return config;
}

void BertConfig::validate(const std::string& source) const {
  const ConfigRules rules(source);
  rules.bounds(kBertFields, *this);
  rules.heads("hidden_size", width, "num_attention_heads", heads);
  rules.activation("hidden_act", activation);
  rules.padding(padding_id, vocab_size);
  TERN_CHECK(head_dropout() >= 0 && head_dropout() <= 1, source, ": \"classifier_dropout\" must be in [0, 1], got ",
             head_dropout());
  TERN_CHECK(!is_roberta() || padding_id >= 0, source, ": \"pad_token_id\" is null; positions of ", type,
             " are counted from it");
  TERN_CHECK(max_positions() >= 1, source, ": \"max_position_embeddings\" ", position_rows,
             " leaves no position behind those up to \"pad_token_id\" ", padding_id);
  check_labels(labels, source);
}

EncoderOptions BertConfig::encoder() const {
  return {.width = width,
          .heads = heads,
          .hidden = hidden,
          .layers = layers,
          .activation = activation == "relu" ? Activation::kRelu : Activation::kGelu,
          .dropout = dropout,
          .attention_dropout = attention_dropout,
          .norm_eps = norm_eps,
          .initializer_range = initializer_range};
}

std::string BertConfig::to_json(DType dtype) const {
  const auto type_entry =
      std::ranges::find(kBertTypes, type, [](const auto& entry) { return std::string(entry.first); });
  const auto head_entry = std::ranges::find(kBertHeads, head, [](const auto& entry) { return entry.first; });
  ConfigFields::Json json;
  json["architectures"] = {std::string(type_entry->second) + head_entry->second};
  json["model_type"] = type;
  write_fields(json, kBertFields, *this);
  json["classifier_dropout"] =
      classifier_dropout ? ConfigFields::Json(*classifier_dropout) : ConfigFields::Json(nullptr);
  json["position_embedding_type"] = "absolute";
  write_text_fields(json, *this);
  json["torch_dtype"] = name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace tern::models
