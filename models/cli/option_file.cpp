#include "tern/models/cli/option_file.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "tern/core/check.h"
#include "tern/core/io/input_file.h"
#include "tern/models/cli/arguments.h"

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
  static constexpr int kMost = 16;

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
    if (depth_ <= kMost && dots_ < kMost) return;
    throw UsageError(detail::concatenate(path_, ":", line_, ": nested deeper than ", kMost,
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

}  // namespace

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

}  // namespace tern::cli
