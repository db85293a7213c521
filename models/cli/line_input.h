#pragma once
// The lines that predict and tokenize read.

#include <cstdint>
#include <string>

#include "tern/core/io/input_file.h"

namespace tern::cli {

/// A file's lines, or those of standard input; a '\r' at their end is taken off. A file is a regular one, or one that
/// the program was given open (InputKind::kStream). Errors name the file.
class LineInput {
 public:
  /// "-": standard input.
  explicit LineInput(const std::string& file);

  /// False at the end.
  bool next(std::string& line);
  /// Nothing more is there at this moment: someone types, or a pipe pauses. What was read so far is to be answered.
  bool pauses() { return in_.rdbuf()->in_avail() <= 0; }
  /// "FILE:LINE" of the last line.
  std::string place() const { return name_ + ":" + std::to_string(number_); }

 private:
  std::string name_;
  InputStream in_;
  int64_t number_ = 0;
};

/// The string under `key` in a line that is a JSON object. Errors begin with `place`.
std::string string_in(const std::string& line, const std::string& key, const std::string& place);

}  // namespace tern::cli
