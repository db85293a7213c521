#include "tern/data/datasets/delimited.h"

#include <algorithm>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr size_t kBufferBytes = 1 << 16;
// Without this limit a quote that is never closed would read the rest of the file into one field.
constexpr size_t kMaxFieldBytes = size_t{1} << 28;

}  // namespace

DelimitedReader::DelimitedReader(std::istream& in, char delimiter, std::string name)
    : in_(in), delimiter_(delimiter), name_(std::move(name)) {}

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
    if (buffer_.starts_with("\xef\xbb\xbf")) position_ = 3;
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
    const auto stop = std::find_if(begin, buffer_.end(), [&](char c) { return c == delimiter_ || c == '\n'; });
    append_run(field, static_cast<size_t>(stop - begin));
    if (position_ == buffer_.size()) continue;
    if (buffer_[position_++] == delimiter_) return Ending::kField;
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
  if (peek() == delimiter_) {
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
  while (peek() >= 0) {
    record_line_ = line_;
    size_t count = 0;
    bool quoted = false;
    for (Ending ending = Ending::kField; ending == Ending::kField; ++count) {
      if (count == fields.size()) fields.emplace_back();
      fields[count].clear();
      quoted = peek() == '"';
      ending = quoted ? read_quoted(fields[count], count) : read_unquoted(fields[count]);
    }
    fields.resize(count);
    const bool blank = count == 1 && !quoted && fields[0].empty();
    if (!blank) return true;
  }
  return false;
}

}  // namespace tern::data
