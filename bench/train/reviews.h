#pragma once
// The reviews for the rows imdb-* and tokenizer.

#include <string>
#include <vector>

#include "tern/data/tokenizers/wordpiece.h"

namespace tern::bench {

struct Reviews {
  std::vector<std::string> texts;
  std::vector<int32_t> labels;  // 1: positive
};

/// Every 25th of the 25,000 sorted paths aclImdb/train/{neg,pos}/*.txt in $TERN_DATA, from the first. Throws Error.
Reviews read_reviews();
/// $TERN_DATA/bert-base-uncased.
data::WordPiece read_tokenizer();

}  // namespace tern::bench
