#pragma once
// Line input for predict and tokenize.

#include <cstdint>
#include <functional>
#include <optional>
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

/// A text for predict or tokenize, or two that belong together.
struct GivenText {
  std::string text;
  std::optional<std::string> pair = {};
};

/// How the lines of a file that is no table, and of standard input, are read.
struct LineForm {
  bool jsonl = false;  // objects with a string "text" and maybe "text_pair"; blank lines are skipped
  bool pairs = false;  // two texts with a tab between them, objects with both strings
};

/// Calls use(text, pauses) for each text of a file of predict and tokenize. Of a .csv, .tsv or .jsonl file these are
/// the rows that --data would read; of another file, and of standard input ("-"), the lines. pauses:
/// LineInput::pauses(). Throws Error with the place for a line of another form, and for a table without pairs where
/// form.pairs asks for them.
void for_each_text(const std::string& file, const LineForm& form,
                   const std::function<void(const GivenText& text, bool pauses)>& use);

/// The string under `key` in a line that is a JSON object. Errors begin with `place`.
std::string string_in(const std::string& line, const std::string& key, const std::string& place);

}  // namespace tern::cli
