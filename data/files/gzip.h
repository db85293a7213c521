#pragma once
// gzip (RFC 1952) in memory, by zlib.

#include <cstdint>
#include <string>
#include <string_view>

namespace tern::data {

/// The contents of gzip's bytes. Throws Error that begins with `name`: not gzip, damaged, truncated, more behind its
/// end, or larger than `max_bytes`.
std::string gunzip(std::string_view bytes, const std::string& name, int64_t max_bytes);

}  // namespace tern::data
