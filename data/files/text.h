#pragma once
// Short texts of files, for readers and their messages.

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace tern::data {

/// Where a row came from, for messages: "file:line", or the file alone when line is 0.
struct Location {
  std::string_view file;
  int64_t line = 0;
};
std::ostream& operator<<(std::ostream& out, const Location& location);

/// Parses a canonical decimal integer of at most 18 digits ("0", "-7", "12", not "01" or "1.0"); false if `text` is
/// none.
bool parse_integer(std::string_view text, int64_t& value);
/// Sorts names that are all integers by their values, and returns true; otherwise leaves them as they are.
bool sort_by_value(std::vector<std::string>& names);

/// `text` without leading and trailing ASCII space.
std::string_view trim(std::string_view text);
std::string lower_ascii(std::string_view text);
/// Names for a message: at most 20 of them, long ones shortened.
std::string shown_names(const std::vector<std::string>& names);
/// "1 row", "3 rows".
std::string counted(int64_t count, std::string_view noun);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace tern::data
