#include "tern/models/hf_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/kernels/base/check.h"

namespace tern::models {
namespace fs = std::filesystem;
namespace {

using Json = ConfigFields::Json;

/// Fields of Hugging Face's configuration files that do not change the model's output.
const std::set<std::string> kNeutral = {
    // where the file comes from, and how it is run
    "architectures", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "name_or_path", "torchscript",
    "use_bfloat16", "gradient_checkpointing", "_commit_hash", "_attn_implementation", "_attn_implementation_autoset",
    "attn_implementation", "chunk_size_feed_forward",
    // the tokenizer
    "tokenizer_class", "vocab_file", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id",
    "unk_token_id", "decoder_start_token_id", "prefix",
    // other tasks, and what else a forward pass returns
    "finetuning_task", "task_specific_params", "qa_dropout", "tie_weights_", "tie_word_embeddings", "return_dict",
    "use_return_dict", "use_cache", "output_hidden_states", "output_attentions", "output_past", "max_length",
    "min_length", "is_encoder_decoder", "label_smoothing", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "summary_type", "summary_use_proj",
    // read under another name
    "num_hidden_layers", "hidden_size", "num_attention_heads", "_num_labels", "num_labels", "id2label", "label2id"};

constexpr std::pair<data::LabelKind, const char*> kProblemTypes[] = {
    {data::LabelKind::kOne, "single_label_classification"},
    {data::LabelKind::kSeveral, "multi_label_classification"},
    {data::LabelKind::kNumber, "regression"}};

}  // namespace

const char* problem_type(data::LabelKind kind) {
  for (const auto& [known, name] : kProblemTypes)
    if (known == kind) return name;
  return "";
}

ConfigFields::ConfigFields(const std::string& text, const std::string& source)
    : object_(parse_json_object(text, source)), source_(source) {}

const nlohmann::json* ConfigFields::take(const char* name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::is_null(const char* name) const {
  const auto found = object_.find(name);
  return found != object_.end() && found->is_null();
}

template <class T>
void ConfigFields::read(const char* name, T& value) {
  const nlohmann::json* const field = take(name);
  if (!field) return;
  constexpr const char* kExpected = std::is_same_v<T, int64_t>  ? "an integer of 64 bits"
                                    : std::is_same_v<T, double> ? "a number"
                                    : std::is_same_v<T, bool>   ? "true or false"
                                                                : "a string";
  const bool good = std::is_same_v<T, int64_t>  ? integer_in(*field).has_value()
                    : std::is_same_v<T, double> ? field->is_number()
                    : std::is_same_v<T, bool>   ? field->is_boolean()
                                                : field->is_string();
  TERN_CHECK(good, source_, ": \"", name, "\" must be ", kExpected, ", got ", shortened(*field));
  value = field->get<T>();
}
template void ConfigFields::read(const char* name, int64_t& value);
template void ConfigFields::read(const char* name, double& value);
template void ConfigFields::read(const char* name, bool& value);
template void ConfigFields::read(const char* name, std::string& value);

std::string ConfigFields::read_type(const std::vector<std::string>& types) {
  std::string type = types.front();
  read("model_type", type);
  TERN_CHECK(std::find(types.begin(), types.end(), type) != types.end(), source_, ": the model type is '",
             detail::printable(type), "'; Tern reads ", types.front(), " here");
  return type;
}

data::LabelKind ConfigFields::read_label_kind(size_t labels) {
  std::string type = problem_type(labels == 1 ? data::LabelKind::kNumber : data::LabelKind::kOne);
  read("problem_type", type);
  for (const auto& [kind, name] : kProblemTypes)
    if (type == name) return kind;
  fail(source_, ": problem_type '", detail::printable(type), "' is unknown; Tern reads ", kProblemTypes[0].second, ", ",
       kProblemTypes[1].second, " and ", kProblemTypes[2].second);
}

void ConfigFields::require_single_label() {
  const data::LabelKind kind = read_label_kind(2);
  TERN_CHECK(kind == data::LabelKind::kOne, source_, ": problem_type '", problem_type(kind),
             "': this model has one label for each row (single_label_classification); distilbert takes the others too");
}

void ConfigFields::reject_unknown(const std::string& family) const {
  constexpr int kShown = 20;
  std::string unknown;
  int count = 0;
  for (const auto& [name, value] : object_.items())
    if (!known_.count(name) && !kNeutral.count(name) && ++count <= kShown)
      unknown += (unknown.empty() ? "" : ", ") + detail::printable(name);
  if (count > kShown) unknown += ", and " + std::to_string(count - kShown) + " more";
  TERN_CHECK(unknown.empty(), source_, ": unknown field", unknown.find(',') == std::string::npos ? " " : "s ", unknown,
             "; Tern reads ", family, "'s fields");
}

std::vector<std::string> ConfigFields::read_labels() {
  const nlohmann::json* names = take("id2label");
  const nlohmann::json* numbers = take("label2id");
  int64_t count = -1;
  read("_num_labels", count);
  read("num_labels", count);
  TERN_CHECK(count == -1 || (count >= 1 && count <= 1'000'000), source_, ": \"num_labels\" is ", count);
  std::vector<std::string> labels;
  if (names) {
    TERN_CHECK(names->is_object() && !names->empty(), source_, ": \"id2label\" must be an object of number: name");
    labels.resize(names->size());
    for (const auto& [key, name] : names->items()) {
      const bool digits = !key.empty() && key.size() <= 7 && key.find_first_not_of("0123456789") == std::string::npos;
      // "01" and "1" are different keys.
      const bool good = digits && std::to_string(std::stoul(key)) == key && std::stoul(key) < labels.size();
      TERN_CHECK(good && name.is_string(), source_, ": \"id2label\" must name the numbers 0 to ", labels.size() - 1,
                 ", got the key '", key.substr(0, 40), "'");
      labels[std::stoul(key)] = name.get<std::string>();
    }
  } else {
    const int64_t n = count >= 0 ? count : numbers && numbers->is_object() ? static_cast<int64_t>(numbers->size()) : 2;
    for (int64_t i = 0; i < n; ++i) labels.push_back("LABEL_" + std::to_string(i));
  }
  TERN_CHECK(count < 0 || count == static_cast<int64_t>(labels.size()), source_, ": \"num_labels\" is ", count,
             " but \"id2label\" names ", labels.size());
  if (names && numbers) {
    TERN_CHECK(numbers->is_object() && numbers->size() == labels.size(), source_,
               ": \"label2id\" and \"id2label\" name different numbers of labels");
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto found = numbers->find(labels[i]);
      TERN_CHECK(
          found != numbers->end() && found->is_number_integer() && found->get<int64_t>() == static_cast<int64_t>(i),
          source_, ": \"label2id\" contradicts \"id2label\" at label '", labels[i], "'");
    }
  } else if (numbers) {
    TERN_CHECK(numbers->is_object() && numbers->size() == labels.size(), source_, ": \"label2id\" must name ",
               labels.size(), " labels");
    std::vector<std::string> named(labels.size());
    for (const auto& [name, number] : numbers->items()) {
      TERN_CHECK(number.is_number_integer() && number.get<int64_t>() >= 0 &&
                     number.get<int64_t>() < static_cast<int64_t>(labels.size()),
                 source_, ": \"label2id\" gives '", name, "' a number outside 0 to ", labels.size() - 1);
      std::string& place = named[number.get<size_t>()];
      TERN_CHECK(place.empty(), source_, ": \"label2id\" gives '", place, "' and '", name, "' the same number");
      place = name;
    }
    labels = named;
  }
  return labels;
}

void write_labels(Json& json, const std::vector<std::string>& labels) {
  // Appended without a search: searching for each name first would take minutes for a million labels.
  Json names = Json::object(), numbers = Json::object();
  for (size_t i = 0; i < labels.size(); ++i) {
    names.get_ref<Json::object_t&>().emplace_back(std::to_string(i), labels[i]);
    numbers.get_ref<Json::object_t&>().emplace_back(labels[i], i);
  }
  json["id2label"] = std::move(names);
  json["label2id"] = std::move(numbers);
}

void ConfigRules::bound(const char* name, int64_t value, double max) const {
  TERN_CHECK(value >= 1 && static_cast<double>(value) <= max, source_, ": \"", name, "\" must be 1 to ",
             static_cast<int64_t>(max), ", got ", value);
}

void ConfigRules::bound(const char* name, double value, double max) const {
  TERN_CHECK(value >= 0 && value <= max, source_, ": \"", name, "\" must be in [0, ", max, "], got ", value);
}

void ConfigRules::heads(const char* width_name, int64_t width, const char* name, int64_t heads) const {
  TERN_CHECK(width % heads == 0, source_, ": \"", width_name, "\" ", width, " is not a multiple of \"", name, "\" ",
             heads);
  TERN_CHECK(width / heads <= 256, source_, ": heads of ", width / heads,
             " dimensions; Tern's attention takes up to 256");
}

void ConfigRules::padding(int64_t padding_id, int64_t vocab_size) const {
  TERN_CHECK(padding_id >= -1 && padding_id < vocab_size, source_, ": \"pad_token_id\" ", padding_id,
             " is outside the vocabulary of ", vocab_size);
}

void ConfigRules::activation(const char* name, const std::string& value) const {
  TERN_CHECK(value == "gelu" || value == "relu", source_, ": \"", name, "\" must be gelu or relu, got '", value, "'");
}

void check_labels(const std::vector<std::string>& labels, const std::string& source) {
  TERN_CHECK(!labels.empty(), source, ": there are no labels");
  const std::set<std::string> distinct(labels.begin(), labels.end());
  TERN_CHECK(distinct.size() == labels.size(), source, ": two labels have the same name");
}

bool is_weights_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return false;
  TERN_CHECK(tern::detail::name_exists(path), path,
             ": no such folder or file; expected a model folder with config.json and model.safetensors or ",
             "pytorch_model.bin, or a file of weights");
  return true;
}

std::string read_model_text(const std::string& dir, const std::string& name) {
  const std::string path = (fs::path(dir) / name).string();
  std::error_code error;
  TERN_CHECK(fs::exists(path, error), "cannot open ", path, ": ", error ? error.message() : "No such file or directory",
             "; a model folder holds config.json and model.safetensors or pytorch_model.bin");
  std::string text = read_whole_file(path);
  TERN_CHECK(!text.empty(), path, ": the file is empty");
  return text;
}

}  // namespace tern::models
