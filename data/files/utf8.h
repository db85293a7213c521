#pragma once
// Well-formed UTF-8 (Unicode 15, table 3-7).

#include <cstdint>
#include <string>
#include <string_view>

namespace tern::data {

/// Appends `in` to `out`; each maximal ill-formed subpart (Unicode 15, section 3.9, as W3C decoders and Python do it)
/// becomes one U+FFFD. Returns the number of replacements.
int64_t append_valid_utf8(std::string_view in, std::string& out);

}  // namespace tern::data

namespace tern::data::unicode {

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr char32_t kInvalid = 0xFFFFFFFF;

/// Decodes one code point and moves p past it. Each maximal ill-formed subpart yields one kInvalid (Unicode 15, 3.9,
/// "substitution of maximal subparts"), as with Python's errors="replace". Requires p < end.
char32_t decode_utf8(const char*& p, const char* end);

/// Appends the UTF-8 form of a code point.
void append_utf8(std::string& out, char32_t c);

}  // namespace tern::data::unicode
