#include "tern/core/io/zip_writer.h"

#include <algorithm>

#include "tern/kernels/base/check.h"

namespace tern {
namespace {

constexpr uint64_t kZipAlignment = 64, kLocalHeaderBytes = 30, kMax32 = 0xffffffff, kMax16 = 0xffff;
constexpr uint32_t kVersion = 20, kVersion64 = 45, kUnix = 3 << 8;
constexpr uint32_t kFirstDay = 0x21;          // 1980-01-01: the same tensors give the same bytes
constexpr uint32_t kUtf8 = 0x800;             // a flag: the name is not in the code page of 1981
constexpr uint32_t kMode = 0600u << 16;       // of a file that is unpacked; as numpy.savez
constexpr uint32_t kAlignmentField = 0xd935;  // of Android's zipalign: the alignment in two bytes, then zeros

/// Appends a little-endian number.
void put(std::string& out, uint64_t value, int width) {
  for (int i = 0; i < width; ++i) out += static_cast<char>(value >> 8 * i & 0xff);
}

bool is_ascii(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// From the version to the length of the name, which both kinds of header have: version, flags, method, time, date,
/// checksum, sizes as stored and plain, length of the name.
void put_common(std::string& out, const std::string& name, uint32_t crc, uint64_t bytes, bool wide) {
  put(out, wide ? kVersion64 : kVersion, 2);
  put(out, is_ascii(name) ? 0 : kUtf8, 2);
  put(out, 0, 4);
  put(out, kFirstDay, 2);
  put(out, crc, 4);
  put(out, std::min(bytes, kMax32), 4);
  put(out, std::min(bytes, kMax32), 4);
  put(out, name.size(), 2);
}

}  // namespace

void ZipWriter::append(const void* data, size_t bytes) {
  append_(data, bytes);
  at_ += bytes;
}

void ZipWriter::check_member() const {
  TERN_CHECK(members_.empty() || at_ == end_, "zip archive: '", members_.back().name, "' was begun with ",
             members_.back().bytes, " bytes, which end at ", end_, ", not at ", at_);
}

void ZipWriter::begin_member(const std::string& name, uint64_t bytes, uint32_t crc) {
  check_member();
  const bool wide = bytes >= kMax32;
  std::string extra;
  if (wide) {
    put(extra, 1, 2);
    put(extra, 16, 2);
    put(extra, bytes, 8);
    put(extra, bytes, 8);
  }
  // The field that fills up to the alignment has at least its own head of six bytes.
  const uint64_t unpadded = at_ + kLocalHeaderBytes + name.size() + extra.size() + 6;
  const uint64_t padding = (kZipAlignment - unpadded % kZipAlignment) % kZipAlignment;
  put(extra, kAlignmentField, 2);
  put(extra, 2 + padding, 2);
  put(extra, kZipAlignment, 2);
  extra.append(padding, '\0');

  members_.push_back({name, bytes, at_, crc});
  std::string header = "PK\3\4";
  put_common(header, name, crc, bytes, wide);
  put(header, extra.size(), 2);
  append(header + name + extra);
  end_ = at_ + bytes;
}

std::string ZipWriter::directory_record(const Member& member) const {
  std::string extra;
  if (member.bytes >= kMax32) {
    put(extra, member.bytes, 8);
    put(extra, member.bytes, 8);
  }
  if (member.header >= kMax32) put(extra, member.header, 8);
  std::string field;
  if (!extra.empty()) {
    put(field, 1, 2);
    put(field, extra.size(), 2);
    field += extra;
  }
  std::string record = "PK\1\2";
  put(record, kUnix | (field.empty() ? kVersion : kVersion64), 2);
  put_common(record, member.name, member.crc, member.bytes, !field.empty());
  put(record, field.size(), 2);
  put(record, 0, 6);  // comment, disk, attributes of MS-DOS
  put(record, kMode, 4);
  put(record, std::min(member.header, kMax32), 4);
  return record + member.name + field;
}

void ZipWriter::finish() {
  check_member();
  const uint64_t begin = at_;
  for (const Member& member : members_) append(directory_record(member));
  const uint64_t bytes = at_ - begin, members = members_.size();
  std::string end;
  if (begin >= kMax32 || bytes >= kMax32 || members >= kMax16) {
    end += "PK\6\6";
    put(end, 44, 8);  // bytes that follow in this record
    put(end, kUnix | kVersion64, 2);
    put(end, kVersion64, 2);
    put(end, 0, 8);  // disks
    put(end, members, 8);
    put(end, members, 8);
    put(end, bytes, 8);
    put(end, begin, 8);
    end += "PK\6\7";
    put(end, 0, 4);
    put(end, at_, 8);  // of the record above
    put(end, 1, 4);
  }
  end += "PK\5\6";
  put(end, 0, 4);
  put(end, std::min(members, kMax16), 2);
  put(end, std::min(members, kMax16), 2);
  put(end, std::min(bytes, kMax32), 4);
  put(end, std::min(begin, kMax32), 4);
  put(end, 0, 2);
  append(end);
}

}  // namespace tern
