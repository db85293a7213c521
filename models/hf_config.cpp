#include "tern/models/hf_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/input_file.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/core/io/state_file.h"
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

/// Fields with which transformers computes something that Tern does not, and what that is.
constexpr std::pair<const char*, const char*> kNotImplemented[] = {
    {"is_decoder", "a decoder"},
    {"add_cross_attention", "attention to another sequence"},
    {"pruned_heads", "pruned heads"},
    {"quantization_config", "quantised weights"},
    {"auto_map", "a model class with code of its own"}};

/// id2label: the name of every number from 0 on. A name may be a number, and several may be the same.
std::vector<std::string> labels_by_number(const nlohmann::json& names, const std::string& source) {
  TERN_CHECK(names.is_object() && !names.empty(), source, ": \"id2label\" must be an object of number: name, got ",
             shortened(names));
  std::vector<std::string> labels(names.size());
  for (const auto& [key, name] : names.items()) {
    const bool digits = !key.empty() && key.size() <= 7 && key.find_first_not_of("0123456789") == std::string::npos;
    // "01" and "1" are different keys.
    const bool good = digits && std::to_string(std::stoul(key)) == key && std::stoul(key) < labels.size();
    TERN_CHECK(good && name.is_primitive(), source, ": \"id2label\" must name the numbers 0 to ", labels.size() - 1,
               ", got ", detail::printable(key, 40), ": ", shortened(name));
    labels[std::stoul(key)] = name.is_string() ? name.get<std::string>() : name.dump();
  }
  return labels;
}

/// label2id: the names in the order of their numbers; none if these are not 0, 1, 2, ..., each once.
std::vector<std::string> labels_of_numbers(const nlohmann::json& numbers) {
  std::vector<std::string> labels(numbers.size());
  std::vector<bool> named(labels.size());
  for (const auto& [name, number] : numbers.items()) {
    const int64_t place = integer_in(number).value_or(-1);
    if (place < 0 || place >= static_cast<int64_t>(labels.size()) || named[static_cast<size_t>(place)]) return {};
    named[static_cast<size_t>(place)] = true;
    labels[static_cast<size_t>(place)] = name;
  }
  return labels;
}

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
             "': this model has one label for each row (single_label_classification); distilbert and bert take the "
             "others too");
}

void ConfigFields::read_side(const char* name, int64_t& value) {
  const nlohmann::json* const field = take(name);
  if (!field || !field->is_array()) return read(name, value);
  const bool square = field->size() == 2 && integer_in((*field)[0]) && (*field)[0] == (*field)[1];
  TERN_CHECK(square, source_, ": \"", name, "\" must be an integer or two equal ones, got ", shortened(*field),
             "; Tern has square images and patches only");
  value = (*field)[0].get<int64_t>();
}

void ConfigFields::reject_not_implemented() {
  for (const auto& [name, meaning] : kNotImplemented) {
    const nlohmann::json* const field = take(name);
    const bool off = !field || *field == false || (field->is_structured() && field->empty());
    TERN_CHECK(off, source_, ": \"", name, "\" is ", shortened(*field), ": ", meaning, " is not implemented");
  }
}

std::string ConfigFields::unknown(int& count) const {
  constexpr int kShown = 20;
  std::string names;
  count = 0;
  for (const auto& [name, value] : object_.items())
    if (!known_.count(name) && !kNeutral.count(name) && ++count <= kShown)
      names += (names.empty() ? "" : ", ") + detail::printable(name);
  if (count > kShown) names += ", and " + std::to_string(count - kShown) + " more";
  return names;
}

void ConfigFields::ignore_unknown(const Log& log) const {
  int count = 0;
  const std::string names = unknown(count);
  if (log && count > 0)
    log(source_ + ": the field" + (count == 1 ? " " : "s ") + names + (count == 1 ? " is" : " are") +
        " not known and ignored, as in transformers");
}

void ConfigFields::reject_unknown(const std::string& family) const {
  int count = 0;
  const std::string names = unknown(count);
  TERN_CHECK(count == 0, source_, ": unknown field", count == 1 ? " " : "s ", names, "; Tern reads ", family,
             "'s fields");
}

std::vector<std::string> ConfigFields::read_labels() {
  const nlohmann::json* names = take("id2label");
  const nlohmann::json* numbers = take("label2id");
  int64_t count = -1;
  read("num_labels", count);
  TERN_CHECK(count == -1 || (count >= 1 && count <= 1'000'000), source_, ": \"num_labels\" is ", count);
  TERN_CHECK(!numbers || numbers->is_object(), source_, ": \"label2id\" must be an object of name: number, got ",
             shortened(*numbers));
  // transformers itself writes a label2id that contradicts id2label, which counts; num_labels overrules both.
  std::vector<std::string> labels;
  if (names)
    labels = labels_by_number(*names, source_);
  else if (numbers)
    labels = labels_of_numbers(*numbers);
  const int64_t given = names ? static_cast<int64_t>(labels.size()) : 2, wanted = count < 0 ? given : count;
  return static_cast<int64_t>(labels.size()) == wanted ? labels : numbered_labels(wanted);
}

std::vector<std::string> numbered_labels(int64_t count) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

void write_labels(Json& json, const std::vector<std::string>& labels) {
  // Appended without a search: searching for each name first would take minutes for a million labels.
  Json names = Json::object(), numbers = Json::object();
  std::unordered_map<std::string_view, size_t> last;  // of equal names the last counts, as in transformers
  for (size_t i = 0; i < labels.size(); ++i) last[labels[i]] = i;
  for (size_t i = 0; i < labels.size(); ++i) {
    names.get_ref<Json::object_t&>().emplace_back(std::to_string(i), labels[i]);
    if (last[labels[i]] == i) numbers.get_ref<Json::object_t&>().emplace_back(labels[i], i);
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
}

std::string advice_for_missing(const std::string& path) {
  constexpr const char* kOfNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
  const bool may_be_on_a_hub = path.find('-') != std::string::npos &&
                               path.find_first_not_of(kOfNames) == std::string::npos &&
                               std::count(path.begin(), path.end(), '/') <= 1 && !path.starts_with('/') &&
                               !path.starts_with('.') && !path.ends_with('/') && fs::path(path).extension().empty();
  if (!may_be_on_a_hub) return "";
  return "; a model of Hugging Face's hub is fetched first ('tern fetch " + path + "' prints its folder)";
}

bool is_weights_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return false;
  TERN_CHECK(tern::detail::name_exists(file_of_weights(path)), path,
             ": no such folder or file; expected a model folder with config.json and model.safetensors or ",
             "pytorch_model.bin, or a file of weights", advice_for_missing(path));
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
