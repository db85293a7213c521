#pragma once
// BERT's normalizer and pre-tokenizer in one pass: clean, put spaces around ideographs, strip accents, lower-case,
// split at white space and punctuation. Equal to Hugging Face tokenizers 0.23 (BertNormalizer, BertPreTokenizer).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tern/data/files/utf8.h"
#include "tern/data/tokenizers/unicode.h"

namespace tern::data {

/// Classes of ASCII bytes; every other byte is kOther.
enum class ByteKind : std::uint8_t { kOther, kRemoved, kSpace, kPunctuation, kWord };

/// The optional steps, and the ASCII tables derived from them.
struct SplitRules {
  bool lowercase;
  bool strip_accents;
  bool split_cjk;
  std::array<ByteKind, 256> kind{};
  std::array<std::uint8_t, 256> letter{};  ///< the byte that a kWord byte becomes, 0 for all others

  SplitRules(bool lowercase, bool strip_accents, bool split_cjk)
      : lowercase(lowercase), strip_accents(strip_accents), split_cjk(split_cjk) {
    for (char32_t c = 0; c < 128; ++c) {
      const unicode::CodePoint& entry = unicode::properties(c);
      kind[c] = entry.flags & unicode::kRemoved       ? ByteKind::kRemoved
                : entry.flags & unicode::kSpace       ? ByteKind::kSpace
                : entry.flags & unicode::kPunctuation ? ByteKind::kPunctuation
                                                      : ByteKind::kWord;
      if (kind[c] == ByteKind::kWord) letter[c] = static_cast<std::uint8_t>(lowercase ? c + entry.lower : c);
    }
  }
};

/// Calls sink(std::string_view word, bool too_long) for each word. Of a word of more than max_chars code points only
/// the first max_chars are kept, so memory is bounded for text without spaces.
template <class Sink>
class WordSplitter {
 public:
  WordSplitter(const SplitRules& rules, std::size_t max_chars, Sink sink)
      : rules_(rules), max_chars_(max_chars), sink_(std::move(sink)) {}

  /// Emits all words up to the next ASCII space or punctuation mark, or the end; returns where it stopped.
  const char* scan(const char* p, const char* end) {
    while (p < end) {
      const auto byte = static_cast<unsigned char>(*p);
      switch (rules_.kind[byte]) {
        case ByteKind::kSpace:
        case ByteKind::kPunctuation:
          flush();
          return p;
        case ByteKind::kRemoved:
          ++p;
          break;
        case ByteKind::kWord:
          add_starter(rules_.letter[byte]);
          ++p;
          break;
        case ByteKind::kOther: {
          const char32_t c = unicode::decode_utf8(p, end);
          if (c == unicode::kInvalid) {
            ++replaced_;  // U+FFFD, which the cleaner drops
          } else {
            add(c);
          }
        }
      }
    }
    flush();
    return p;
  }

  /// Number of malformed UTF-8 sequences so far.
  std::size_t replaced() const { return replaced_; }

 private:
  void add(char32_t c) {
    const unicode::CodePoint& entry = unicode::properties(c);
    if (entry.flags & unicode::kRemoved) return;
    const bool alone = rules_.split_cjk && (entry.flags & unicode::kCjk);
    if (alone || (entry.flags & unicode::kSpace)) flush();
    if (entry.flags & unicode::kSpace) return;
    if (rules_.strip_accents) {
      add_stripped(c, entry);
    } else {
      add_lower(c, entry);
    }
    if (alone) flush();
  }

  void add_stripped(char32_t c, const unicode::CodePoint& entry) {
    if (entry.flags & unicode::kMark) {
      if (entry.flags & unicode::kStarterMark) flush_marks();
    } else if (c >= 0xAC00 && c < 0xD7A4) {  // Hangul syllables decompose by arithmetic (Unicode 15, 3.12)
      const char32_t index = c - 0xAC00;
      add_starter(0x1100 + index / 588);
      add_starter(0x1161 + index % 588 / 28);
      if (index % 28 != 0) add_starter(0x11A7 + index % 28);
    } else if (entry.flags & unicode::kExpands) {
      for (const char32_t part : unicode::expansion(entry)) add_lower(part, unicode::properties(part));
    } else if (entry.strip != 0) {
      const char32_t base = c + static_cast<char32_t>(entry.strip);
      add_lower(base, unicode::properties(base));
    } else {
      add_lower(c, entry);
    }
  }

  void add_lower(char32_t c, const unicode::CodePoint& entry) {
    if (entry.combining_class != 0 && rules_.strip_accents) {
      if (room()) marks_.push_back(static_cast<std::uint32_t>(entry.combining_class) << 24 | c);
    } else if (rules_.lowercase && c == 0x130) {
      add_starter('i');
      add_starter(0x307);
    } else if (rules_.lowercase && entry.lower != 0) {
      add_final(c + static_cast<char32_t>(entry.lower));
    } else {
      place(c, entry);
    }
  }

  void add_final(char32_t c) { place(c, unicode::properties(c)); }

  void place(char32_t c, const unicode::CodePoint& entry) {
    const bool punctuation = entry.flags & unicode::kPunctuation;
    if (punctuation) flush();
    add_starter(c);
    if (punctuation) flush();
  }

  void add_starter(char32_t c) {
    if (!marks_.empty()) flush_marks();
    if (room()) unicode::append_utf8(word_, c);
  }

  /// Counts one more code point; false if the word then exceeds max_chars_.
  bool room() { return ++chars_ <= max_chars_; }

  /// Appends the marks collected since the last starter, in canonical order.
  void flush_marks() {
    std::stable_sort(marks_.begin(), marks_.end(), [](auto a, auto b) { return a >> 24 < b >> 24; });
    for (const std::uint32_t mark : marks_) unicode::append_utf8(word_, mark & 0xFFFFFF);
    marks_.clear();
  }

  void flush() {
    if (chars_ == 0) return;
    flush_marks();
    sink_(std::string_view(word_), chars_ > max_chars_);
    word_.clear();
    chars_ = 0;
  }

  const SplitRules& rules_;
  const std::size_t max_chars_;
  Sink sink_;
  std::string word_;
  std::vector<std::uint32_t> marks_;  // combining class << 24 | code point
  std::size_t chars_ = 0;
  std::size_t replaced_ = 0;
};

}  // namespace tern::data
