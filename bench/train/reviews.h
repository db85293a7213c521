#pragma once
// The reviews that the rows imdb-* and tokenizer read.

#include <string>
#include <vector>

#include "tern/data/tokenizers/wordpiece.h"

namespace tern::bench {

struct Reviews {
  std::vector<std::string> texts;
  std::vector<int32_t> labels;  // 1: positive
};

/// The first of every 25 of the 25,000 sorted paths aclImdb/train/{neg,pos}/*.txt in $TERN_DATA. Throws Error.
Reviews read_reviews();
/// $TERN_DATA/bert-base-uncased.
data::WordPiece read_tokenizer();

}  // namespace tern::bench
