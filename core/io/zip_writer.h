#pragma once
// Writes a zip archive of members that are stored as they are (PKWARE APPNOTE 6.3.10, with zip64 where a number needs
// it). Internal to core/io.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

class ZipWriter {
 public:
  using Append = std::function<void(const void* data, size_t bytes)>;
  /// `append` writes the archive's next bytes (write_atomically).
  explicit ZipWriter(Append append) : append_(std::move(append)) {}

  /// Begins a member, whose bytes the caller then appends by append(): `bytes` of them, with this checksum (zlib's
  /// crc32). They begin at a multiple of 64 in the file. The name has at most 60,000 bytes and is UTF-8.
  void begin_member(const std::string& name, uint64_t bytes, uint32_t crc);
  void append(const void* data, size_t bytes);
  /// Writes the directory. Error: a member got another number of bytes than it was begun with.
  void finish();

 private:
  struct Member {
    std::string name;
    uint64_t bytes, header;  // header: its place in the file
    uint32_t crc;
  };
  void check_member() const;
  void append(const std::string& bytes) { append(bytes.data(), bytes.size()); }
  std::string directory_record(const Member& member) const;

  Append append_;
  std::vector<Member> members_;
  uint64_t at_ = 0;   // bytes written so far
  uint64_t end_ = 0;  // where the last member must end
};

}  // namespace tern
