#include "tern/models/distilbert/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace tern::models {
namespace {

using Json = nlohmann::ordered_json;

/// Fields of Hugging Face's configuration files that do not change what the model computes.
const std::set<std::string> kNeutral = {"architectures",
                                        "transformers_version",
                                        "torch_dtype",
                                        "dtype",
                                        "_name_or_path",
                                        "name_or_path",
                                        "qa_dropout",
                                        "tie_weights_",
                                        "tie_word_embeddings",
                                        "finetuning_task",
                                        "bos_token_id",
                                        "eos_token_id",
                                        "sep_token_id",
                                        "cls_token_id",
                                        "mask_token_id",
                                        "unk_token_id",
                                        "decoder_start_token_id",
                                        "tokenizer_class",
                                        "prefix",
                                        "task_specific_params",
                                        "return_dict",
                                        "use_return_dict",
                                        "use_cache",
                                        "torchscript",
                                        "use_bfloat16",
                                        "output_hidden_states",
                                        "output_attentions",
                                        "_commit_hash",
                                        "_attn_implementation",
                                        "_attn_implementation_autoset",
                                        "attn_implementation",
                                        "num_hidden_layers",
                                        "hidden_size",
                                        "num_attention_heads",
                                        "gradient_checkpointing",
                                        "max_length",
                                        "min_length",
                                        "is_encoder_decoder",
                                        "output_past",
                                        "label_smoothing",
                                        "summary_activation",
                                        "summary_first_dropout",
                                        "summary_proj_to_labels",
                                        "summary_type",
                                        "summary_use_proj",
                                        "vocab_file",
                                        "_num_labels",
                                        "num_labels",
                                        "id2label",
                                        "label2id"};

/// Typed access to the fields of one object; remembers which were read.
class Fields {
 public:
  Fields(const Json& object, const std::string& source) : object_(object), source_(source) {}

  void read(const char* name, int64_t& value) {
    if (const Json* field = take(name)) {
      TERN_CHECK(field->is_number_integer(), source_, ": \"", name, "\" must be an integer, got ", shortened(*field));
      value = field->get<int64_t>();
    }
  }
  void read(const char* name, double& value) {
    if (const Json* field = take(name)) {
      TERN_CHECK(field->is_number(), source_, ": \"", name, "\" must be a number, got ", shortened(*field));
      value = field->get<double>();
    }
  }
  void read(const char* name, bool& value) {
    if (const Json* field = take(name)) {
      TERN_CHECK(field->is_boolean(), source_, ": \"", name, "\" must be true or false, got ", shortened(*field));
      value = field->get<bool>();
    }
  }
  void read(const char* name, std::string& value) {
    if (const Json* field = take(name)) {
      TERN_CHECK(field->is_string(), source_, ": \"", name, "\" must be a string, got ", shortened(*field));
      value = field->get<std::string>();
    }
  }
  /// The field, or null when it is absent or JSON's null.
  const Json* take(const char* name) {
    known_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void reject_unknown() const {
    std::string unknown;
    for (const auto& [name, value] : object_.items())
      if (!known_.count(name) && !kNeutral.count(name)) unknown += (unknown.empty() ? "" : ", ") + name;
    TERN_CHECK(unknown.empty(), source_, ": unknown field", unknown.find(',') == std::string::npos ? " " : "s ",
               unknown, "; Tern reads DistilBertConfig's fields");
  }

 private:
  static std::string shortened(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
  }
  const Json& object_;
  const std::string& source_;
  std::set<std::string> known_;
};

/// The label names in the order of their numbers, from id2label, label2id or num_labels.
std::vector<std::string> read_labels(Fields& fields, const std::string& source) {
  const Json* names = fields.take("id2label");
  const Json* numbers = fields.take("label2id");
  int64_t count = -1;
  fields.read("_num_labels", count);
  fields.read("num_labels", count);
  TERN_CHECK(count == -1 || (count >= 1 && count <= 1'000'000), source, ": \"num_labels\" is ", count);
  std::vector<std::string> labels;
  if (names) {
    TERN_CHECK(names->is_object() && !names->empty(), source, ": \"id2label\" must be an object of number: name");
    labels.resize(names->size());
    for (const auto& [key, name] : names->items()) {
      const bool digits = !key.empty() && key.size() <= 7 && key.find_first_not_of("0123456789") == std::string::npos;
      TERN_CHECK(digits && std::stoul(key) < labels.size() && name.is_string(), source,
                 ": \"id2label\" must name the numbers 0 to ", labels.size() - 1, ", got the key '", key.substr(0, 40),
                 "'");
      labels[std::stoul(key)] = name.get<std::string>();
    }
  } else {
    const int64_t n = count >= 0 ? count : numbers && numbers->is_object() ? static_cast<int64_t>(numbers->size()) : 2;
    for (int64_t i = 0; i < n; ++i) labels.push_back("LABEL_" + std::to_string(i));
  }
  TERN_CHECK(count < 0 || count == static_cast<int64_t>(labels.size()), source, ": \"num_labels\" is ", count,
             " but \"id2label\" names ", labels.size());
  if (names && numbers) {
    TERN_CHECK(numbers->is_object() && numbers->size() == labels.size(), source,
               ": \"label2id\" and \"id2label\" name different numbers of labels");
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto found = numbers->find(labels[i]);
      TERN_CHECK(
          found != numbers->end() && found->is_number_integer() && found->get<int64_t>() == static_cast<int64_t>(i),
          source, ": \"label2id\" contradicts \"id2label\" at label '", labels[i], "'");
    }
  } else if (numbers) {
    TERN_CHECK(numbers->is_object() && numbers->size() == labels.size(), source, ": \"label2id\" must name ",
               labels.size(), " labels");
    std::vector<std::string> named(labels.size());
    for (const auto& [name, number] : numbers->items()) {
      TERN_CHECK(number.is_number_integer() && number.get<int64_t>() >= 0 &&
                     number.get<int64_t>() < static_cast<int64_t>(labels.size()),
                 source, ": \"label2id\" gives '", name, "' a number outside 0 to ", labels.size() - 1);
      std::string& place = named[number.get<size_t>()];
      TERN_CHECK(place.empty(), source, ": \"label2id\" gives '", place, "' and '", name, "' the same number");
      place = name;
    }
    labels = named;
  }
  return labels;
}

}  // namespace

