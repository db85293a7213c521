#pragma once
// Line input for predict and tokenize.

#include <cstdint>
#include <string>

#include "tern/core/io/input_file.h"

namespace tern::cli {

/// The lines of a file or of standard input, without a trailing '\r'. The file must be a regular one, or one that the
/// program inherited open (InputKind::kStream). Errors name the file.
class LineInput {
 public:
  /// "-": standard input.
  explicit LineInput(const std::string& file);

  /// False at the end.
  bool next(std::string& line);
  /// True if no more input is available at the moment (terminal or pipe): results for the lines so far are due.
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
