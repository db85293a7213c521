#include "tern/data/files/json_lines.h"

#include <algorithm>

#include "tern/data/files/utf8.h"

namespace tern::data {

bool JsonLines::next(std::string& line) {
  for (;;) {
    if (rest_.empty()) {
      if (!next_line(in_, buffer_, path_, number_ + 1)) return false;
      rest_ = buffer_;
      if (number_ == 0 && rest_.starts_with("\xef\xbb\xbf")) rest_.remove_prefix(3);
    }
    ++number_;
    const std::string_view part = rest_.substr(0, rest_.find('\r'));
    rest_.remove_prefix(std::min(part.size() + 1, rest_.size()));
    const std::string_view content = trim(part);
    if (content.empty()) continue;
    line.clear();
    invalid_utf8_ += append_valid_utf8(content, line);
    return true;
  }
}

}  // namespace tern::data
