#include "tern/models/cli/line_input.h"

#include <nlohmann/json.hpp>

#include "tern/core/io/json.h"
#include "tern/kernels/base/check.h"

namespace tern::cli {

LineInput::LineInput(const std::string& file)
    : name_(file == "-" ? "stdin" : file),
      in_(file == "-" ? InputStream::standard_input() : InputStream(file, InputKind::kStream)) {}

bool LineInput::next(std::string& line) {
  if (!next_line(in_, line, name_, ++number_)) return false;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

std::string string_in(const std::string& line, const std::string& key, const std::string& place) {
  const std::string expected = "expected an object with a string \"" + key + "\"";
  nlohmann::json object;
  try {
    object = parse_json(line, place);
  } catch (const Error& error) {
    fail(error.what(), "; ", expected);
  }
  const auto found = object.is_object() ? object.find(key) : object.end();
  TERN_CHECK(found != object.end() && found->is_string(), place, ": ", expected);
  return found->get<std::string>();
}

}  // namespace tern::cli
