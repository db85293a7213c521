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

namespace {

std::string expected_string(const std::string& key) { return "expected an object with a string \"" + key + "\""; }

nlohmann::json object_in(const std::string& line, const std::string& key, const std::string& place) {
  try {
    return parse_json(line, place);
  } catch (const Error& error) {
    fail(error.what(), "; ", expected_string(key));
  }
}

std::string string_under(const nlohmann::json& object, const std::string& key, const std::string& place) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  TERN_CHECK(found != object.end() && found->is_string(), place, ": ", expected_string(key));
  return found->get<std::string>();
}

GivenText text_of_object(const std::string& line, bool pairs, const std::string& place) {
  const nlohmann::json object = object_in(line, "text", place);
  GivenText given{string_under(object, "text", place)};
  if (pairs || object.contains("text_pair")) given.pair = string_under(object, "text_pair", place);
  return given;
}

GivenText text_of_line(const std::string& line, bool pairs, const std::string& place) {
  if (!pairs) return {line};
  const size_t tab = line.find('\t');
  TERN_CHECK(tab != std::string::npos && line.find('\t', tab + 1) == std::string::npos, place,
             ": expected two texts with one tab between them");
  return {line.substr(0, tab), line.substr(tab + 1)};
}

}  // namespace

void for_each_text(const std::string& file, const LineForm& form,
                   const std::function<void(const GivenText& text, bool pauses)>& use) {
  if (data::is_text_table(file))
    return data::read_texts(file, [&](const data::TextRow& row) {
      TERN_CHECK(row.pair || !form.pairs, file, ": expected two texts a row, text and text_pair, got one");
      use({std::string(row.text), row.pair ? std::optional(std::string(*row.pair)) : std::nullopt}, false);
    });
  LineInput input(file);
  for (std::string line; input.next(line);) {
    if (form.jsonl && line.find_first_not_of(" \t") == std::string::npos) continue;
    use((form.jsonl ? text_of_object : text_of_line)(line, form.pairs, input.place()), input.pauses());
  }
}

std::string string_in(const std::string& line, const std::string& key, const std::string& place) {
  return string_under(object_in(line, key, place), key, place);
}

}  // namespace tern::cli
