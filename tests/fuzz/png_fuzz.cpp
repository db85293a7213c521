// PNG images. Chunk checksums are corrected, so that mutated chunks are parsed further.

#include <zlib.h>

#include "tern/tests/fuzz/images.h"

namespace {

uint32_t big_endian(const char* p) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(p[i]);
  return value;
}

std::string with_checksums(std::string png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    const size_t length = big_endian(png.data() + at);
    if (length > png.size() - at - 12) break;
    const auto sum = crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4), static_cast<uInt>(length + 4));
    for (int i = 0; i < 4; ++i) png[at + 8 + length + static_cast<size_t>(i)] = static_cast<char>(sum >> (24 - 8 * i));
    at += 12 + length;
  }
  return png;
}

}  // namespace

void tern::fuzz::try_input(std::string_view input) {
  const std::string bytes(input);
  for (const std::string& png : {bytes, with_checksums(bytes)})
    read([&] { check(data::decode_png(png, "input", {.max_pixels = kMaxPixels})); });
}
