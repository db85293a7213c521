#include "tern/models/pretrained.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/folders.h"
#include "tern/core/io/pickle.h"
#include "tern/core/io/safetensors.h"
#include "tern/data/datasets/label_index.h"

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

HeadChoice choose_head(const std::vector<std::string>& stored, data::LabelKind kind, const BuildOptions& options) {
  using data::LabelKind;
  const std::vector<std::string>& wanted = options.labels;
  if (wanted.empty()) return {stored, true, ""};
  const bool numbers = options.label_kind.value_or(kind) == LabelKind::kNumber;
  if (numbers != (kind == LabelKind::kNumber))
    return {wanted, false,
            numbers ? "the model has labels and the data numbers" : "the model gives numbers and the data has labels"};
  const std::string counts =
      "the model has " + std::to_string(stored.size()) + " labels and the data " + std::to_string(wanted.size());
  if (numbers && stored.size() != wanted.size()) return {wanted, false, counts};
  if (numbers) return {wanted, true, "it gives numbers, as the data has them"};
  const data::KnownLabels known(stored);
  std::vector<std::string> named = wanted;
  if (kind == LabelKind::kSeveral) data::sort_by_value(named);  // sorted names have 10 before 2
  const data::LabelMatch match = known.match(named);
  const std::set<int32_t> outputs(match.outputs.begin(), match.outputs.end());
  if (outputs.size() != stored.size())
    return {wanted, false,
            match.outputs.empty() && stored.size() == wanted.size() ? match.how : counts + " (" + known.text() + ")"};
  const bool ordered = std::is_sorted(match.outputs.begin(), match.outputs.end());
  const std::string reason = (match.how.empty() ? "its labels are those of the data" : match.how) +
                             (ordered ? std::string() : ", in the model's order: " + known.text());
  if (!known.are_placeholders()) return {stored, true, reason};
  std::vector<std::string> names(stored.size());
  for (size_t i = 0; i < wanted.size(); ++i) names[static_cast<size_t>(match.outputs[i])] = named[i];
  return {names, true, reason};
}

void require_one_label(const std::string& what, const BuildOptions& options) {
  TERN_CHECK(options.label_kind.value_or(data::LabelKind::kOne) == data::LabelKind::kOne, what,
             ": this model gives each input one label; several labels or numbers are for distilbert and bert");
}

void load_weights(Model& model, const std::string& path, const PublicWeights& weights, const BuildOptions& options,
                  const HeadChoice& head) {
  FromCheckpointOptions rules{
      .optional_prefixes = {}, .ignored_prefixes = weights.ignored_prefixes, .model = weights.model};
  if (options.allow_new_head || options.encoder_only) rules.optional_prefixes = weights.head_prefixes;
  const StateView all = model.state_dict();
  StateView found = from_checkpoint_names(weights.names ? *weights.names : own_names(model), all, weights.tensors,
                                          weights.file.path, rules);
  const auto labels = std::ssize(model.labels());
  if (!head.keeps && options.allow_new_head)
    std::erase_if(found, [&](const NamedTensor& entry) {
      const auto begins = [&](const std::string& prefix) { return entry.name.starts_with(prefix); };
      return std::any_of(weights.head_prefixes.begin(), weights.head_prefixes.end(), begins) &&
             entry.tensor.dim() > 0 && entry.tensor.size(0) == labels;
    });
  model.load_state_dict(found, {.strict = false});
  verify_files_of(weights.file.tensors);
  if (!options.log || options.encoder_only) return;
  if (found.size() < all.size())
    options.log(path + ": a new classification head for " + std::to_string(labels) +
                (labels == 1 ? " label" : " labels") +
                " is initialized: " + (head.keeps ? "the file has none, or only a part of one" : head.reason));
  else if (!head.keeps)
    options.log(path + ": the labels get other names, the head is kept");
  else if (!head.reason.empty() && options.allow_new_head)
    options.log(path + ": the head is kept: " + head.reason);
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
