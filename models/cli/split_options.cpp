#include "tern/models/cli/split_options.h"

#include <string_view>

#include "tern/models/cli/options.h"

namespace tern::cli {
namespace {

/// True for so many parts of these characters, a slash between two.
bool are_parts(std::string_view text, int count, std::string_view characters) {
  for (; count > 1; --count) {
    const size_t slash = text.find('/');
    if (slash == text.npos || slash == 0 || text.substr(0, slash).find_first_not_of(characters) != text.npos)
      return false;
    text.remove_prefix(slash + 1);
  }
  return !text.empty() && text.find_first_not_of(characters) == text.npos;
}

}  // namespace

bool is_split(const std::string& text) {
  return text == "official" || text == "all" || are_parts(text, 3, "0123456789.");
}

bool is_fold(const std::string& text) { return are_parts(text, 2, "0123456789"); }

void check_one_of_split_and_fold(const std::string& split, const std::string& fold) {
  if (!split.empty() && !fold.empty()) throw UsageError("--split and --fold exclude each other");
}

}  // namespace tern::cli
