#include "tern/data/datasets/label_index.h"

#include <algorithm>

#include "tern/core/io/pickle.h"
#include "tern/data/files/utf8.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

/// Two names with the same key are the same label: letter case is ignored, and "neg" and "pos" are expanded.
std::string label_key(std::string_view name) {
  std::string key = lower_ascii(name);
  if (key == "neg") return "negative";
  if (key == "pos") return "positive";
  return key;
}

}  // namespace

KnownLabels::KnownLabels(std::vector<std::string> names) : names_(std::move(names)) {
  int64_t value = 0;
  placeholders_ = !names_.empty();
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto output = static_cast<int32_t>(i);
    placeholders_ = placeholders_ && names_[i] == "LABEL_" + std::to_string(i);
    has_integers_ = has_integers_ || parse_integer(names_[i], value);
    if (const auto [place, added] = by_name_.emplace(names_[i], output); !added) place->second = -1;
    if (const auto [place, added] = by_key_.emplace(label_key(names_[i]), output); !added) place->second = -1;
  }
}

std::optional<KnownLabels::Found> KnownLabels::find_by_rule(const std::string& label) const {
  if (const auto same = by_name_.find(label); same != by_name_.end() && same->second >= 0)
    return Found{same->second, Rule::kSameName};
  const auto near = by_key_.find(label_key(label));
  if (near != by_key_.end() && near->second >= 0) return Found{near->second, Rule::kWithoutCase};
  int64_t value = 0;
  if (has_integers_ || !parse_integer(label, value) || value < 0 || value >= std::ssize(names_)) return std::nullopt;
  return Found{static_cast<int32_t>(value), Rule::kNumber};
}

std::optional<int32_t> KnownLabels::find(const std::string& label) const {
  const auto found = find_by_rule(label);
  return found ? std::optional(found->output) : std::nullopt;
}

LabelMatch KnownLabels::match(const std::vector<std::string>& labels) const {
  LabelMatch match;
  std::vector<std::string> without_case, by_number;
  int64_t last_value = -1;
  for (const std::string& label : labels) {
    const auto found = find_by_rule(label);
    const bool number = found && found->rule == Rule::kNumber;
    // A folder sorts 10 before 2: then the numbers are names, and the order counts.
    if (!found || (number && placeholders_ && found->output < last_value)) {
      if (placeholders_) return match_in_order(labels);
      return {{}, "the data's label \"" + label + "\" is none of the model's: " + text()};
    }
    match.outputs.push_back(found->output);
    if (found->rule == Rule::kSameName) continue;
    if (number) last_value = found->output;
    (number ? by_number : without_case).push_back(label + " = " + names_[static_cast<size_t>(found->output)]);
  }
  if (!without_case.empty()) match.how = "labels are matched without case: " + shown_names(without_case);
  if (!by_number.empty())
    match.how +=
        (match.how.empty() ? "" : "; ") + std::string("numbers are the model's outputs: ") + shown_names(by_number);
  return match;
}

LabelMatch KnownLabels::match_in_order(const std::vector<std::string>& labels) const {
  LabelMatch match;
  if (labels.size() != names_.size())
    return {{},
            "the data has the labels " + shown_names(labels) + ", but the model has " + std::to_string(names_.size()) +
                " outputs without names (" + text() +
                "), so that it is not known which is which; name them in config.json (id2label), or number the " +
                "labels from 0"};
  std::vector<std::string> pairs;
  for (size_t i = 0; i < labels.size(); ++i) {
    match.outputs.push_back(static_cast<int32_t>(i));
    pairs.push_back(labels[i] + " = " + names_[i]);
  }
  match.how = "the model's outputs have no names, so labels are matched in order: " + shown_names(pairs);
  return match;
}

std::string KnownLabels::text() const { return shown_names(names_); }

LabelIndex::LabelIndex(std::vector<std::string> known, std::function<void(const std::string&)> log)
    : known_(std::move(known)), log_(std::move(log)) {}

int32_t LabelIndex::id(std::string_view label, const Location& where) {
  const std::string name(trim(label));
  TERN_CHECK(!name.empty(), where, ": the label is empty");
  const auto found = ids_.find(name);
  if (found != ids_.end()) return found->second;
  std::string valid;
  TERN_CHECK(append_valid_utf8(name, valid) == 0, where, ": the label is not UTF-8, it reads \"", valid, "\"");
  const bool any = known_.empty() || known_.are_placeholders();
  TERN_CHECK(!known_.names_several(name), where, ": label \"", name,
             "\" is the name of two labels of the model, so which one is meant is not clear; give them names of their "
             "own in id2label of its config.json");
  TERN_CHECK(any || known_.find(name), where, ": unknown label \"", tern::detail::printable(name),
             "\"; the model has: ", known_.text());
  const auto id = static_cast<int32_t>(names_.size());
  names_.push_back(name);
  ids_.emplace(name, id);
  return id;
}

std::vector<std::string> LabelIndex::finish(std::string_view source, std::vector<int32_t>& labels, LabelOrder order) {
  std::vector<std::string> sorted = names_;
  if (order != LabelOrder::kIntegersByValue || !sort_by_value(sorted)) std::sort(sorted.begin(), sorted.end());
  LabelMatch match;
  if (known_.empty()) {
    for (size_t i = 0; i < sorted.size(); ++i) match.outputs.push_back(static_cast<int32_t>(i));
  } else {
    match = known_.match(sorted);
    TERN_CHECK(match.outputs.size() == sorted.size(), source, ": ", match.how);
    if (log_ && !match.how.empty()) log_(std::string(source) + ": " + match.how);
  }
  std::vector<int32_t> ids(names_.size());
  for (size_t i = 0; i < sorted.size(); ++i) ids[ids_.at(sorted[i])] = match.outputs[i];
  for (int32_t& label : labels) label = ids[label];
  return known_.empty() ? sorted : known_.names();
}

}  // namespace tern::data
