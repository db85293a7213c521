#include "tern/data/datasets/labelled_set.h"

#include <algorithm>
#include <filesystem>

#include "tern/data/datasets/label_index.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

namespace fs = std::filesystem;

void LabelledSet::renumber(const std::vector<int32_t>& ids, const std::vector<std::string>& names) {
  for (int32_t& label : labels) label = ids[static_cast<size_t>(label)];
  label_names = names;
}

void LabelledSet::order_labels(const std::vector<std::string>& order) {
  const LabelMatch match = KnownLabels(order).match(label_names);
  TERN_CHECK(match.outputs.size() == label_names.size(), name, ": ", match.how);
  renumber(match.outputs, order);
}

int64_t LabelledSet::count(Part part, size_t label) const {
  int64_t rows = 0;
  for (size_t row = 0; row < labels.size(); ++row)
    rows += (parts.empty() ? Part::kTrain : parts[row]) == part && labels[row] == static_cast<int32_t>(label);
  return rows;
}

void LabelledSet::add_parts(const std::string& folder, const std::function<void(const std::string& folder)>& add) {
  // In the order in which they are read.
  constexpr std::pair<const char*, Part> kFolders[] = {{"train", Part::kTrain},
                                                       {"val", Part::kValidation},
                                                       {"valid", Part::kValidation},
                                                       {"validation", Part::kValidation},
                                                       {"test", Part::kTest}};
  bool parted = false;
  for (const auto& [name, part] : kFolders) {
    const fs::path below = fs::path(folder) / name;
    std::error_code ignored;
    if (!fs::is_directory(below, ignored)) continue;
    parted = true;
    add(below.string());
    parts.resize(labels.size(), part);
  }
  if (!parted) add(folder);
  // Training rows only are not a split.
  if (std::count(parts.begin(), parts.end(), Part::kTrain) == size()) parts.clear();
}

}  // namespace tern::data
