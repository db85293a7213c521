#pragma once
// Maps label names to ids while a text set is read.

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tern::data {

/// Where a row came from, for messages: "file:line", or the file alone when line is 0.
struct Location {
  std::string_view file;
  int64_t line = 0;
};
std::ostream& operator<<(std::ostream& out, const Location& location);

/// The order of a data set's label names: by bytes, or by value if all are integers.
enum class LabelOrder : uint8_t { kByName, kIntegersByValue };

/// Assigns ids to labels by the rules of load_text (text_set.h).
class LabelIndex {
 public:
  explicit LabelIndex(std::vector<std::string> known);

  /// The id of a label as written in the data (surrounding space is ignored). The id is final if the names are known,
  /// otherwise it counts first appearances until finish(). Throws Error if the label is empty, not UTF-8 or unknown.
  int32_t id(std::string_view label, const Location& where);

  /// Renumbers the ids in the given order of names (unless the names were known) and returns the names.
  std::vector<std::string> finish(std::string_view source, std::vector<int32_t>& labels,
                                  LabelOrder order = LabelOrder::kIntegersByValue);

 private:
  int32_t known_id(const std::string& label, const Location& where) const;

  std::vector<std::string> known_;
  bool placeholders_ = false;  // known_ is LABEL_0, LABEL_1, ...: only the number of labels is known
  bool known_integers_ = false;
  std::vector<std::string> names_;  // in order of first appearance
  std::unordered_map<std::string, int32_t> ids_;
};

/// A set whose reader gave the labels their ids, with those of a trained model instead; `known` is empty: unchanged.
template <class Set>
Set with_known_labels(Set set, const std::vector<std::string>& known, LabelOrder order) {
  if (known.empty()) return set;
  LabelIndex index(known);
  std::vector<int32_t> ids;
  for (const std::string& name : set.label_names) ids.push_back(index.id(name, {set.name}));
  const std::vector<std::string> names = index.finish(set.name, ids, order);
  set.renumber(ids, names);
  return set;
}

/// Parses a canonical decimal integer of at most 18 digits ("0", "-7", "12", not "01" or "1.0"); false if `text` is
/// none.
bool parse_integer(std::string_view text, int64_t& value);

/// `text` without leading and trailing ASCII space.
std::string_view trim(std::string_view text);
std::string lower_ascii(std::string_view text);
/// Names for a message: at most 20 of them, long ones shortened.
std::string shown_names(const std::vector<std::string>& names);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace tern::data
