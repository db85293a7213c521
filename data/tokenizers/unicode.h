#pragma once
// What BERT's normalizer and pre-tokenizer do with each code point. The table is measured from Hugging Face
// tokenizers 0.23 (unicode/generate_table.py): its Unicode tables are of several ages and equal no one version.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tern::data::unicode {

enum CodePointFlag : std::uint8_t {
  kRemoved = 1,       ///< dropped by the cleaner: controls, formats, private use, U+FFFD
  kSpace = 2,         ///< parts words
  kPunctuation = 4,   ///< a word of its own
  kCjk = 8,           ///< an ideograph: spaces are put around it
  kMark = 16,         ///< an accent that stripping drops
  kStarterMark = 32,  ///< such a mark that still parts the marks before it from those after it
  kExpands = 64,      ///< stripping gives several code points
};

/// Properties of one code point.
struct CodePoint {
  std::int32_t strip;            ///< added to the code point when accents are stripped; if kExpands, see expansion()
  std::int32_t lower;            ///< added to the code point when lower-cased (U+0130 alone becomes two: "i" U+0307)
  std::uint8_t flags;            ///< of CodePointFlag
  std::uint8_t combining_class;  ///< of kept marks, for canonical order; 0 for all others
};

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr char32_t kInvalid = 0xFFFFFFFF;

/// The properties of a code point up to kLastCodePoint.
const CodePoint& properties(char32_t c);

/// The code points left of an expanding one when it is decomposed and its accents are dropped.
std::u32string_view expansion(const CodePoint& entry);

/// Decodes one code point and moves p behind it. A malformed sequence gives kInvalid once for each maximal
/// part (Unicode 15, 3.9, "substitution of maximal subparts"), as Python's errors="replace" does. Needs p < end.
char32_t decode_utf8(const char*& p, const char* end);

/// Appends the UTF-8 form of a code point.
void append_utf8(std::string& out, char32_t c);

}  // namespace tern::data::unicode
