// The normalizer Precompiled: SentencePiece's table of replacements, looked up by grapheme clusters.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <vector>

#include "tern/data/tokenizers/pipeline/normalizers.h"

namespace tern::data {
namespace {

// ---- grapheme clusters (Unicode Standard Annex 29), as the library finds them ----

enum GraphemeFlag : std::uint16_t {
  kJoins = 1,        // never begins a cluster, unless behind a control character
  kControl = 2,      // a cluster that nothing joins
  kPrepend = 4,      // joins what follows
  kLead = 8,         // Hangul: a leading consonant
  kVowel = 16,       // Hangul: a vowel, or a syllable without tail
  kTail = 32,        // Hangul: a tail, or a syllable with one
  kPictograph = 64,  // joined by U+200D
  kExtend = 128,     // may stand between a pictograph and U+200D
  kConsonant = 256,  // of an Indic conjunct
  kLinker = 512,     // joins two consonants
  kConjunct = 1024,  // may stand between a consonant and a linker
};

struct GraphemeRange {
  char32_t first;
  std::uint16_t flags;
};

#include "tern/data/tokenizers/unicode/graphemes.inc"

std::uint16_t grapheme_flags(char32_t c) {
  if (c >= 0x20 && c < 0x7F) return 0;
  const auto after = std::upper_bound(std::begin(kGraphemeRanges), std::end(kGraphemeRanges), c,
                                      [](char32_t value, const GraphemeRange& range) { return value < range.first; });
  return std::prev(after)->flags;
}

bool is_regional(char32_t c) { return c >= 0x1F1E6 && c <= 0x1F1FF; }
bool is_syllable(char32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }

/// Finds the end of the cluster that begins at p.
const char* cluster_end(const char* p, const char* end) {
  char32_t before = unicode::next_code_point(p, end);
  std::uint16_t flags = grapheme_flags(before);
  bool pictograph = flags & kPictograph;  // a pictograph and extending characters came last
  bool joiner = false;                    // and then U+200D
  bool consonant = flags & kConsonant, linked = false;
  bool regional = is_regional(before);
  while (p < end) {
    const char* after = p;
    const char32_t c = unicode::next_code_point(after, end);
    const std::uint16_t now = grapheme_flags(c);
    bool join = false;
    if (before == '\r' && c == '\n') {
      join = true;
    } else if ((flags & kControl) || (now & kControl)) {
      join = false;
    } else if ((now & kJoins) || (flags & kPrepend)) {
      join = true;
    } else if (flags & kLead) {
      join = (now & (kLead | kVowel)) || is_syllable(c);
    } else if (flags & kVowel) {
      join = ((now & (kVowel | kTail)) && !is_syllable(c));
    } else if (flags & kTail) {
      join = (now & kTail) && !is_syllable(c);
    }
    join = join || (joiner && (now & kPictograph)) || (linked && (now & kConsonant)) || (regional && is_regional(c));
    if (!join) return p;
    regional = is_regional(c) && !(regional && is_regional(before));
    joiner = pictograph && c == 0x200D;
    pictograph = (now & kPictograph) || (pictograph && (now & kExtend));
    linked = consonant && ((now & kLinker) || (linked && (now & kConjunct)));
    consonant = (now & kConsonant) || (consonant && (now & (kLinker | kConjunct)));
    before = c;
    flags = now;
    p = after;
  }
  return p;
}

std::string decode_base64(const JsonField& field) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  std::string_view text = field.text();
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) field.reject("base64");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(const JsonField& field) {
    const JsonField charsmap = field.at("precompiled_charsmap");
    const std::string bytes = decode_base64(charsmap);
    std::uint32_t size = 0;
    if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
    TERN_CHECK(bytes.size() >= 4 && size <= bytes.size() - 4 && size % 4 == 0 && size > 0, charsmap.where(),
               ": not a table of SentencePiece: it has ", bytes.size(), " bytes, and claims a trie of ", size);
    units_.resize(size / 4);
    std::memcpy(units_.data(), bytes.data() + 4, size);
    std::string copy;
    TERN_CHECK(append_valid_utf8(std::string_view(bytes).substr(4 + size), texts_) == 0, charsmap.where(),
               ": not a table of SentencePiece: its replacements are not UTF-8");
  }

  void apply(std::string& text, std::size_t& origin) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    std::size_t new_origin = 0;
    const char* const begin = text.data();
    const auto add = [&](const char* p, std::string_view part) {
      out += part;
      if (static_cast<std::size_t>(p - begin) < origin) new_origin = out.size();
    };
    for (const char *p = begin, *end = begin + text.size(); p < end;) {
      const char* const stop = cluster_end(p, end);
      const std::string_view cluster(p, static_cast<std::size_t>(stop - p));
      if (cluster.size() < 6) {
        if (const auto found = replacement(cluster)) {
          add(p, *found);
          p = stop;
          continue;
        }
      }
      while (p < stop) {
        const char* const start = p;
        unicode::next_code_point(p, stop);
        const std::string_view one(start, static_cast<std::size_t>(p - start));
        add(start, replacement(one).value_or(one));
      }
    }
    text = std::move(out);
    // The library counts the first character that remains as the first of the input, whatever was dropped before it.
    if (origin > 0 && new_origin == 0 && !text.empty()) {
      const char* p = text.data();
      unicode::next_code_point(p, p + text.size());
      new_origin = static_cast<std::size_t>(p - text.data());
    }
    origin = new_origin;
  }

 private:
  /// The replacement of the shortest key that the text begins with, as the library does it: whatever follows the key in
  /// the cluster is dropped.
  std::optional<std::string_view> replacement(std::string_view text) const {
    std::size_t at = offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) break;
      at ^= byte;
      if (at >= units_.size() || (units_[at] & 0x800000FFu) != byte) return std::nullopt;
      const bool leaf = (units_[at] & 0x100u) != 0;
      at ^= offset(units_[at]);
      if (!leaf) continue;
      if (at >= units_.size()) return std::nullopt;
      const std::size_t start = units_[at] & 0x7FFFFFFFu;
      if (start > texts_.size()) return std::nullopt;
      const std::size_t stop = std::min(texts_.find('\0', start), texts_.size());
      const std::string_view found = std::string_view(texts_).substr(start, stop - start);
      if (!found.empty() && (static_cast<unsigned char>(found[0]) & 0xC0) == 0x80) return std::nullopt;
      return found;
    }
    return std::nullopt;
  }
  static std::size_t offset(std::uint32_t unit) {
    return static_cast<std::size_t>(unit >> 10) << ((unit & 0x200u) >> 6);
  }

  std::vector<std::uint32_t> units_;  // a double array as darts-clone writes it
  std::string texts_;                 // the replacements, each with a byte 0 behind it
};

}  // namespace

std::unique_ptr<const Normalizer> read_precompiled(const JsonField& field) {
  return std::make_unique<PrecompiledNormalizer>(field);
}

}  // namespace tern::data
