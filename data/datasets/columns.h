#pragma once
// Columns of a header, or names in a JSON object, by what they hold.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/files/text.h"

namespace tern::data {

struct ColumnKind {
  const char* meaning;             // for messages
  std::vector<std::string> names;  // in lower case
};

const ColumnKind& text_column();  // text, sentence or review

/// Which of the found names is one of the kind's, in any case and with surrounding space. Throws Error that lists what
/// was found when none is, or more than one.
size_t find_column(const ColumnKind& kind, const std::vector<std::string>& found, const Location& where);

/// The name of a label in JSON: a string, a number as it is shortest ("3", "2.5"; 3.0 is "3", which some tools write
/// for integers), "true" or "false". Nothing for another value.
std::optional<std::string> label_name(const nlohmann::json& value);

}  // namespace tern::data
