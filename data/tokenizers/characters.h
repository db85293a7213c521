#pragma once
// What the parts of Hugging Face tokenizers 0.23 know of each code point, and the normalization forms of Unicode as the
// library computes them. The table is measured (unicode/generate_classes.py): the library mixes several versions.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tern/data/files/utf8.h"

namespace tern::data::unicode {

enum CharacterFlag : std::uint16_t {
  kWhiteSpace = 1,          ///< White_Space, also \s of the regular expressions
  kDroppedByBert = 2,       ///< dropped by BertNormalizer's clean_text
  kNonspacing = 4,          ///< dropped by BertNormalizer's strip_accents, after decomposition
  kCombining = 8,           ///< dropped by StripAccents
  kNumeric = 16,            ///< what Digits splits at
  kBertPunctuation = 32,    ///< what Punctuation and BertPreTokenizer split at
  kWordCharacter = 64,      ///< \w of Whitespace and of added tokens' single_word
  kBertIdeograph = 128,     ///< put between spaces by BertNormalizer's handle_chinese_chars
  kHasCanonical = 256,      ///< NFD changes it (Hangul syllables are computed and have no flag)
  kHasCompatibility = 512,  ///< NFKD differs from NFD
};

/// General categories as Oniguruma's \p{..} knows them.
enum class Category : std::uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCn
};

struct Character {
  std::int32_t lower;            ///< added to the code point by Lowercase (only U+0130 becomes two: "i" U+0307)
  std::uint16_t flags;           ///< a set of CharacterFlag
  std::uint8_t category;         ///< a Category
  std::uint8_t combining_class;  ///< canonical combining class

  bool has(std::uint16_t wanted) const { return (flags & wanted) != 0; }
  bool is_letter() const { return category <= static_cast<std::uint8_t>(Category::kLo); }
  bool is_mark() const {
    return category >= static_cast<std::uint8_t>(Category::kMn) && category <= static_cast<std::uint8_t>(Category::kMe);
  }
  bool is_number() const {
    return category >= static_cast<std::uint8_t>(Category::kNd) && category <= static_cast<std::uint8_t>(Category::kNo);
  }
};

/// The properties of a code point up to kLastCodePoint.
const Character& character(char32_t c);

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

/// The normalization form of a well-formed UTF-8 text (Unicode Standard Annex 15).
std::string normalized(std::string_view text, Form form);

/// Decodes one code point of well-formed UTF-8 and moves p past it. Requires p < end.
inline char32_t next_code_point(const char*& p, const char* end) {
  const auto byte = static_cast<unsigned char>(*p);
  if (byte >= 0x80) return decode_utf8(p, end);
  ++p;
  return byte;
}

/// The last code point of a text that is not empty.
inline char32_t last_code_point(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  const char* p = text.data() + at;
  return next_code_point(p, text.data() + text.size());
}

/// Whether all bytes are below 0x80.
bool is_ascii(std::string_view text);

}  // namespace tern::data::unicode
