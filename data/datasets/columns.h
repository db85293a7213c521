#pragma once
// Columns of a header, or names in a JSON object, by what they hold.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/datasets/text_set.h"
#include "tern/data/files/text.h"

namespace tern::data {

struct ColumnKind {
  const char* meaning;             // for messages
  std::vector<std::string> names;  // in lower case
};

/// Which of the found names is one of the kind's, in any case and with surrounding space. Throws Error that lists what
/// was found when none is, or more than one.
size_t find_column(const ColumnKind& kind, const std::vector<std::string>& found, const Location& where);

/// Which of the found names hold the text of a row, or its two texts.
struct TextColumns {
  size_t text = 0;
  std::optional<size_t> pair = {};

  /// By name, in any case and with surrounding space: the two texts of a pair are text and text_pair, sentence1 and
  /// sentence2, premise and hypothesis, question1 and question2, question and sentence, or query and passage; a single
  /// text is text, sentence or review. Both names of a pair come before a single text. Throws Error that lists what was
  /// found when there is neither, and when the names leave a choice.
  static TextColumns find(const std::vector<std::string>& found, const Location& where);
  /// Those of a row's fields.
  TextRow of(const std::vector<std::string>& fields) const;
};

/// The texts of a JSON object with these names. Errors begin with `where`; also for a text that is no string.
TextRow text_row(const nlohmann::json& object, const std::vector<std::string>& names, const Location& where);
/// Appends the row. Throws Error with the place where rows of one and of two texts are mixed.
void add_row(TextSet& set, const TextRow& row, int32_t label, const Location& where);

/// The name of a label in JSON: a string, a number as it is shortest ("3", "2.5"; 3.0 is "3", which some tools write
/// for integers), "true" or "false". Nothing for another value.
std::optional<std::string> label_name(const nlohmann::json& value);

}  // namespace tern::data