DistilBertConfig DistilBertConfig::preset(const std::string& name) {
  DistilBertConfig config;
  const auto set = [&](int64_t width, int64_t layers, int64_t heads) {
    config.width = width;
    config.layers = layers;
    config.heads = heads;
    config.hidden = 4 * width;
  };
  if (name == "tiny")
    set(128, 2, 2);
  else if (name == "small")
    set(256, 4, 4);
  else if (name == "base")
    set(768, 6, 12);
  else
    fail("preset: expected tiny, small or base, got '", name, "'");
  return config;
}

DistilBertConfig DistilBertConfig::from_json(const std::string& text, const std::string& source) {
  const Json json = Json::parse(text, nullptr, false);
  TERN_CHECK(json.is_object(), source, ": not a JSON object");
  Fields fields(json, source);
  std::string type = "distilbert";
  fields.read("model_type", type);
  TERN_CHECK(type == "distilbert", source, ": the model type is '", type, "'; Tern reads distilbert here");
  DistilBertConfig config;
  fields.read("vocab_size", config.vocab_size);
  fields.read("max_position_embeddings", config.max_positions);
  fields.read("dim", config.width);
  fields.read("n_layers", config.layers);
  fields.read("n_heads", config.heads);
  fields.read("hidden_dim", config.hidden);
  fields.read("activation", config.activation);
  fields.read("dropout", config.dropout);
  fields.read("attention_dropout", config.attention_dropout);
  fields.read("seq_classif_dropout", config.classifier_dropout);
  fields.read("initializer_range", config.initializer_range);
  fields.read("sinusoidal_pos_embds", config.sinusoidal_positions);
  if (json.contains("pad_token_id") && json["pad_token_id"].is_null()) config.padding_id = -1;
  fields.read("pad_token_id", config.padding_id);
  config.labels = read_labels(fields, source);

  std::string problem_type = "single_label_classification";
  fields.read("problem_type", problem_type);
  TERN_CHECK(problem_type == "single_label_classification", source, ": problem_type '", problem_type,
             "' is not implemented; Tern trains single_label_classification");
  for (const char* flag : {"is_decoder", "add_cross_attention"}) {
    bool value = false;
    fields.read(flag, value);
    TERN_CHECK(!value, source, ": \"", flag, "\" is not implemented");
  }
  int64_t chunk = 0;
  fields.read("chunk_size_feed_forward", chunk);
  if (const Json* pruned = fields.take("pruned_heads"))
    TERN_CHECK(pruned->empty(), source, ": pruned heads are not implemented");
  // Other families' names for the same things: they may be there, but must agree.
  const auto agree = [&](const char* name, int64_t expected) {
    int64_t value = expected;
    fields.read(name, value);
    TERN_CHECK(value == expected, source, ": \"", name, "\" is ", value, " but DistilBERT's own field says ", expected);
  };
  agree("hidden_size", config.width);
  agree("num_hidden_layers", config.layers);
  agree("num_attention_heads", config.heads);
  fields.reject_unknown();
  config.validate(source);
  return config;
}

