#pragma once
// Maps label names to ids while a set is read, and the labels of data to those of a model.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tern/data/files/text.h"

namespace tern::data {

/// The order of a data set's label names: by bytes, or by value if all are integers.
enum class LabelOrder : uint8_t { kByName, kIntegersByValue };

/// How the labels of a data set are those of a model.
struct LabelMatch {
  std::vector<int32_t> outputs;  // of each label the model's output; empty: they are not the model's labels
  /// One line: how names that differ were matched, or why there is no match. Empty where all names are equal.
  std::string how;
};

/// The labels of a model, in the order of its outputs. The one rule by which labels of data are matched with them, in
/// training from a model, in evaluation and wherever else a set gets known labels:
///   1. a name is the output's of the same name;
///   2. else the only output's whose name is the same without letter case, where neg and pos are negative and positive;
///   3. else, where no output's name is an integer, an integer is the number of an output.
/// For outputs without names (LABEL_0, LABEL_1, ...) the third rule holds if every label is such an integer and the
/// labels are in the order of their values; else as many labels as there are outputs are theirs in order.
class KnownLabels {
 public:
  explicit KnownLabels(std::vector<std::string> names);

  const std::vector<std::string>& names() const { return names_; }
  bool empty() const { return names_.empty(); }
  /// Whether the names are LABEL_0, LABEL_1, ...: those of a model that was saved without names.
  bool are_placeholders() const { return placeholders_; }
  /// The output of one label by the three rules; nothing if there is none.
  std::optional<int32_t> find(const std::string& label) const;
  /// Whether the name is that of two outputs, so that it stands for none.
  bool names_several(const std::string& label) const {
    const auto same = by_name_.find(label);
    return same != by_name_.end() && same->second < 0;
  }
  /// The outputs of all labels of a data set, in its own order. Several may have the same output.
  LabelMatch match(const std::vector<std::string>& labels) const;
  /// "neg, pos", cut to the first twenty names.
  std::string text() const;

 private:
  enum class Rule : uint8_t { kSameName, kWithoutCase, kNumber };
  struct Found {
    int32_t output;
    Rule rule;
  };
  std::optional<Found> find_by_rule(const std::string& label) const;
  LabelMatch match_in_order(const std::vector<std::string>& labels) const;

  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> by_name_, by_key_;  // -1 where two outputs have the name or key
  bool placeholders_ = false, has_integers_ = false;
};

/// Assigns ids to labels by the rules of load_text (text_set.h).
class LabelIndex {
 public:
  /// `log`: gets one line where the labels of the data are spelt otherwise than the known ones.
  explicit LabelIndex(std::vector<std::string> known, std::function<void(const std::string&)> log = {});

  /// The id of a label as written in the data (surrounding space is ignored). It counts first appearances until
  /// finish(). Throws Error if the label is empty, not UTF-8 or not one of the known ones.
  int32_t id(std::string_view label, const Location& where);

  /// Renumbers the ids and returns the names: the known ones, or those of the data in the given order. Throws Error
  /// that names both lists where the data's labels are not the known ones.
  std::vector<std::string> finish(std::string_view source, std::vector<int32_t>& labels,
                                  LabelOrder order = LabelOrder::kIntegersByValue);

 private:
  KnownLabels known_;
  std::function<void(const std::string&)> log_;
  std::vector<std::string> names_;  // in order of first appearance
  std::unordered_map<std::string, int32_t> ids_;
};

/// A set whose reader gave the labels their ids, with those of a trained model (options.known_labels) instead, if any.
template <class Set, class Options>
Set with_known_labels(Set set, const Options& options, LabelOrder order) {
  if (options.known_labels.empty()) return set;
  LabelIndex index(options.known_labels, options.log);
  std::vector<int32_t> ids;
  for (const std::string& name : set.label_names) ids.push_back(index.id(name, {set.name}));
  const std::vector<std::string> names = index.finish(set.name, ids, order);
  set.renumber(ids, names);
  return set;
}

}  // namespace tern::data
