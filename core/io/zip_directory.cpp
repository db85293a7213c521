#include "tern/core/io/zip_directory.h"

#include <zlib.h>

#include <algorithm>
#include <numeric>

#include "tern/kernels/base/check.h"

namespace tern {
namespace {

constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kCentralBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50, kCentralMark = 0x02014b50,
                   kLocalMark = 0x04034b50;
constexpr uint64_t kIn64 = 0xffffffff;  // "the number is in the zip64 field"

}  // namespace

ZipDirectory::ZipDirectory(std::string path, const char* data, uint64_t bytes)
    : path_(std::move(path)), data_(data), bytes_(bytes) {
  const End end = read_end();
  // Checked before memory is reserved: every entry needs this many bytes of the directory.
  TERN_CHECK(end.entries <= end.bytes / kCentralBytes, path_, ": the zip directory claims ", end.entries,
             " entries in ", end.bytes, " bytes");
  std::vector<uint64_t> headers;
  uint64_t at = end.begin;
  for (uint64_t i = 0; i < end.entries; ++i) at = read_entry(at, end.begin + end.bytes, headers);
  for (size_t i = 0; i < entries_.size(); ++i) place(entries_[i], headers[i], end.begin);
  check_overlaps(headers);
  std::sort(entries_.begin(), entries_.end(), [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  for (size_t i = 1; i < entries_.size(); ++i)
    TERN_CHECK(entries_[i].name != entries_[i - 1].name, path_, ": the zip archive has two entries named '",
               entries_[i].name, "'");
}

/// Reads a little-endian number that the caller has checked to be inside the file.
uint64_t ZipDirectory::number(uint64_t at, int width) const {
  uint64_t value = 0;
  for (int i = width - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(data_[at + static_cast<uint64_t>(i)]);
  return value;
}

/// Only a comment of at most 65,535 bytes follows the end record.
uint64_t ZipDirectory::find_end() const {
  for (uint64_t comment = 0; comment <= 0xffff && comment + kEndBytes <= bytes_; ++comment) {
    const uint64_t at = bytes_ - kEndBytes - comment;
    if (number(at, 4) == kEndMark && number(at + 20, 2) == comment) return at;
  }
  fail(path_, ": the zip archive has no directory at its end: truncated, or still being written");
}

ZipDirectory::End ZipDirectory::read_end() const {
  const uint64_t at = find_end();
  TERN_CHECK(number(at + 4, 2) == 0 || number(at + 4, 2) == 0xffff, path_,
             ": zip archives in several parts are not read");
  End end{number(at + 10, 2), number(at + 16, 4), number(at + 12, 4)};
  uint64_t limit = at;
  if (at >= kLocatorBytes && number(at - kLocatorBytes, 4) == kLocatorMark) {
    limit = at - kLocatorBytes;
    end = read_end64(limit, end);
  }
  TERN_CHECK(end.begin <= limit && end.bytes <= limit - end.begin, path_, ": the zip directory of ", end.bytes,
             " bytes at byte ", end.begin, " is not inside the file of ", bytes_, " bytes");
  return end;
}

ZipDirectory::End ZipDirectory::read_end64(uint64_t locator, End end) const {
  const uint64_t at = number(locator + 8, 8);
  TERN_CHECK(locator >= kEnd64Bytes && at <= locator - kEnd64Bytes && number(at, 4) == kEnd64Mark, path_,
             ": the zip64 end record is not where its locator says");
  if (end.entries == 0xffff) end.entries = number(at + 32, 8);
  if (end.bytes == kIn64) end.bytes = number(at + 40, 8);
  if (end.begin == kIn64) end.begin = number(at + 48, 8);
  return end;
}

/// Appends the entry of the directory record at `at` and its local header's offset; returns the next record's offset.
uint64_t ZipDirectory::read_entry(uint64_t at, uint64_t end, std::vector<uint64_t>& headers) {
  TERN_CHECK(end - at >= kCentralBytes && number(at, 4) == kCentralMark, path_,
             ": the zip directory is damaged at byte ", at);
  const uint64_t name = number(at + 28, 2), extra = number(at + 30, 2), comment = number(at + 32, 2);
  const uint64_t next = at + kCentralBytes + name + extra + comment;
  TERN_CHECK(next <= end, path_, ": the zip directory is damaged at byte ", at);
  ZipEntry entry;
  entry.name = {data_ + at + kCentralBytes, name};
  entry.encrypted = (number(at + 8, 2) & 1) != 0;
  entry.method = static_cast<uint16_t>(number(at + 10, 2));
  entry.crc = static_cast<uint32_t>(number(at + 16, 4));
  uint64_t wide[] = {number(at + 24, 4), number(at + 20, 4), number(at + 42, 4)};  // plain size, stored size, header
  const uint64_t last = at + kCentralBytes + name + extra;
  for (uint64_t field = last - extra; last - field >= 4;) {
    const uint64_t kind = number(field, 2), size = number(field + 2, 2);
    field += 4;
    TERN_CHECK(size <= last - field, path_, ": entry '", entry.name, "' has a damaged extra field");
    uint64_t value = field;
    for (uint64_t& w : wide)
      if (kind == 1 && w == kIn64 && field + size - value >= 8) {
        w = number(value, 8);
        value += 8;
      }
    field += size;
  }
  TERN_CHECK(entry.method != 0 || wide[0] == wide[1], path_, ": entry '", entry.name, "' is stored in ", wide[1],
             " bytes but has ", wide[0]);
  entry.plain_bytes = wide[0];
  entry.bytes = wide[1];
  headers.push_back(wide[2]);
  entries_.push_back(entry);
  return next;
}

/// Sets the entry's bytes, which follow its local header and must end before the directory.
void ZipDirectory::place(ZipEntry& entry, uint64_t header, uint64_t directory) const {
  TERN_CHECK(directory >= kLocalBytes && header <= directory - kLocalBytes && number(header, 4) == kLocalMark, path_,
             ": entry '", entry.name, "' has no header at byte ", header);
  const uint64_t name = number(header + 26, 2), extra = number(header + 28, 2);
  const uint64_t begin = header + kLocalBytes + name + extra;
  TERN_CHECK(begin <= directory && std::string_view(data_ + header + kLocalBytes, name) == entry.name, path_,
             ": entry '", entry.name, "' has another name in its header at byte ", header);
  TERN_CHECK(entry.bytes <= directory - begin, path_, ": entry '", entry.name, "' of ", entry.bytes, " bytes at byte ",
             begin, " is not before the directory at byte ", directory);
  entry.data = data_ + begin;
}

/// Overlapping entries would let a small file claim any amount of data.
void ZipDirectory::check_overlaps(const std::vector<uint64_t>& headers) const {
  std::vector<size_t> order(entries_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return headers[a] < headers[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const ZipEntry& before = entries_[order[i - 1]];
    TERN_CHECK(before.data + before.bytes <= data_ + headers[order[i]], path_, ": the zip entries '", before.name,
               "' and '", entries_[order[i]].name, "' overlap");
  }
}

const ZipEntry* ZipDirectory::find(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const ZipEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

std::string_view ZipDirectory::contents(const ZipEntry& entry) const {
  TERN_CHECK(!entry.encrypted, path_, ": entry '", entry.name, "' is encrypted");
  TERN_CHECK(entry.method == 0, path_, ": entry '", entry.name, "' is compressed (method ", entry.method,
             "); PyTorch stores its entries as they are");
  const uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(entry.data), entry.bytes);
  TERN_CHECK(entry.crc == 0 || sum == entry.crc, path_, ": entry '", entry.name,
             "' is damaged: its checksum is not the recorded one");
  return {entry.data, entry.bytes};
}

}  // namespace tern
