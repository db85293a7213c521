#include "tern/data/files/idx.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tern/data/files/files.h"
#include "tern/data/files/gzip.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr size_t kMagicBytes = 4, kSizeBytes = 4;
constexpr unsigned kUnsignedBytes = 0x08;
constexpr size_t kMaxDimensions = 8;
constexpr int64_t kMaxUnpacked = int64_t{1} << 30;
constexpr uint64_t kMaxValues = uint64_t{1} << 31;  // so that the product of the sizes does not overflow

}  // namespace

Tensor parse_idx(std::string_view bytes, const std::string& name) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  TERN_CHECK(bytes.size() >= kMagicBytes, name, ": not an idx file: it ends at byte ", bytes.size());
  TERN_CHECK(byte(0) == 0 && byte(1) == 0, name, ": not an idx file: bytes 0 and 1 must be 0, got ", int{byte(0)},
             " and ", int{byte(1)});
  TERN_CHECK(byte(2) == kUnsignedBytes, name, ": values of type ", int{byte(2)}, " at byte 2; expected ",
             kUnsignedBytes, " (unsigned bytes)");
  const size_t dimensions = byte(3), header = kMagicBytes + dimensions * kSizeBytes;
  TERN_CHECK(dimensions >= 1 && dimensions <= kMaxDimensions, name, ": ", dimensions,
             " dimensions at byte 3; expected 1 to ", kMaxDimensions);
  TERN_CHECK(bytes.size() >= header, name, ": the header takes ", header, " bytes, but the file ends at byte ",
             bytes.size());
  std::vector<int64_t> sizes;
  uint64_t expected = 1, others = 1;  // values; the product of the sizes that are not 0, from which strides are made
  for (size_t at = kMagicBytes; at < header; at += kSizeBytes) {
    sizes.push_back(int64_t{byte(at)} << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3));
    const auto size = static_cast<uint64_t>(sizes.back());
    others *= std::max<uint64_t>(size, 1);
    TERN_CHECK(others <= kMaxValues, name, ": the sizes up to byte ", at + kSizeBytes, " are for more than ",
               kMaxValues, " values");
    expected *= size;
  }
  TERN_CHECK(bytes.size() - header >= expected, name, ": the sizes need ", expected,
             " bytes of values, but the file ends at byte ", bytes.size());
  TERN_CHECK(bytes.size() - header == expected, name, ": more follows at byte ", header + expected, ", the end of ",
             expected, " values");
  Tensor values = empty(Shape(sizes), {.dtype = DType::kUInt8});
  if (expected > 0) std::memcpy(values.raw_data(), bytes.data() + header, bytes.size() - header);
  return values;
}

Tensor read_idx(const std::string& path) {
  std::string bytes;
  read_file(path, bytes);
  if (bytes.starts_with("\x1f\x8b")) bytes = gunzip(bytes, path, kMaxUnpacked);
  return parse_idx(bytes, path);
}

}  // namespace tern::data
