#include "tern/data/files/delimited.h"

#include <algorithm>
#include <string_view>

#include "tern/data/files/text.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr size_t kBufferBytes = 1 << 16;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
// Without this limit a quote that is never closed would read the rest of the file into one field.
constexpr size_t kMaxFieldBytes = size_t{1} << 28;

/// The first line of a file and how it ends; nothing past its first bytes is read.
struct FirstLine {
  std::string text;  // without what is in double quotes, and without a byte order mark
  bool carriage_return = false;
};

FirstLine first_line(const std::string& path) {
  InputStream in(path);
  std::string bytes(kBufferBytes, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in.gcount()));
  FirstLine line;
  bool quoted = false;
  for (size_t i = bytes.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; i < bytes.size(); ++i) {
    if (bytes[i] == '"') quoted = !quoted;
    if (quoted) continue;
    if (bytes[i] == '\n' || bytes[i] == '\r') {
      line.carriage_return = bytes[i] == '\r' && i + 1 < bytes.size() && bytes[i + 1] != '\n';
      break;
    }
    line.text += bytes[i];
  }
  return line;
}

const char* word_of(char delimiter) {
  switch (delimiter) {
    case ',':
      return "commas";
    case ';':
      return "semicolons";
    case '\t':
      return "tabs";
    default:
      return "the character that its first line names";
  }
}

/// A whole field as RFC 4180 writes it: between quotes, those inside of it doubled.
bool is_quoted_field(std::string_view field) {
  if (field.size() < 2 || !field.ends_with('"')) return false;
  for (size_t i = 1; i + 1 < field.size(); ++i) {
    if (field[i] != '"') continue;
    if (i + 2 >= field.size() || field[++i] != '"') return false;
  }
  return true;
}

/// What a file is when each line is a record and quotes are ordinary characters.
struct LineCount {
  size_t columns = 0;
  bool fits = true;         // every line has the fields of the first
  bool whole = true;        // every field that begins with a quote is_quoted_field()
  int64_t quoted = 0;       // fields that begin with a quote
  int64_t first_loose = 0;  // the line of the first one that is not whole
  std::vector<bool> full;   // by line number: it has the fields of the first line
};

/// `stop_early`: at the first line that does not fit.
LineCount count_lines(const std::string& path, Dialect dialect, bool stop_early) {
  dialect.quotes = false;
  InputStream in(path);
  DelimitedReader reader(in, dialect, path);
  LineCount count;
  std::vector<std::string> fields;
  while (reader.next(fields)) {
    if (count.columns == 0) count.columns = fields.size();
    count.full.resize(static_cast<size_t>(reader.line()) + 1);
    count.full.back() = fields.size() == count.columns;
    count.fits = count.fits && count.full.back();
    if (stop_early && !count.fits) break;
    for (const std::string& field : fields) {
      if (!field.starts_with('"')) continue;
      ++count.quoted;
      if (is_quoted_field(field)) continue;
      if (count.whole) count.first_loose = reader.line();
      count.whole = false;
    }
  }
  return count;
}

/// Whether the records by RFC 4180 have the header's number of fields, and none is made of lines that have it too.
bool fits_quoted(const std::string& path, const Dialect& dialect, const LineCount& lines) {
  InputStream in(path);
  DelimitedReader reader(in, dialect, path);
  std::vector<std::string> fields;
  size_t columns = 0;
  try {
    while (reader.next(fields)) {
      if (columns == 0) columns = fields.size();
      int64_t full = 0;
      for (int64_t line = reader.line(); line <= reader.last_line(); ++line)
        full += line < std::ssize(lines.full) && lines.full[static_cast<size_t>(line)];
      if (fields.size() != columns || full > 1) return false;
    }
  } catch (const Error&) {
    return false;
  }
  return true;
}

Dialect find_dialect(const std::string& path, const LogLine& log) {
  const auto say = [&](const auto&... words) {
    if (log) log(detail::concatenate(path, ": ", words...));
  };
  const FirstLine first = first_line(path);
  const char usual = lower_ascii(path).ends_with(".tsv") ? '\t' : ',';
  Dialect dialect{.delimiter = usual, .carriage_returns = first.carriage_return};
  if (first.text.size() == 5 && first.text.starts_with("sep=")) {
    dialect.delimiter = first.text.back();
    dialect.separator_line = true;
  } else if (first.text.find(usual) == std::string::npos) {
    for (const char other : {',', '\t', ';'})
      if (first.text.find(other) != std::string::npos) dialect.delimiter = other;
  }
  if (dialect.delimiter != usual) say("the fields are separated by ", word_of(dialect.delimiter));
  const bool tabs = dialect.delimiter == '\t';
  const LineCount lines = count_lines(path, dialect, !tabs);
  if (lines.quoted == 0) return dialect;
  if (!tabs) {
    if (lines.fits && !lines.whole)
      say("a double quote that begins in line ", lines.first_loose,
          " joins lines each of which is a row by itself, or ",
          "is never closed; if it is part of the text, put the field into quotes and write it twice");
    return dialect;
  }
  dialect.quotes = lines.whole || fits_quoted(path, dialect, lines);
  if (dialect.quotes)
    say("fields in double quotes are read as quoted, without these quotes");
  else
    say("double quotes are part of the text (line ", lines.first_loose, " has one that opens no quoted field)");
  return dialect;
}

}  // namespace

