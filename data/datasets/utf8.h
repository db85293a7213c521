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
