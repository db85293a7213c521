#pragma once
// Line input for predict and tokenize.

#include <cstdint>
#include <functional>
#include <string>

#include "tern/core/io/input_file.h"

namespace tern::cli {

/// The lines of a file or of standard input, without a trailing '\r'. The file must be a regular one, or one that the
/// program inherited open (InputKind::kStream). Errors name the file; one is that it is no text: it begins like an
/// image, an archive or the like, or a line of a file (not of standard input) holds a NUL byte.
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
  void require_text(const std::string& line) const;

  std::string name_;
  InputStream in_;
  bool is_file_;
  int64_t number_ = 0;
};

/// Calls use(text, pauses) for each text of a file of predict and tokenize. Of a .csv, .tsv or .jsonl file these are
/// the texts that --data would read; of another file, and of standard input ("-"), the lines, or with `jsonl` the
/// strings under "text" in lines that are JSON objects, where blank lines are skipped. pauses: LineInput::pauses().
void for_each_text(const std::string& file, bool jsonl,
                   const std::function<void(const std::string& text, bool pauses)>& use);

/// The string under `key` in a line that is a JSON object. Errors begin with `place`.
std::string string_in(const std::string& line, const std::string& key, const std::string& place);

}  // namespace tern::cli