DelimitedReader::DelimitedReader(std::istream& in, const Dialect& dialect, std::string name)
    : in_(in), dialect_(dialect), name_(std::move(name)) {}

bool DelimitedReader::refill() {
  buffer_.resize(kBufferBytes);
  in_.read(buffer_.data(), static_cast<std::streamsize>(kBufferBytes));
  buffer_.resize(static_cast<size_t>(in_.gcount()));
  position_ = 0;
  TERN_CHECK(!in_.bad(), name_, ":", line_, ": reading failed");
  if (!started_) {
    started_ = true;
    TERN_CHECK(!buffer_.starts_with("\xff\xfe") && !buffer_.starts_with("\xfe\xff"), name_,
               ": the file is UTF-16; save it as UTF-8");
    if (buffer_.starts_with(kByteOrderMark)) position_ = kByteOrderMark.size();
  }
  if (dialect_.carriage_returns) {
    for (size_t i = 0; i < buffer_.size(); ++i) {
      const int following = i + 1 < buffer_.size() ? buffer_[i + 1] : in_.peek();
      if (buffer_[i] == '\r' && following != '\n') buffer_[i] = '\n';
    }
  }
  return position_ < buffer_.size();
}

void DelimitedReader::append_run(std::string& field, size_t length) {
  field.append(buffer_, position_, length);
  position_ += length;
  TERN_CHECK(field.size() <= kMaxFieldBytes, name_, ":", record_line_, ": a field is longer than 256 MiB",
             " (is a double quote never closed?)");
}

DelimitedReader::Ending DelimitedReader::read_unquoted(std::string& field) {
  const auto drop_carriage_return = [&] {
    if (field.ends_with('\r')) field.pop_back();
  };
  while (peek() >= 0) {
    const auto begin = buffer_.begin() + static_cast<std::ptrdiff_t>(position_);
    const auto stop = std::find_if(begin, buffer_.end(), [&](char c) { return c == dialect_.delimiter || c == '\n'; });
    append_run(field, static_cast<size_t>(stop - begin));
    if (position_ == buffer_.size()) continue;
    if (buffer_[position_++] == dialect_.delimiter) return Ending::kField;
    ++line_;
    drop_carriage_return();
    return Ending::kRecord;
  }
  drop_carriage_return();
  return Ending::kFile;
}

DelimitedReader::Ending DelimitedReader::read_quoted(std::string& field, size_t column) {
  const int64_t opened = line_;
  ++position_;
  for (;;) {
    TERN_CHECK(peek() >= 0, name_, ":", opened, ": the quoted field that begins in this line (column ", column + 1,
               ") is never closed");
    const size_t stop = std::min(buffer_.find('"', position_), buffer_.size());
    line_ += std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(position_),
                        buffer_.begin() + static_cast<std::ptrdiff_t>(stop), '\n');
    append_run(field, stop - position_);
    if (position_ == buffer_.size()) continue;
    ++position_;
    if (peek() != '"') break;
    append_run(field, 1);
  }
  if (peek() == dialect_.delimiter) {
    ++position_;
    return Ending::kField;
  }
  if (peek() == '\r') ++position_;
  if (peek() < 0) return Ending::kFile;
  TERN_CHECK(peek() == '\n', name_, ":", line_, ": text after a closing quote (column ", column + 1,
             "); a double quote inside a quoted field is written twice");
  ++position_;
  ++line_;
  return Ending::kRecord;
}

bool DelimitedReader::next(std::vector<std::string>& fields) {
  if (dialect_.separator_line && !started_) read_record(fields);
  return read_record(fields);
}

bool DelimitedReader::read_record(std::vector<std::string>& fields) {
  while (peek() >= 0) {
    record_line_ = line_;
    size_t count = 0;
    bool quoted = false;
    Ending ending = Ending::kField;
    for (; ending == Ending::kField; ++count) {
      if (count == fields.size()) fields.emplace_back();
      fields[count].clear();
      quoted = dialect_.quotes && peek() == '"';
      ending = quoted ? read_quoted(fields[count], count) : read_unquoted(fields[count]);
    }
    last_line_ = ending == Ending::kRecord ? line_ - 1 : line_;
    fields.resize(count);
    const bool blank = count == 1 && !quoted && fields[0].empty();
    if (!blank) return true;
  }
  return false;
}

DelimitedFile::DelimitedFile(const std::string& path, const LogLine& log)
    : dialect_(find_dialect(path, log)), in_(path), reader_(in_, dialect_, path) {}

}  // namespace tern::data
