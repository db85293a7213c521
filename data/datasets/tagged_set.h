#pragma once
// Texts with more than one label: a set of labels for each text, or a tag for each word.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/datasets/text_set.h"
#include "tern/data/datasets/token_set.h"
#include "tern/data/loader_tokens.h"
#include "tern/data/tokenizers/wordpiece.h"

namespace tern::data {

/// Texts, each with any number of labels.
struct MultiLabelSet {
  TextSet texts;                         // texts.labels are all 0 and say nothing
  std::vector<std::string> label_names;  // of the columns of targets
  Tensor targets;                        // float32 [texts.size(), labels]: 1 where the text has the label, otherwise 0
};

/// Reads a .csv or .tsv file with a header row and a text column (text, sentence or review, as load_text). Labels are
/// in `columns`, named by their headers, whose fields are 0 or 1; or, if `columns` is empty, in one column "labels" (or
/// "label") of names that `separator` separates, in the order of their sorted names (an empty field: no label). Throws
/// Error with line and column.
MultiLabelSet read_multi_label(const std::string& path, const std::vector<std::string>& columns = {},
                               char separator = ';');

/// Sentences with a tag for each word.
struct TaggedSet {
  std::vector<std::string> words;      // of all sentences, one after another; well-formed UTF-8
  std::vector<int32_t> tags;           // of each word
  std::vector<int64_t> offsets = {0};  // sentence s has the words offsets[s] .. offsets[s + 1] - 1
  std::vector<std::string> tag_names;  // sorted by bytes, or as given

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

/// Reads CoNLL's format (Tjong Kim Sang and De Meulder, "Introduction to the CoNLL-2003 Shared Task", 2003): a word a
/// line, with its columns separated by white space, the word first and the tag last; an empty line ends a sentence.
/// Lines that begin with -DOCSTART- are skipped. `known_tags`: those of a trained model; any other is an error. Throws
/// Error with line: one column alone, another number of columns than before; no words.
TaggedSet read_conll(const std::string& path, const std::vector<std::string>& known_tags = {});

/// Tokens of sentences, and a label for each.
struct TaggedTokens {
  TokenSet tokens;              // [CLS] pieces [SEP] of each sentence, truncated as tokenize() does
  std::vector<int32_t> labels;  // of each token: a word's first piece has its tag, all others kIgnoredLabel

  /// TokenLoaderOptions::transform that replaces a batch's labels by int64 [rows], the label of each token row.
  /// `tagged` is shared with the loader.
  static std::function<void(TokenBatch& batch)> labels_of(std::shared_ptr<const TaggedTokens> tagged);
};
TaggedTokens tokenize(const TaggedSet& set, const WordPiece& tokenizer, int64_t max_length);

/// TokenLoaderOptions::transform that replaces a batch's labels by float32 [sequences, columns], the rows of `targets`
/// (float32 [data set rows, columns]). Sequences that only fill a batch get kIgnoredLabel in every column.
std::function<void(TokenBatch& batch)> row_targets(const Tensor& targets);

}  // namespace tern::data
