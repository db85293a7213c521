#pragma once
// Labelled texts in memory, and where they come from.

#include <string>
#include <string_view>
#include <vector>

#include "tern/data/datasets/labelled_set.h"

namespace tern::data {

/// Labelled texts: the bytes of all texts one after another, and the offset of each. Every text is well-formed UTF-8
/// and may be empty or contain NUL.
struct TextSet : LabelledSet {
  std::string bytes = {};
  std::vector<uint64_t> offsets = {0};  // [size() + 1]
  int64_t invalid_utf8 = 0;             // ill-formed byte sequences that were replaced by U+FFFD

  std::string_view text(int64_t row) const {
    return std::string_view(bytes).substr(offsets[row], offsets[row + 1] - offsets[row]);
  }
  /// Rows whose text is empty or white space alone.
  int64_t empty_texts() const;
  /// Appends a row; ill-formed UTF-8 is replaced and counted. Error at 2^31 rows.
  void add(std::string_view text, int32_t label);
  /// Throws Error when all texts are empty; otherwise `log`, if there is one, gets their number if there are any.
  void check_texts(const std::function<void(const std::string&)>& log) const;
  /// SHA-256 over the number of texts, their lengths and bytes (not the labels): the key of results
  /// that depend on the texts alone.
  std::string content_hash() const;
};

/// The sets that load_text finds by name. Without --data the program takes the first that is embedded or found.
const std::vector<NamedSet<TextSet>>& named_text_sets();

/// Loads `source`:
///   "imdb"       the Large Movie Review Dataset (Maas et al., ACL 2011): see imdb.h
///   "sentences"  3,000 labelled sentences embedded in the library (data/assets/README.md)
///   *.csv *.tsv  RFC 4180 with a header row: see delimited.h
///   *.jsonl      one JSON object a line; blank lines are skipped
///   a folder     train/LABEL/*.txt, and optionally test/LABEL, val/LABEL; or LABEL/*.txt
/// Columns and keys are found by name, in any order and case: label or sentiment; text, sentence or review. Labels are
/// integers or strings; without known_labels their ids follow the sorted names (integers in numeric order). Rows keep
/// the order of their file; folders are read as train, val, test, each sorted by path. Throws Error with file and line;
/// also when every text is empty. `log` gets the number of empty texts, and how imdb differs from the published set.
TextSet load_text(const std::string& source, const LoadOptions& options = {});

}  // namespace tern::data
