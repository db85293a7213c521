#pragma once
// Comma- or tab-separated records (RFC 4180).

#include <istream>
#include <string>
#include <vector>

namespace tern::data {

/// Reads records one at a time; memory is bounded by one record and a fixed buffer. A field in double quotes may
/// contain the delimiter, line ends and doubled quotes; a quote inside an unquoted field is an ordinary character.
/// Records end at LF or CRLF, the last one also at the end of the file. Empty lines and a UTF-8 byte order mark are
/// skipped. Errors name file and line: a quoted field that is never closed, text after a closing quote, UTF-16, a
/// failed read.
class DelimitedReader {
 public:
  /// `name` appears in messages. The stream must outlive the reader.
  DelimitedReader(std::istream& in, char delimiter, std::string name);

  /// The next record's fields; false at the end.
  bool next(std::vector<std::string>& fields);

  /// Line number, from 1, at which the last record began.
  int64_t line() const { return record_line_; }

 private:
  enum class Ending { kField, kRecord, kFile };

  bool refill();
  int peek() { return position_ == buffer_.size() && !refill() ? -1 : static_cast<unsigned char>(buffer_[position_]); }
  Ending read_unquoted(std::string& field);
  Ending read_quoted(std::string& field, size_t column);
  void append_run(std::string& field, size_t length);

  std::istream& in_;
  char delimiter_;
  std::string name_;
  std::string buffer_;
  size_t position_ = 0;
  bool started_ = false;
  int64_t line_ = 1;
  int64_t record_line_ = 0;
};

}  // namespace tern::data
