#include <zlib.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "tern/core/io/atomic_file.h"
#include "tern/core/io/mapped_file.h"
#include "tern/core/io/npy.h"
#include "tern/core/io/npy_header.h"
#include "tern/core/io/pickle_reader.h"
#include "tern/core/io/state_file.h"
#include "tern/core/io/zip_directory.h"
#include "tern/core/io/zip_writer.h"

namespace tern {
namespace {

constexpr std::string_view kNpyEnding = ".npy";
constexpr uint64_t kDeflateLimit = 1032;  // plain bytes for each compressed one: 258 for each 2 bits
constexpr uint16_t kDeflated = 8;
constexpr size_t kMaxNpzName = 60000;

uint32_t crc_of(const void* data, uint64_t bytes, uint32_t before = 0) {
  if (bytes == 0) return before;  // zlib takes a null pointer for a new start
  return static_cast<uint32_t>(crc32_z(before, static_cast<const Bytef*>(data), bytes));
}

class Inflate {
 public:
  explicit Inflate(const std::string& where) : where_(where) {
    TERN_CHECK(inflateInit2(&stream_, -MAX_WBITS) == Z_OK, where, ": zlib has no memory");
  }
  ~Inflate() { inflateEnd(&stream_); }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;

  /// Error: damaged, or the bytes are not as many as `out` has room for.
  void run(const char* in, uint64_t in_bytes, char* out, uint64_t out_bytes) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in));
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    Bytef none = 0;
    if (out_bytes == 0) stream_.next_out = &none;
    int status = Z_OK;
    while (status == Z_OK) {
      refill(stream_.avail_in, in_bytes);
      refill(stream_.avail_out, out_bytes);
      status = inflate(&stream_, Z_NO_FLUSH);
    }
    TERN_CHECK(status == Z_STREAM_END && in_bytes + stream_.avail_in == 0 && out_bytes + stream_.avail_out == 0, where_,
               ": the compressed bytes are damaged, or not as many as the archive says");
  }

 private:
  /// zlib counts in 32 bits.
  static void refill(uInt& available, uint64_t& left) {
    const auto more = std::min<uint64_t>(std::numeric_limits<uInt>::max() - available, left);
    available += static_cast<uInt>(more);
    left -= more;
  }

  const std::string& where_;
  z_stream stream_{};
};

/// A member's bytes, and what keeps them.
struct MemberBytes {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

MemberBytes unpacked(const std::string& where, const ZipEntry& entry, const std::shared_ptr<MappedFile>& mapping) {
  TERN_CHECK(!entry.encrypted, where, ": is encrypted");
  TERN_CHECK(entry.method == 0 || entry.method == kDeflated, where, ": is compressed by method ", entry.method,
             "; NumPy writes stored and deflated arrays");
  MemberBytes member{{entry.data, entry.bytes}, mapping};
  if (entry.method == kDeflated) {
    TERN_CHECK(entry.plain_bytes / kDeflateLimit <= entry.bytes, where, ": ", entry.bytes,
               " compressed bytes cannot hold the ", entry.plain_bytes, " that the archive claims");
    const auto storage = std::make_shared<Storage>(static_cast<int64_t>(entry.plain_bytes), cpu);
    char* const plain = static_cast<char*>(storage->data());
    Inflate(where).run(entry.data, entry.bytes, plain, entry.plain_bytes);
    member = {{plain, entry.plain_bytes}, storage};
  }
  TERN_CHECK(crc_of(member.bytes.data(), member.bytes.size()) == entry.crc, where,
             ": is damaged: its checksum is not the recorded one");
  return member;
}

}  // namespace

NumpyFile load_npz(const std::string& path) {
  const auto mapping = std::make_shared<MappedFile>(path);
  const ZipDirectory zip(path, mapping->data(), mapping->bytes());
  std::vector<ZipEntry> entries = zip.entries();
  std::sort(entries.begin(), entries.end(), [](const ZipEntry& a, const ZipEntry& b) { return a.data < b.data; });
  NumpyFile file;
  for (const ZipEntry& entry : entries) {
    if (entry.name.ends_with('/')) continue;  // a folder
    const std::string where = path + ": array '" + detail::printable(entry.name) + "'";
    if (!entry.name.ends_with(kNpyEnding)) {
      file.unreadable.push_back({std::string(entry.name), "a member that is no array (its name does not end in .npy)"});
      continue;
    }
    const std::string name(entry.name.substr(0, entry.name.size() - kNpyEnding.size()));
    const MemberBytes member = unpacked(where, entry, mapping);
    const detail::NpyHeader header = detail::read_npy_header(where, member.bytes);
    if (!header.problem.empty()) {
      file.unreadable.push_back({name, header.problem});
      continue;
    }
    file.tensors.push_back({name, detail::npy_tensor(where, header, member.bytes, member.owner)});
    if (header.element->widened()) file.widened[name] = header.element->name;
  }
  mapping->check();
  return file;
}

void save_npz(const StateView& tensors, const std::string& path) {
  std::unordered_set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    TERN_CHECK(tensor.defined(), path, ": tensor '", name, "' is undefined");
    TERN_CHECK(names.insert(name).second, path, ": two tensors are named '", name, "'");
    TERN_CHECK(name.size() <= kMaxNpzName && pickle::is_utf8(name) && name.find('\0') == std::string::npos, path,
               ": the name '", detail::printable(name, 100), "' is not UTF-8, has a zero byte, or is longer than ",
               kMaxNpzName, " bytes");
  }
  write_atomically(path, [&](const auto& append) {
    ZipWriter zip(append);
    for (const auto& [name, tensor] : tensors) {
      const StateView rows = {{name, tensor.detach().to(cpu).contiguous()}};
      const Tensor& values = rows[0].tensor;
      const std::string header = detail::npy_header(values.shape(), values.dtype());
      const auto bytes = static_cast<uint64_t>(values.nbytes());
      const uint32_t crc = crc_of(values.raw_data(), bytes, crc_of(header.data(), header.size()));
      zip.begin_member(name + std::string(kNpyEnding), header.size() + bytes, crc);
      zip.append(header.data(), header.size());
      zip.append(values.raw_data(), bytes);
      verify_files_of(rows);
    }
    zip.finish();
  });
}

}  // namespace tern
