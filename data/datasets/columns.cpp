#include "tern/data/datasets/columns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tern/kernels/base/check.h"

namespace tern::data {

namespace {

const ColumnKind kTextColumn = {"text", {"text", "sentence", "review"}};
// GLUE's names, as its data sets on Hugging Face's hub have them, and those of search.
constexpr std::array<const char*, 2> kPairs[] = {{"text", "text_pair"},     {"sentence1", "sentence2"},
                                                 {"premise", "hypothesis"}, {"question1", "question2"},
                                                 {"question", "sentence"},  {"query", "passage"}};

std::vector<std::string> lowered(const std::vector<std::string>& found) {
  std::vector<std::string> names;
  for (const std::string& name : found) names.push_back(lower_ascii(trim(name)));
  return names;
}

std::vector<size_t> matches_of(const std::vector<std::string>& names, const std::vector<std::string>& lowered) {
  std::vector<size_t> matches;
  for (size_t i = 0; i < lowered.size(); ++i)
    if (std::find(names.begin(), names.end(), lowered[i]) != names.end()) matches.push_back(i);
  return matches;
}

std::string pair_names() {
  std::string names;
  for (const auto& [first, second] : kPairs)
    names += (names.empty() ? "" : ", ") + std::string(first) + " and " + second;
  return names;
}

}  // namespace

TextColumns TextColumns::find(const std::vector<std::string>& found, const Location& where) {
  const std::vector<std::string> names = lowered(found);
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  std::optional<TextColumns> pair;
  for (const auto& [first, second] : kPairs) {
    if (!has(first) || !has(second)) continue;
    const TextColumns columns{find_column({"text", {first}}, found, where),
                              find_column({"second text", {second}}, found, where)};
    TERN_CHECK(!pair, where, ": more than one pair of texts: ", found[pair->text], " and ", found[*pair->pair], ", ",
               found[columns.text], " and ", found[*columns.pair], "; rename those that are not read");
    pair = columns;
  }
  const std::vector<size_t> single = matches_of(kTextColumn.names, names);
  if (pair) {
    for (const size_t i : single)
      TERN_CHECK(i == pair->text || i == *pair->pair, where, ": a pair of texts, ", found[pair->text], " and ",
                 found[*pair->pair], ", and also a text, ", found[i], "; rename those that are not read");
    return *pair;
  }
  TERN_CHECK(!single.empty(), where, ": no text column (", join(kTextColumn.names, " or "),
             "; of pairs: ", pair_names(), "); found: ", shown_names(found));
  return {find_column(kTextColumn, found, where)};
}

TextRow TextColumns::of(const std::vector<std::string>& fields) const {
  return {fields[text], pair ? std::optional<std::string_view>(fields[*pair]) : std::nullopt};
}

TextRow text_row(const nlohmann::json& object, const std::vector<std::string>& names, const Location& where) {
  const TextColumns columns = TextColumns::find(names, where);
  const auto text_of = [&](size_t column) -> std::string_view {
    const nlohmann::json& text = object.at(names[column]);
    TERN_CHECK(text.is_string(), where, ": the text must be a string, got ", text.type_name(),
               columns.pair ? " under " + names[column] : std::string());
    return text.get_ref<const std::string&>();
  };
  return {text_of(columns.text), columns.pair ? std::optional(text_of(*columns.pair)) : std::nullopt};
}

void add_row(TextSet& set, const TextRow& row, int32_t label, const Location& where) {
  TERN_CHECK(set.size() == 0 || set.has_pairs() == row.pair.has_value(), where, ": this row has ",
             row.pair ? "two texts, those before it one" : "one text, those before it two");
  if (row.pair)
    set.add(row.text, *row.pair, label);
  else
    set.add(row.text, label);
}

size_t find_column(const ColumnKind& kind, const std::vector<std::string>& found, const Location& where) {
  const std::vector<size_t> matches = matches_of(kind.names, lowered(found));
  TERN_CHECK(!matches.empty(), where, ": no ", kind.meaning, " column (", join(kind.names, " or "),
             "); found: ", shown_names(found));
  TERN_CHECK(matches.size() == 1, where, ": more than one ", kind.meaning, " column: ", found[matches[0]], " and ",
             found[matches[1]], "; rename one");
  return matches[0];
}

std::optional<std::string> label_name(const nlohmann::json& value) {
  constexpr double kExact = 1e15;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float() && std::abs(value.get<double>()) < kExact &&
      value.get<double>() == std::trunc(value.get<double>()))
    return std::to_string(static_cast<int64_t>(value.get<double>()));
  if (value.is_number() || value.is_boolean()) return value.dump();
  return std::nullopt;
}

}  // namespace tern::data
