#pragma once
// Comma- or tab-separated records (RFC 4180), and what a file's own rules are.

#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <vector>

#include "tern/core/io/input_file.h"

namespace tern::data {

/// How records are written.
struct Dialect {
  char delimiter = ',';
  /// A field that begins with a double quote ends at the next single one; otherwise quotes are ordinary characters.
  bool quotes = true;
  /// A CR ends a line too, as in files of old Macintosh programs.
  bool carriage_returns = false;
  /// The first line, "sep=;", names the separator and is no record.
  bool separator_line = false;
};

/// Reads records one at a time; memory is bounded by one record and a fixed buffer. A field in double quotes may
/// contain the delimiter, line ends and doubled quotes; a quote inside an unquoted field is an ordinary character.
/// Records end at LF or CRLF, the last one also at the end of the file. Empty lines and a UTF-8 byte order mark are
/// skipped. Errors name file and line: a quoted field that is never closed, text after a closing quote, UTF-16, a
/// failed read.
class DelimitedReader {
 public:
  /// `name` appears in messages. The stream must outlive the reader.
  DelimitedReader(std::istream& in, const Dialect& dialect, std::string name);

  /// The next record's fields; false at the end.
  bool next(std::vector<std::string>& fields);

  /// Line numbers, from 1, at which the last record began and ended.
  int64_t line() const { return record_line_; }
  int64_t last_line() const { return last_line_; }

 private:
  enum class Ending { kField, kRecord, kFile };

  bool refill();
  bool read_record(std::vector<std::string>& fields);
  int peek() { return position_ == buffer_.size() && !refill() ? -1 : static_cast<unsigned char>(buffer_[position_]); }
  Ending read_unquoted(std::string& field);
  Ending read_quoted(std::string& field, size_t column);
  void append_run(std::string& field, size_t length);

  std::istream& in_;
  Dialect dialect_;
  std::string name_;
  std::string buffer_;
  size_t position_ = 0;
  bool started_ = false;
  int64_t line_ = 1;
  int64_t record_line_ = 0, last_line_ = 0;
};

/// One line of a log.
using LogLine = std::function<void(const std::string&)>;

/// The records of a .csv or .tsv file, by the rules that the file shows:
///   separator  a comma, in a .tsv file a tab; where the header has none, the semicolon (as Excel writes in many
///              languages), comma or tab that it does have. A first line "sep=;" names it and is no record
///   line ends  LF and CRLF; also CR where the header ends with it
///   quotes     those of RFC 4180; in a file with tabs, where many writers do not quote (GLUE's), they are
///              - quotes, if each field that begins with one is a whole quoted field within its line
///              - otherwise quotes, if every record then has as many fields as the header, and none is made of several
///                lines that have as many too
///              - otherwise ordinary characters: no rows are merged
/// `log`, if there is one, gets a line for another separator, for the quotes of a file with tabs, and for a file with
/// commas each of whose lines is a row by itself, although a quote joins some of them.
class DelimitedFile {
 public:
  /// Throws what InputStream and DelimitedReader throw.
  explicit DelimitedFile(const std::string& path, const LogLine& log = {});

  const Dialect& dialect() const { return dialect_; }
  bool next(std::vector<std::string>& fields) { return reader_.next(fields); }
  int64_t line() const { return reader_.line(); }

 private:
  Dialect dialect_;
  InputStream in_;
  DelimitedReader reader_;
};

}  // namespace tern::data
