#include "tern/models/cli/options/option_file.h"

#include <toml++/toml.h>
#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "tern/core/io/input_file.h"
#include "tern/core/io/pickle.h"
#include "tern/kernels/base/check.h"

namespace tern::cli {
namespace {

/// Looks at a TOML text before it is parsed: the library builds, visits and destroys nested values by recursion, and a
/// file must not decide how deep. Reads no more of the grammar than strings, comments and what nests.
class NestingCheck {
 public:
  NestingCheck(std::string_view text, const std::string& path) : rest_(text), path_(path) {}

  void run() {
    while (!rest_.empty()) {
      const char c = rest_[0];
      if (c == '"' || c == '\'') {
        skip_string(c);
        continue;
      }
      if (c == '#') rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size() - 1));
      count(rest_[0]);
      rest_.remove_prefix(1);
    }
  }

 private:
  static constexpr int kMax = 16;

  void count(char c) {
    if (c == '.')
      ++dots_;
    else if (c == '[' || c == '{')
      ++depth_;
    else if (c == ']' || c == '}')
      depth_ = std::max(depth_ - 1, 0);
    else if (c == '\n')
      ++line_;
    if (std::string_view("[]{}=,\n").find(c) != std::string_view::npos) dots_ = 0;  // a key or a number ends
    if (depth_ <= kMax && dots_ < kMax) return;
    throw UsageError(detail::concatenate(path_, ":", line_, ": nested deeper than ", kMax,
                                         " levels; an option file holds lines such as: epochs = 5"));
  }

  /// A text of one line, or of several between triple quotes.
  void skip_string(char quote) {
    const std::string triple(3, quote);
    const bool lines = rest_.starts_with(triple);
    rest_.remove_prefix(lines ? 3 : 1);
    while (!rest_.empty()) {
      if (lines ? rest_.starts_with(triple) : rest_[0] == quote || rest_[0] == '\n') break;
      const size_t width = quote == '"' && rest_[0] == '\\' && rest_.size() > 1 ? 2 : 1;
      line_ += std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(width), '\n');
      rest_.remove_prefix(width);
    }
    if (lines) {  // the text itself may end with two quotes
      const size_t run = std::min(rest_.find_first_not_of(quote), rest_.size());
      rest_.remove_prefix(std::min<size_t>(run, 5));
    } else if (!rest_.empty() && rest_[0] == quote) {
      rest_.remove_prefix(1);
    }
  }

  std::string_view rest_;
  const std::string& path_;
  int64_t line_ = 1;
  int depth_ = 0, dots_ = 0;
};

/// The table of the file, which may be one that the program was given open (InputKind::kStream). Throws UsageError with
/// file and line: it cannot be read, is not TOML, or is nested deeper than a few levels.
toml::table read_option_file(const std::string& path) {
  std::string text;
  try {
    append_file(path, text, InputKind::kStream);
  } catch (const Error& error) {
    throw UsageError(std::string("--config: ") + error.what());
  }
  NestingCheck(text, path).run();
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw UsageError(detail::concatenate(path, ":", error.source().begin.line, ": ", error.description()));
  }
}

/// The value of --config FILE or --config=FILE, or empty.
std::string config_path(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].starts_with("--config=")) return arguments[i].substr(9);
  }
  return {};
}

bool is_among(const std::vector<std::string>& arguments, const std::string& flag) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const std::string& a) { return a == flag || a.starts_with(flag + "="); });
}

std::string scalar_text(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return text->get();
  std::ostringstream out;
  if (const auto* integer = node.as_integer())
    out << integer->get();
  else if (const auto* number = node.as_floating_point())
    out << std::setprecision(17) << number->get();
  else
    throw UsageError(where + ": expected a string, a number or true / false");
  return out.str();
}

/// The words of the command line that stand for an entry of the file.
std::vector<std::string> words_for(const OptionRow& row, const toml::node& node, const std::string& where) {
  const auto* const boolean = node.as_boolean();
  if (row.is_flag() != (boolean != nullptr))
    throw UsageError(where + (row.is_flag() ? " is true or false" : " takes a value, not true or false"));
  if (const auto* const array = node.as_array(); array && row.is_list()) {
    std::vector<std::string> words;
    for (const toml::node& entry : *array) {
      words.push_back(row.spec.name + "=" + scalar_text(entry, where));
      if (words.back().ends_with('=')) throw empty_value(row, where);
    }
    return words;
  }
  if (!boolean) {
    const std::string text = scalar_text(node, where);
    if (text.empty()) throw empty_value(row, where);
    return {row.spec.name + "=" + text};
  }
  return boolean->get() ? std::vector{row.spec.name} : std::vector<std::string>{};
}

}  // namespace

std::vector<std::string> merge_option_file(const Options& options, const std::string& command,
                                           const std::vector<std::string>& arguments) {
  const std::string path = config_path(arguments);
  if (path.empty()) return arguments;
  std::vector<std::string> merged;
  for (const auto& [raw_key, node] : read_option_file(path)) {
    std::string key(raw_key.str());
    std::replace(key.begin(), key.end(), '_', '-');
    const std::string where = path + ": '" + tern::detail::printable(key) + "'";
    if (key == "config")
      throw UsageError(where + " names another file of options; give it on the command line instead");
    const OptionRow* const row = options.find("--" + key);
    if (!row) {
      const std::string near = meant_flag("--" + key, options.flags());
      throw UsageError(where + " is not an option of 'tern " + command + "'" +
                       (near.empty() ? "" : "; did you mean '" + near.substr(2) + "'?"));
    }
    const std::vector<std::string> words = words_for(*row, node, where);
    if (!is_among(arguments, row->spec.name)) merged.insert(merged.end(), words.begin(), words.end());
  }
  merged.insert(merged.end(), arguments.begin(), arguments.end());
  return merged;
}

}  // namespace tern::cli
