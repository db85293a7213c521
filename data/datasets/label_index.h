#pragma once
// Label names to ids while a text set is read.

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

/// The order of names that a set itself brings: sorted by bytes, or, where all are integers, by value.
enum class LabelOrder : uint8_t { kByName, kIntegersByValue };

/// Ids of labels; the rules are load_text's (text_dataset.h).
class LabelIndex {
 public:
  explicit LabelIndex(std::vector<std::string> known);

  /// The id of a label as it is written in the data (space around it is ignored): final with known names, otherwise by
  /// first appearance until finish(). Error: empty, no UTF-8, or not known.
  int32_t id(std::string_view label, const Location& where);

  /// Puts ids in the given order of the names (unless names were known) and gives the names.
  std::vector<std::string> finish(std::string_view source, std::vector<int32_t>& labels,
                                  LabelOrder order = LabelOrder::kIntegersByValue);

 private:
  int32_t known_id(const std::string& label, const Location& where) const;

  std::vector<std::string> known_;
  bool placeholders_ = false;  // known_ is LABEL_0, LABEL_1, ...: only their number is known
  bool known_integers_ = false;
  std::vector<std::string> names_;  // by first appearance
  std::unordered_map<std::string, int32_t> ids_;
};

/// The value of a canonical decimal integer ("0", "-7", "12", not "01" or "1.0"); false if it is none of at most 18
/// digits.
bool parse_integer(std::string_view text, int64_t& value);

/// `text` without ASCII space at its ends.
std::string_view trim(std::string_view text);
std::string lower_ascii(std::string_view text);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace tern::data
