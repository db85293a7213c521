#pragma once
// The checksum of zip, gzip and PNG: CRC-32 with the polynomial 0xEDB88320 (ISO 3309, reflected).

#include <cstddef>
#include <cstdint>

namespace tern {

/// The checksum of `bytes` at `data`; `before` continues an earlier one.
uint32_t crc32(const void* data, size_t bytes, uint32_t before = 0);

}  // namespace tern
