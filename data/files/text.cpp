#include "tern/data/files/text.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "tern/core/io/pickle.h"

namespace tern::data {

std::ostream& operator<<(std::ostream& out, const Location& location) {
  out << location.file;
  if (location.line > 0) out << ':' << location.line;
  return out;
}

bool parse_integer(std::string_view text, int64_t& value) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.size() > 18 || (digits[0] == '0' && text != "0")) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool sort_by_value(std::vector<std::string>& names) {
  const auto value_of = [](const std::string& name) {
    int64_t value = 0;
    return parse_integer(name, value) ? std::optional(value) : std::nullopt;
  };
  if (!std::all_of(names.begin(), names.end(), value_of)) return false;
  std::sort(names.begin(), names.end(),
            [&](const std::string& a, const std::string& b) { return value_of(a) < value_of(b); });
  return true;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::string counted(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::string shown_names(const std::vector<std::string>& names) {
  constexpr size_t kMax = 20;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(names.size(), kMax); ++i) shown.push_back(tern::detail::printable(names[i]));
  const std::string text = join(shown, ", ");
  return names.size() <= kMax ? text : text + ", ... (" + std::to_string(names.size()) + " in all)";
}

}  // namespace tern::data
