#include "tern/data/datasets/columns.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tern/kernels/base/check.h"

namespace tern::data {

const ColumnKind& text_column() {
  static const ColumnKind kind = {"text", {"text", "sentence", "review"}};
  return kind;
}

size_t find_column(const ColumnKind& kind, const std::vector<std::string>& found, const Location& where) {
  std::vector<size_t> matches;
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string name = lower_ascii(trim(found[i]));
    if (std::find(kind.names.begin(), kind.names.end(), name) != kind.names.end()) matches.push_back(i);
  }
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
