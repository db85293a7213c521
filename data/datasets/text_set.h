#pragma once
// Labelled texts in memory, and where they come from.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/datasets/labelled_set.h"

namespace tern::data {

/// The text of a row, or its two texts.
struct TextRow {
  std::string_view text;
  std::optional<std::string_view> pair = {};
};

/// Labelled texts: the bytes of all texts one after another, and the offset of each. Every text is well-formed UTF-8
/// and may be empty or contain NUL. A row has a text or, in a set of pairs, two that belong together.
struct TextSet : LabelledSet {
  std::string bytes = {};
  std::vector<uint64_t> offsets = {0};  // [size() + 1]
  std::string pair_bytes = {};          // the second texts of a set of pairs
  std::vector<uint64_t> pair_offsets = {0};
  int64_t invalid_utf8 = 0;  // ill-formed byte sequences that were replaced by U+FFFD

  std::string_view text(int64_t row) const {
    return std::string_view(bytes).substr(offsets[row], offsets[row + 1] - offsets[row]);
  }
  bool has_pairs() const { return pair_offsets.size() > 1; }
  /// The second text of a row of a set of pairs.
  std::string_view text_pair(int64_t row) const {
    return std::string_view(pair_bytes).substr(pair_offsets[row], pair_offsets[row + 1] - pair_offsets[row]);
  }
  /// Rows whose text is, or whose texts are, empty or white space alone.
  int64_t empty_texts() const;
  /// Appends a row; ill-formed UTF-8 is replaced and counted. All rows are pairs, or none. Error at 2^31 rows.
  void add(std::string_view text, int32_t label);
  void add(std::string_view text, std::string_view text_pair, int32_t label);
  /// Throws Error when all texts are empty; otherwise `log`, if there is one, gets their number if there are any.
  void check_texts(const std::function<void(const std::string&)>& log) const;
  /// SHA-256 over the number of texts, their lengths and bytes (not the labels): the key of results
  /// that depend on the texts alone.
  std::string content_hash() const;

 private:
  void append(std::string_view text, int32_t label);
};

/// The sets that load_text finds by name. Without --data the program takes the first that is embedded or found.
const std::vector<NamedSet<TextSet>>& named_text_sets();

/// Loads `source`:
///   "imdb"       the Large Movie Review Dataset (Maas et al., ACL 2011): see imdb.h
///   "sentences"  3,000 labelled sentences embedded in the library (data/assets/README.md)
///   *.csv *.tsv  RFC 4180 with a header row: see delimited.h
///   *.jsonl      one JSON object a line; blank lines are skipped
///   a folder     train/LABEL/*.txt, and optionally test/LABEL, val/LABEL; or LABEL/*.txt
/// Columns and keys are found by name, in any order and case: label or sentiment; text, sentence or review, or the two
/// texts of a pair, by the names of columns.h (text and text_pair, sentence1 and sentence2, ...). Labels are integers
/// or strings; without known_labels their ids follow the sorted names (integers in numeric order). Rows keep the order
/// of their file; folders are read as train, val, test, each sorted by path. Throws Error with file and line; also when
/// every text is empty. `log` gets the number of empty texts, and how imdb differs from the published set.
TextSet load_text(const std::string& source, const LoadOptions& options = {});

}  // namespace tern::data
