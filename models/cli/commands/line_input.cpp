#include "tern/models/cli/commands/line_input.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "tern/core/io/json.h"
#include "tern/data/datasets/target_set.h"
#include "tern/kernels/base/check.h"

namespace tern::cli {

LineInput::LineInput(const std::string& file)
    : name_(file == "-" ? "stdin" : file),
      in_(file == "-" ? InputStream::standard_input() : InputStream(file, InputKind::kStream)),
      is_file_(file != "-") {}

bool LineInput::next(std::string& line) {
  if (!next_line(in_, line, name_, ++number_)) return false;
  require_text(line);
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

void LineInput::require_text(const std::string& line) const {
  constexpr std::pair<std::string_view, const char*> kBeginnings[] = {{"\x89PNG", "a PNG image"},
                                                                      {"\xff\xd8\xff", "a JPEG image"},
                                                                      {"GIF8", "a GIF image"},
                                                                      {"PK\x03\x04", "a zip archive"},
                                                                      {"\x1f\x8b", "gzip data"},
                                                                      {"%PDF-", "a PDF document"},
                                                                      {"\x7f"
                                                                       "ELF",
                                                                       "a program"}};
  const char* kind = is_file_ && line.find('\0') != std::string::npos ? "binary data: it holds a NUL byte" : nullptr;
  if (number_ == 1)
    for (const auto& [beginning, name] : kBeginnings)
      if (line.starts_with(beginning)) kind = name;
  TERN_CHECK(!kind, number_ == 1 ? name_ : place(), ": expected lines of text, got ", kind,
             "; give a text file, a .csv, .tsv or .jsonl file with a text column, or for images a model of images");
}

void for_each_text(const std::string& file, bool jsonl,
                   const std::function<void(const std::string& text, bool pauses)>& use) {
  if (data::is_text_table(file)) return data::read_texts(file, [&](const std::string& text) { use(text, false); });
  LineInput input(file);
  for (std::string line; input.next(line);) {
    if (jsonl && line.find_first_not_of(" \t") == std::string::npos) continue;
    use(jsonl ? string_in(line, "text", input.place()) : line, input.pauses());
  }
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
