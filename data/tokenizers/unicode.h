#pragma once
// How BERT's normalizer and pre-tokenizer treat each code point. The table is measured from Hugging Face tokenizers
// 0.23 (unicode/generate_table.py), whose tables mix several Unicode versions and match no single one.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tern::data::unicode {

enum CodePointFlag : std::uint8_t {
  kRemoved = 1,       ///< dropped by the cleaner: control, format and private-use characters, U+FFFD
  kSpace = 2,         ///< separates words
  kPunctuation = 4,   ///< is a word by itself
  kCjk = 8,           ///< ideograph: surrounded by spaces
  kMark = 16,         ///< accent, dropped by stripping
  kStarterMark = 32,  ///< such a mark that also separates preceding from following marks in reordering
  kExpands = 64,      ///< stripping yields several code points
};

/// Properties of one code point.
struct CodePoint {
  std::int32_t strip;            ///< added to the code point when accents are stripped; if kExpands, see expansion()
  std::int32_t lower;            ///< added to the code point when lower-cased (only U+0130 becomes two: "i" U+0307)
  std::uint8_t flags;            ///< a set of CodePointFlag
  std::uint8_t combining_class;  ///< canonical combining class of kept marks; 0 for all others
};

/// The properties of a code point up to kLastCodePoint.
const CodePoint& properties(char32_t c);

/// The code points that remain of an expanding one after decomposition without its accents.
std::u32string_view expansion(const CodePoint& entry);

}  // namespace tern::data::unicode
