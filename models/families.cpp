#include "tern/models/families.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tern/core/io/json.h"
#include "tern/core/io/state_file.h"
#include "tern/models/bert/bert.h"
#include "tern/models/cnn/cnn.h"
#include "tern/models/distilbert/distilbert.h"
#include "tern/models/hf_config.h"
#include "tern/models/lstm/lstm.h"
#include "tern/models/onnx/classifiers/onnx_models.h"
#include "tern/models/timm.h"
#include "tern/models/vit/vit.h"

namespace tern::models {
namespace {

namespace fs = std::filesystem;

std::vector<ModelFamily>& table() {
  static std::vector<ModelFamily> families = {distilbert_family(), bert_family(), vit_family(),
                                              cnn_family(),        lstm_family(), onnx_family()};
  return families;
}

/// The first family with that property, or the first of all.
template <class Property>
const ModelFamily& first_family(const Property& property) {
  const auto found = std::find_if(table().begin(), table().end(), property);
  return found == table().end() ? table().front() : *found;
}

/// Nothing if the file cannot be read: loading says why.
std::optional<StateView> readable_tensors(const std::string& path) {
  try {
    return load_state_file(path).tensors;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The family with these names. Throws Error if there is none.
const ModelFamily& family_of_weights(const StateView& weights, const std::string& path) {
  std::vector<std::string> tried;
  for (const ModelFamily& family : table()) {
    if (!family.recognizes) continue;
    if (find_set(weights, family.recognizes, path)) return family;
    tried.push_back(family.name);
  }
  TERN_CHECK(!weights.empty(), path, ": there are no tensors");
  fail(path, ": the names of the tensors ('", tern::detail::printable(weights.front().name), "' and ",
       weights.size() - 1, " more) are those of no model that Tern reads without its config.json (", in_words(tried),
       "); expected are those of transformers, torchvision or timm, such as patch_embed.proj.weight or "
       "layer1.0.conv1.weight, perhaps behind one prefix");
}

}  // namespace

const std::vector<ModelFamily>& model_families() { return table(); }

void add_model_family(ModelFamily family) {
  for (const ModelFamily& other : table())
    TERN_CHECK(other.name != family.name, "add_model_family: there is a family '", family.name, "' already");
  TERN_CHECK(family.load && (family.make == nullptr) == family.presets.empty(), "add_model_family: ", family.name,
             " must have load, and make with a preset or neither");
  table().push_back(std::move(family));
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const ModelFamily& family : table()) names.push_back(family.name);
  return names;
}

const ModelFamily& family_named(const std::string& name) {
  for (const ModelFamily& family : table())
    if (family.name == name) return family;
  fail("model: expected ", in_words(family_names()), ", got '", name, "'");
}

const ModelFamily& family_of(const std::string& path) {
  const bool is_file = is_weights_file(path);
  for (const ModelFamily& family : table())
    if (family.reads && family.reads(path)) return family;
  if (is_file) {
    const std::optional<StateView> weights = readable_tensors(path);
    return weights ? family_of_weights(*weights, path)
                   : first_family([](const ModelFamily& family) { return family.recognizes != nullptr; });
  }
  const nlohmann::json json =
      parse_json_object(read_model_text(path, "config.json"), (fs::path(path) / "config.json").string());
  const auto type = json.find("model_type");
  if (const auto timm = TimmConfig::from_json(json, path)) {
    const StateFile file = load_state_folder(path);
    for (const ModelFamily& family : table())
      if (family.recognizes && find_set(file.tensors, family.recognizes, path)) return family;
    fail(path, ": the architecture is timm's ", tern::detail::printable(timm->architecture()),
         ", whose computation Tern does not have");
  }
  return first_family([&](const ModelFamily& family) {
    return type != json.end() && std::any_of(family.model_types.begin(), family.model_types.end(),
                                             [&](const std::string& name) { return *type == name; });
  });
}

const ModelPreset* ModelFamily::preset_named(const std::string& preset) const {
  const auto found = std::find_if(presets.begin(), presets.end(), [&](const auto& p) { return p.name == preset; });
  return found == presets.end() ? nullptr : &*found;
}

const ModelPreset* ModelFamily::preset_of_set(const std::string& set) const {
  const ModelPreset* const preset = preset_named(set);
  return preset && *preset->size == 0 ? preset : nullptr;
}

std::unique_ptr<Model> load_by_family(const std::string& path, const BuildOptions& options) {
  return family_of(path).load(path, options);
}

std::vector<std::string> offered(const std::vector<ModelPreset>& presets) {
  std::vector<std::string> names;
  for (const ModelPreset& preset : presets)
    if (*preset.size != 0) names.push_back(preset.name);
  return names;
}

std::string in_words(const std::vector<std::string>& names, const std::string& last) {
  std::string words;
  for (size_t i = 0; i < names.size(); ++i) words += (i == 0 ? "" : i + 1 < names.size() ? ", " : last) + names[i];
  return words;
}

}  // namespace tern::models
