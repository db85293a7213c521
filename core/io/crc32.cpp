#include "tern/core/io/crc32.h"

#include <array>
#include <cstring>

namespace tern {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

/// tables[0] steps over one byte, tables[k] over that byte and k zero bytes after it: eight bytes at a time.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xEDB88320u : 0u);
    tables[0][i] = value;
  }
  for (uint32_t i = 0; i < 256; ++i)
    for (size_t k = 1; k < 8; ++k) tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 255];
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(const void* data, size_t bytes, uint32_t before) {
  const auto* p = static_cast<const uint8_t*>(data);
  uint32_t value = ~before;
  for (; bytes >= 8; p += 8, bytes -= 8) {
    uint32_t low = 0, high = 0;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= value;
    value = kTables[7][low & 255] ^ kTables[6][(low >> 8) & 255] ^ kTables[5][(low >> 16) & 255] ^
            kTables[4][low >> 24] ^ kTables[3][high & 255] ^ kTables[2][(high >> 8) & 255] ^
            kTables[1][(high >> 16) & 255] ^ kTables[0][high >> 24];
  }
  for (; bytes > 0; ++p, --bytes) value = (value >> 8) ^ kTables[0][(value ^ *p) & 255];
  return ~value;
}

}  // namespace tern
