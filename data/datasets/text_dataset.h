#pragma once
// Labelled texts in memory, and where they come from.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/datasets/part.h"

namespace tern::data {

/// Labelled texts: the bytes of all texts one after another, and the offset of each. Every text is well-formed UTF-8
/// and may be empty or contain NUL.
struct TextDataset {
  std::string name;  // "imdb", "sentences" or the path
  std::string bytes;
  std::vector<uint64_t> offsets = {0};  // [size() + 1]
  std::vector<int32_t> labels;          // [size()], 0 .. label_names.size() - 1
  std::vector<std::string> label_names;
  std::vector<Part> parts;   // [size()] where the set has an official split, otherwise empty
  int64_t invalid_utf8 = 0;  // ill-formed byte sequences that were replaced by U+FFFD

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  std::string_view text(int64_t row) const {
    return std::string_view(bytes).substr(offsets[row], offsets[row + 1] - offsets[row]);
  }
  /// Rows whose text is empty or white space alone.
  int64_t empty_texts() const;
  /// Appends a row; ill-formed UTF-8 is replaced and counted. Error at 2^31 rows.
  void add(std::string_view text, int32_t label);
  /// SHA-256 over the number of texts, their lengths and bytes (not the labels): the key of results
  /// that depend on the texts alone.
  std::string content_hash() const;
};

struct LoadTextOptions {
  /// The labels of a trained model, in the order of its outputs: rows get these ids, and any other label is an error
  /// that names file, line and the known labels. Names are compared without case, and neg / pos equal negative /
  /// positive; an integer label is an index where no known name is an integer. Names LABEL_0, LABEL_1, ... (a model
  /// that was saved without names) bind the number of labels only.
  std::vector<std::string> known_labels = {};
  bool allow_download = true;                        // of `imdb`, when it is not found on this machine
  std::function<void(const std::string&)> log = {};  // one line each: what is fetched, skipped, or not as published
};

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
TextDataset load_text(const std::string& source, const LoadTextOptions& options = {});

}  // namespace tern::data
