#pragma once
// The directory of a zip archive in memory (PKWARE APPNOTE 6.3.10, with zip64). Nothing is unpacked.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

struct ZipEntry {
  std::string_view name;
  const char* data = nullptr;  // as stored: compressed when method is not 0
  uint64_t bytes = 0;          // as stored
  uint64_t plain_bytes = 0;    // claimed by the directory; equal to `bytes` when method is 0
  uint32_t crc = 0;
  uint16_t method = 0;
  bool encrypted = false;
};

class ZipDirectory {
 public:
  /// `data` must outlive the directory; `path` is for messages. Errors, which name the file: no directory at the end (a
  /// truncated file), several disks, entries outside the file or overlapping, contradictory headers, a repeated name.
  ZipDirectory(std::string path, const char* data, uint64_t bytes);

  /// Sorted by name.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// Null when no entry has this name.
  const ZipEntry* find(std::string_view name) const;
  /// The entry's bytes. Errors: compressed or encrypted, or a wrong checksum (0 counts as not recorded, because PyTorch
  /// has an option to omit it).
  std::string_view contents(const ZipEntry& entry) const;

 private:
  struct End {
    uint64_t entries, begin, bytes;
  };
  uint64_t number(uint64_t at, int width) const;
  uint64_t find_end() const;
  End read_end() const;
  End read_end64(uint64_t locator, End end) const;
  uint64_t read_entry(uint64_t at, uint64_t end, std::vector<uint64_t>& headers);
  void place(ZipEntry& entry, uint64_t header, uint64_t directory) const;
  void check_overlaps(const std::vector<uint64_t>& headers) const;

  std::string path_;
  const char* data_;
  uint64_t bytes_;
  std::vector<ZipEntry> entries_;
};

}  // namespace tern
