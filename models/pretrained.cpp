#include "tern/models/pretrained.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"
#include "tern/core/io/pickle.h"
#include "tern/core/io/safetensors.h"

namespace tern::models {

namespace fs = std::filesystem;

TensorSet model_tensors(const StateFile& file, bool (*recognizes)(const StateView&),
                        const std::function<void(const std::string&)>& log) {
  std::optional<TensorSet> set = find_set(file.tensors, recognizes, file.path);
  if (!set) return {.tensors = file.tensors};
  if (!log) return *std::move(set);
  if (!file.other_containers.empty()) {
    std::string others;
    for (const std::string& name : file.other_containers)
      others += (others.empty() ? "" : ", ") + file.path + ":" + tern::detail::printable(name);
    log(file.path + ": the weights are those of '" + tern::detail::printable(file.container) +
        "'; there are others: " + others);
  }
  if (!set->others.empty()) log(file.path + ": the weights are " + set->description());
  return *std::move(set);
}

std::string described_model(const std::string& name, const TensorSet& set) {
  return set.prefix.empty() ? name : name + " (" + set.description() + ")";
}

std::vector<std::string> choose_labels(const std::vector<std::string>& stored, const std::vector<std::string>& wanted) {
  const bool same = wanted.empty() || std::is_permutation(wanted.begin(), wanted.end(), stored.begin(), stored.end());
  return same ? stored : wanted;
}

void require_one_label(const std::string& what, const BuildOptions& options) {
  TERN_CHECK(options.label_kind.value_or(data::LabelKind::kOne) == data::LabelKind::kOne, what,
             ": this model gives each input one label; several labels or numbers are for distilbert");
}

void load_weights(Model& model, const std::string& path, const PublicWeights& weights, const BuildOptions& options) {
  FromCheckpointOptions rules{
      .optional_prefixes = {}, .ignored_prefixes = weights.ignored_prefixes, .model = weights.model};
  if (options.allow_new_head) rules.optional_prefixes = weights.head_prefixes;
  const StateView all = model.state_dict();
  const StateView found = from_checkpoint_names(weights.names ? *weights.names : own_names(model), all, weights.tensors,
                                                weights.file.path, rules);
  model.load_state_dict(found, {.strict = false});
  verify_files_of(weights.file.tensors);
  if (options.log && found.size() < all.size())
    options.log(path + ": has no classification head for " + std::to_string(model.labels().size()) +
                " labels, or only a part of it; the missing part is initialized");
}

KeyMap own_names(const Model& model) {
  KeyMap names;
  for (const NamedTensor& entry : model.state_dict()) names.push_back({entry.name, {entry.name}});
  return names;
}

void save_public(const Model& model, const KeyMap& names, const std::string& dir) {
  create_folders(dir);
  // The weights first: a folder with a config.json is complete.
  save_safetensors(to_checkpoint_names(names, model.state_dict()), (fs::path(dir) / "model.safetensors").string(),
                   {{"format", "pt"}});
  write_atomically((fs::path(dir) / "config.json").string(), model.config_json());
}

}  // namespace tern::models
