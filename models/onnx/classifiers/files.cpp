#include "tern/models/onnx/classifiers/files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/json.h"
#include "tern/data/files/text.h"
#include "tern/models/hf_config.h"
#include "tern/models/timm.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;
using tern::detail::name_exists;

bool has_any(const fs::path& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return name_exists((folder / name).string()); });
}

bool is_onnx_name(const fs::path& path) { return data::lower_ascii(path.extension().string()) == ".onnx"; }

/// Models whose first position is behind that of the padding token.
bool counts_from_padding(const std::string& model_type) {
  return model_type.find("roberta") != std::string::npos || model_type == "camembert";
}

void check_count(const std::vector<std::string>& labels, int64_t outputs, const std::string& source) {
  TERN_CHECK(std::ssize(labels) == outputs, source, ": there are ", labels.size(), " labels, but the network gives ",
             outputs, " numbers for an input");
}

/// Of transformers, timm or Tern.
void read_config_file(const std::string& path, const OnnxFacts& facts, OnnxConfig& config) {
  const nlohmann::json object = read_json_object(path);
  ConfigFields fields(object.dump(), path);
  std::string type;
  fields.read("model_type", type);
  fields.read("max_position_embeddings", config.max_positions);
  fields.read("vocab_size", config.vocab_size);
  fields.read("pad_token_id", config.padding_id);
  fields.read("type_vocab_size", config.token_types);
  fields.read("first_position", config.first_position);
  const auto bounds = std::minmax(
      {config.max_positions, config.vocab_size, config.padding_id, config.token_types, config.first_position});
  TERN_CHECK(bounds.first >= 0 && bounds.second < (int64_t{1} << 31), path,
             ": \"max_position_embeddings\", \"vocab_size\", \"pad_token_id\", \"type_vocab_size\" and "
             "\"first_position\" must be in [0, 2^31)");
  if (counts_from_padding(type)) {
    config.first_position = config.padding_id + 1;
    if (config.max_positions > 0)
      config.max_positions = std::max<int64_t>(1, config.max_positions - config.first_position);
  }
  if (const nlohmann::json* names = fields.take("architectures");
      names != nullptr && names->is_array() && !names->empty() && (*names)[0].is_string())
    config.architecture = (*names)[0];
  if (facts.outputs == 0) return;
  if (const auto timm = TimmConfig::from_json(object, path)) {
    if (const auto labels = timm->labels(); !labels.empty()) config.labels = labels;
  } else if (object.contains("id2label") || object.contains("label2id") || object.contains("num_labels")) {
    config.labels = fields.read_labels();
  }
  if (config.labels.empty()) config.labels = numbered_labels(facts.outputs);
  check_count(config.labels, facts.outputs, path);
  if (facts.is_classifier && (object.contains("problem_type") || !facts.several_labels))
    config.label_kind = fields.read_label_kind(config.labels.size());
}

/// What `tern export` writes into a file.
void read_metadata(const std::map<std::string, std::string>& metadata, const std::string& file, const OnnxFacts& facts,
                   OnnxConfig& config) {
  const auto entry = [&](const char* name) {
    const auto found = metadata.find(name);
    return found == metadata.end() ? std::string() : found->second;
  };
  const auto number = [&](const char* name, int64_t& value) {
    const nlohmann::json read = nlohmann::json::parse(entry(name), nullptr, false);
    if (read.is_number_integer() && read.get<int64_t>() > 0) value = read.get<int64_t>();
  };
  number("max_position_embeddings", config.max_positions);
  number("vocab_size", config.vocab_size);
  config.preprocessing = entry("preprocessor_config");
  if (facts.outputs == 0) return;
  const nlohmann::json labels = nlohmann::json::parse(entry("labels"), nullptr, false);
  const bool are_names =
      labels.is_array() && std::all_of(labels.begin(), labels.end(), [](const auto& name) { return name.is_string(); });
  // Other programs may have another use for the name.
  if (!are_names || std::ssize(labels) != facts.outputs) return;
  config.labels = labels.get<std::vector<std::string>>();
  if (const std::string kind = entry("problem_type"); !kind.empty()) {
    ConfigFields fields(nlohmann::json{{"problem_type", kind}}.dump(), file + " (metadata)");
    config.label_kind = fields.read_label_kind(config.labels.size());
  }
}

}  // namespace

std::optional<OnnxFiles> onnx_files(const std::string& path) {
  std::error_code error;
  const fs::path given(path);
  const auto has_files = [](const fs::path& folder) {
    return has_any(folder, {"config.json", "preprocessor_config.json", "tokenizer.json", "vocab.txt"});
  };
  // The folder around one that is called onnx and has nothing but models.
  const auto folder_around = [&](const fs::path& folder) {
    const fs::path whole = fs::absolute(folder.empty() ? "." : folder, error).lexically_normal();
    const fs::path inner = whole.filename().empty() ? whole.parent_path() : whole;  // "a/" is a folder as "a" is
    const bool within =
        inner.filename() == "onnx" && !has_files(inner) && has_any(inner.parent_path(), {"config.json"});
    return within ? inner.parent_path().string() : folder.empty() ? std::string(".") : folder.string();
  };
  if (!fs::is_directory(given, error)) {
    if (!is_onnx_name(given)) return std::nullopt;
    return OnnxFiles{path, folder_around(given.parent_path())};
  }
  if (has_any(given, {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                      "pytorch_model.bin.index.json"}))
    return std::nullopt;
  for (const fs::path& name : {fs::path("model.onnx"), fs::path("onnx") / "model.onnx"})
    if (name_exists((given / name).string())) return OnnxFiles{(given / name).string(), folder_around(given)};
  return std::nullopt;
}

std::string folder_of_model(const std::string& path) {
  const auto files = onnx_files(path);
  return files ? files->folder : path;
}

OnnxConfig read_onnx_config(const OnnxFiles& files, const std::map<std::string, std::string>& metadata,
                            const OnnxFacts& facts) {
  OnnxConfig config;
  if (facts.several_labels)
    config.label_kind = data::LabelKind::kSeveral;
  else if (facts.outputs == 1)
    config.label_kind = data::LabelKind::kNumber;
  read_metadata(metadata, files.model, facts, config);
  const std::string path = (fs::path(files.folder) / "config.json").string();
  if (name_exists(path)) read_config_file(path, facts, config);
  if (config.labels.empty()) config.labels = numbered_labels(facts.outputs);
  return config;
}

std::map<std::string, std::string> onnx_metadata(const std::vector<std::string>& labels, data::LabelKind kind) {
  return {{"labels", nlohmann::json(labels).dump()}, {"problem_type", problem_type(kind)}};
}

std::string onnx_config_json(const OnnxConfig& config) {
  ConfigFields::Json json;
  json["architectures"] = {config.architecture};
  json["model_type"] = "onnx";
  if (config.max_positions > 0) json["max_position_embeddings"] = config.max_positions;
  if (config.vocab_size > 0) json["vocab_size"] = config.vocab_size;
  json["pad_token_id"] = config.padding_id;
  json["first_position"] = config.first_position;
  json["type_vocab_size"] = config.token_types;
  write_labels(json, config.labels);
  json["problem_type"] = problem_type(config.label_kind);
  return json.dump(2) + "\n";
}

}  // namespace tern::models