void DistilBertConfig::validate(const std::string& source) const {
  const auto positive = [&](const char* name, int64_t value, int64_t most) {
    TERN_CHECK(value >= 1 && value <= most, source, ": \"", name, "\" must be 1 to ", most, ", got ", value);
  };
  positive("vocab_size", vocab_size, 1 << 28);
  positive("max_position_embeddings", max_positions, 1 << 24);
  positive("dim", width, 1 << 17);
  positive("n_layers", layers, 1 << 12);
  positive("n_heads", heads, 1 << 12);
  positive("hidden_dim", hidden, 1 << 20);
  TERN_CHECK(width % heads == 0, source, ": \"dim\" ", width, " is not a multiple of \"n_heads\" ", heads);
  TERN_CHECK(width / heads <= 256, source, ": heads of ", width / heads,
             " dimensions; Tern's attention takes up to 256");
  TERN_CHECK(activation == "gelu" || activation == "relu", source, ": \"activation\" must be gelu or relu, got '",
             activation, "'");
  const auto fraction = [&](const char* name, double value) {
    TERN_CHECK(value >= 0 && value <= 1, source, ": \"", name, "\" must be in [0, 1], got ", value);
  };
  fraction("dropout", dropout);
  fraction("attention_dropout", attention_dropout);
  fraction("seq_classif_dropout", classifier_dropout);
  TERN_CHECK(initializer_range >= 0 && initializer_range < 1e3, source, ": \"initializer_range\" is ",
             initializer_range);
  TERN_CHECK(padding_id >= -1 && padding_id < vocab_size, source, ": \"pad_token_id\" ", padding_id,
             " lies outside the vocabulary of ", vocab_size);
  TERN_CHECK(!labels.empty(), source, ": there are no labels");
  const std::set<std::string> distinct(labels.begin(), labels.end());
  TERN_CHECK(distinct.size() == labels.size(), source, ": two labels have the same name");
}

EncoderOptions DistilBertConfig::encoder() const {
  return {.width = width,
          .heads = heads,
          .hidden = hidden,
          .layers = layers,
          .activation = activation == "relu" ? Activation::kRelu : Activation::kGelu,
          .dropout = dropout,
          .attention_dropout = attention_dropout,
          .norm_eps = 1e-12,
          .initializer_range = initializer_range};
}

std::string DistilBertConfig::to_json(DType dtype) const {
  Json json;
  json["architectures"] = {"DistilBertForSequenceClassification"};
  json["model_type"] = "distilbert";
  json["activation"] = activation;
  json["attention_dropout"] = attention_dropout;
  json["dim"] = width;
  json["dropout"] = dropout;
  json["hidden_dim"] = hidden;
  for (size_t i = 0; i < labels.size(); ++i) {
    json["id2label"][std::to_string(i)] = labels[i];
    json["label2id"][labels[i]] = i;
  }
  json["initializer_range"] = initializer_range;
  json["max_position_embeddings"] = max_positions;
  json["n_heads"] = heads;
  json["n_layers"] = layers;
  json["pad_token_id"] = padding_id >= 0 ? Json(padding_id) : Json(nullptr);
  json["problem_type"] = "single_label_classification";
  json["qa_dropout"] = 0.1;
  json["seq_classif_dropout"] = classifier_dropout;
  json["sinusoidal_pos_embds"] = sinusoidal_positions;
  json["tie_weights_"] = true;
  json["torch_dtype"] = name_of(dtype);
  json["vocab_size"] = vocab_size;
  return json.dump(2) + "\n";
}

}  // namespace tern::models
