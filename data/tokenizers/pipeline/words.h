#pragma once
// The text that a tokenizer works on, and the words that it has been split into so far. A pre-tokenizer changes the
// text of the words or splits them further.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tern::data {

/// A part of Words::text. `origin` counts the leading bytes that come from the first character of the whole input:
/// Metaspace's prepend_scheme "first" asks whether a word begins there.
struct Word {
  std::size_t begin, end, origin;
};

struct Words {
  std::string text;
  std::vector<Word> list;

  std::string_view view(const Word& word) const {
    return std::string_view(text).substr(word.begin, word.end - word.begin);
  }
  /// Adds the part [begin, end) of a word, counted from its start; an empty part is dropped.
  static void append_part(std::vector<Word>& out, const Word& word, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    const std::size_t origin = word.origin > begin ? std::min(word.origin - begin, end - begin) : 0;
    out.push_back({word.begin + begin, word.begin + end, origin});
  }
};

}  // namespace tern::data
