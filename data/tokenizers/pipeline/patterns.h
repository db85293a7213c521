#pragma once
// The patterns of Split and Replace: texts, and the regular expressions of public tokenizers.
//
// The expressions are recognised by their text and matched by functions written for them, which take one pass over the
// text: a general engine that backtracks can take exponential time with a hostile file.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/tokenizers/pipeline/json_field.h"

namespace tern::data {

/// A part of a text, and whether the pattern matched it.
struct Span {
  std::size_t begin, end;
  bool match;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  /// Appends spans that cover the whole text, which is not empty, in order.
  virtual void find(std::string_view text, std::vector<Span>& spans) const = 0;
};

/// {"String": text} or {"Regex": expression}. Throws Error for an expression that Tern does not have.
std::unique_ptr<const Pattern> read_pattern(const JsonField& field);

/// The expression of GPT-2, which the pre-tokenizer ByteLevel uses.
const Pattern& gpt2_pattern();

}  // namespace tern::data
