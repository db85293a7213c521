#pragma once
// The lines of a .jsonl file.

#include <cstdint>
#include <string>
#include <string_view>

#include "tern/core/io/input_file.h"
#include "tern/data/files/text.h"

namespace tern::data {

/// Lines end with LF, CRLF or CR, none of which JSON has within a string. A UTF-8 byte order mark is skipped. Errors
/// name file and line: those of InputStream and next_line.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path) : path_(path), in_(path) {}
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  /// The next line that is not blank, as well-formed UTF-8; false at the end.
  bool next(std::string& line);
  /// The place of the last line, valid as long as this object is.
  Location where() const { return {path_, number_}; }
  /// Ill-formed sequences that were replaced by U+FFFD so far.
  int64_t invalid_utf8() const { return invalid_utf8_; }

 private:
  const std::string path_;
  InputStream in_;
  std::string buffer_;     // up to a LF
  std::string_view rest_;  // of the buffer
  int64_t number_ = 0, invalid_utf8_ = 0;
};

}  // namespace tern::data
