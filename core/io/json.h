#pragma once
// Reads JSON. Every JSON text that Tern reads is parsed here, so that the limits hold for all of them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tern {

/// The maximum nesting: the JSON library copies, compares and prints values recursively, so the depth must not depend
/// on a file. No file that Tern reads has more than ten levels.
inline constexpr int kMaxJsonDepth = 128;

/// The value of a JSON text (RFC 8259) in UTF-8. Errors begin with `source` and give the position: not JSON, not UTF-8,
/// nested deeper than kMaxJsonDepth, a number that a double cannot hold (1e999), a repeated name in an object.
nlohmann::json parse_json(std::string_view text, const std::string& source);
/// Also an Error: a value that is not an object.
nlohmann::json parse_json_object(std::string_view text, const std::string& source);
/// The object in a file; its path is the source. Errors also: those of read_whole_file.
nlohmann::json read_json_object(const std::string& path);

/// The start of a value as text for a message.
std::string shortened(const nlohmann::json& value);
std::string shortened(const nlohmann::ordered_json& value);

/// The value as an integer; nothing when it is of another type or does not fit 64 bits. The library's conversions wrap,
/// round and convert true to 1.
template <class Json>
std::optional<int64_t> integer_in(const Json& value) {
  if (value.is_number_unsigned() && value.template get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value.is_number_integer() ? std::optional(value.template get<int64_t>()) : std::nullopt;
}

}  // namespace tern
