#include "tern/data/tokenizers/characters.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

namespace tern::data::unicode {
namespace {

struct Decomposition {
  std::uint32_t key;    // twice the code point, plus 1 for the compatibility decomposition
  std::uint32_t place;  // start in kDecomposed << 5 | length
};
struct Composition {
  std::uint64_t pair;  // first << 32 | second
  char32_t composed;
};

#include "tern/data/tokenizers/unicode/classes.inc"

constexpr char32_t kCharacterBlock = 128;
constexpr char32_t kSyllables = 0xAC00, kSyllableCount = 11172;  // Hangul (Unicode 15, 3.12)
constexpr char32_t kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;

std::u32string_view decomposed_by_table(std::uint32_t key) {
  const auto found =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), key,
                       [](const Decomposition& entry, std::uint32_t value) { return entry.key < value; });
  return {kDecomposed + (found->place >> 5), found->place & 31};
}

/// The composition of two code points; 0 for none.
char32_t composition_of(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + 19 && second >= kVowels && second < kVowels + 21)
    return kSyllables + ((first - kLeads) * 21 + (second - kVowels)) * 28;
  const char32_t syllable = first - kSyllables;
  if (first >= kSyllables && syllable < kSyllableCount && syllable % 28 == 0 && second > kTails && second < kTails + 28)
    return first + (second - kTails);
  const std::uint64_t pair = static_cast<std::uint64_t>(first) << 32 | second;
  const auto found = std::lower_bound(std::begin(kCompositions), std::end(kCompositions), pair,
                                      [](const Composition& entry, std::uint64_t value) { return entry.pair < value; });
  return found != std::end(kCompositions) && found->pair == pair ? found->composed : 0;
}

void append_decomposed(std::u32string& out, char32_t c, bool compatibility) {
  const Character& entry = character(c);
  if (compatibility && entry.has(kHasCompatibility)) {
    out += decomposed_by_table(c * 2 + 1);
  } else if (entry.has(kHasCanonical)) {
    out += decomposed_by_table(c * 2);
  } else if (c >= kSyllables && c - kSyllables < kSyllableCount) {
    const char32_t index = c - kSyllables;
    out += {kLeads + index / 588, kVowels + index % 588 / 28};
    if (index % 28 != 0) out += kTails + index % 28;
  } else {
    out += c;
  }
}

/// Sorts every run of code points of classes other than 0 by their class.
void order_marks(std::u32string& text) {
  for (std::size_t at = 0; at < text.size();) {
    if (character(text[at]).combining_class == 0) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && character(text[end]).combining_class != 0) ++end;
    std::stable_sort(
        text.begin() + static_cast<std::ptrdiff_t>(at), text.begin() + static_cast<std::ptrdiff_t>(end),
        [](char32_t a, char32_t b) { return character(a).combining_class < character(b).combining_class; });
    at = end;
  }
}

void compose(std::u32string& text) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t starter = kNone, size = 0;
  int last_class = -1;  // of the code point that was kept last behind the starter; -1 for none
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    const int combining = character(c).combining_class;
    if (starter != kNone && last_class < combining) {
      if (const char32_t both = composition_of(text[starter], c)) {
        text[starter] = both;
        continue;
      }
    }
    if (combining == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = combining;
    }
    text[size++] = c;
  }
  text.resize(size);
}

}  // namespace

const Character& character(char32_t c) {
  return kCharacters[kCharacterValues[kCharacterBlocks[c / kCharacterBlock] * kCharacterBlock + c % kCharacterBlock]];
}

bool is_ascii(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t eight = 0; at + 8 <= text.size(); at += 8) {
    std::memcpy(&eight, text.data() + at, 8);
    if ((eight & 0x8080808080808080ull) != 0) return false;
  }
  for (; at < text.size(); ++at)
    if (static_cast<unsigned char>(text[at]) >= 0x80) return false;
  return true;
}

std::string normalized(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  const bool compatibility = form == Form::kNfkc || form == Form::kNfkd;
  std::u32string points;
  points.reserve(text.size());
  for (const char *p = text.data(), *end = p + text.size(); p < end;)
    append_decomposed(points, next_code_point(p, end), compatibility);
  order_marks(points);
  if (form == Form::kNfc || form == Form::kNfkc) compose(points);
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (const char32_t c : points) append_utf8(out, c);
  return out;
}

}  // namespace tern::data::unicode
