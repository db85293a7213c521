#include "tern/data/hub/selection.h"

#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tern/core/io/json.h"
#include "tern/data/hub/names.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr const char* kTokenizerFiles[] = {"config.json",           "tokenizer.json",
                                           "tokenizer_config.json", "special_tokens_map.json",
                                           "added_tokens.json",     "vocab.txt"};
constexpr const char* kModelFiles[] = {"preprocessor_config.json", "modules.json", "sentence_bert_config.json",
                                       "config_sentence_transformers.json"};
constexpr const char* kWeights[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                    "pytorch_model.bin.index.json"};  // as load_state_folder() tries them

std::string within(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& file) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    const std::string whole = pattern.ends_with('/') ? pattern + "*" : pattern;
    return fnmatch(whole.c_str(), file.c_str(), FNM_NOESCAPE) == 0;
  });
}

}  // namespace

bool HubSelection::takes(const std::string& file) const {
  return (include.empty() || matches_any(include, file)) && !matches_any(exclude, file);
}

std::vector<std::string> files_to_read(const std::vector<std::string>& files, const std::string& folder, HubUse use) {
  const std::set<std::string> there(files.begin(), files.end());
  std::vector<std::string> found;
  const auto add = [&](const char* name) {
    const bool has = there.contains(within(folder, name));
    if (has) found.push_back(within(folder, name));
    return has;
  };
  for (const char* name : kTokenizerFiles) add(name);
  if (use == HubUse::kTokenizer) return found;
  for (const char* name : kModelFiles) add(name);
  for (const char* name : kWeights)
    if (add(name)) break;
  return found;
}

std::vector<std::string> names_to_try(HubUse use) {
  std::vector<std::string> names(std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  if (use == HubUse::kTokenizer) return names;
  names.insert(names.end(), std::begin(kModelFiles), std::end(kModelFiles));
  names.insert(names.end(), std::begin(kWeights), std::end(kWeights));
  return names;
}

bool is_weights_index(const std::string& file) {
  return file.ends_with("model.safetensors.index.json") || file.ends_with("pytorch_model.bin.index.json");
}

std::vector<std::string> parts_of_index(const std::string& text, const std::string& path, const std::string& source) {
  const nlohmann::json root = parse_json_object(text, source);
  const auto map = root.find("weight_map");
  TERN_CHECK(map != root.end() && map->is_object(), source,
             ": expected \"weight_map\", an object of tensors' names and ", "file names");
  const size_t slash = path.rfind('/');
  std::set<std::string> parts;
  for (const auto& [tensor, part] : map->items()) {
    TERN_CHECK(part.is_string(), source, ": the file of a tensor must be a string, got ", shortened(part));
    require_inner_path(part.get<std::string>(), source + ": the file");
    parts.insert(within(slash == path.npos ? "" : path.substr(0, slash), part.get<std::string>()));
  }
  return {parts.begin(), parts.end()};
}

std::vector<std::string> folders_of_modules(const std::string& text, const std::string& source) {
  const nlohmann::json modules = parse_json(text, source);
  TERN_CHECK(modules.is_array(), source, ": expected an array of modules, got ", shortened(modules));
  std::vector<std::string> folders;
  for (const nlohmann::json& module : modules) {
    const auto folder = module.is_object() ? module.find("path") : module.end();
    TERN_CHECK(module.is_object() && (folder == module.end() || folder->is_string()), source,
               ": expected objects with \"path\", a string, got ", shortened(module));
    if (folder == module.end() || folder->get<std::string>().empty()) continue;
    require_inner_path(folder->get<std::string>(), source + ": the path");
    folders.push_back(folder->get<std::string>());
  }
  return folders;
}

}  // namespace tern::data
