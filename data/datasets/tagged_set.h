#pragma once
// Texts with a tag for each word.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tern/data/datasets/token_set.h"
#include "tern/data/samples/token_batch.h"
#include "tern/data/tokenizers/wordpiece.h"

namespace tern::data {

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
TaggedTokens tokenize(const TaggedSet& set, const Tokenizer& tokenizer, int64_t max_length);

}  // namespace tern::data
