#pragma once
// Byte-pair encoding of long words, such as whole texts of Llama 2, in one pass over the text.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tern/data/tokenizers/piece_trie.h"
#include "tern/data/tokenizers/pipeline/bpe_merges.h"

namespace tern::data {

/// Finds the tokens that the merges of a text end with, without merging it.
///
/// Always the merge of least rank is applied, of equal ones the leftmost. Let the last tokens of a text be t1, t2, ...:
/// no merge has crossed a border between two of them. So a token's text, and the text of two neighbours, is merged in
/// the same order within the whole text as alone: (1) the text of a token, merged alone, becomes this one token, and
/// (2) the text of two neighbours, merged alone, becomes these two. Conversely a sequence with (1) and (2) is the
/// result: the first merge that crossed a border would be one in the text of two neighbours too. So there is one such
/// sequence for each text, and also for each beginning of it. It is searched with the longest token first and steps
/// back; a place from which no way leads on is never entered again, as all ways to it are one.
///
/// (2) is known from what the tokens consist of while they are merged: the left one's last part and the right one's
/// first part change at certain ranks, and the border stays if no merge of two such parts comes before the next change.
class BpePath {
 public:
  /// The symbols that the characters of a token are, without merges.
  struct Entry {
    std::string_view text;  // not empty, without U+0000
    std::int32_t id;
    std::vector<std::int32_t> symbols;
  };
  /// `entries`: the vocabulary, sorted by the bytes of the texts.
  BpePath(const MergeTable& merges, const std::vector<Entry>& entries);

  /// Appends the tokens of the longest beginning of `text` whose characters are tokens. Returns its length in bytes.
  std::size_t append(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  /// A part at a token's end while the token is merged, and the greatest rank of a merge before the part changes: kNone
  /// where it stays.
  struct Part {
    std::int32_t symbol, until;
  };
  struct Token {
    std::int32_t id;
    std::uint32_t length;               // bytes
    std::int32_t shorter = -1;          // the longest token that this one begins with
    std::uint8_t start = 0;             // the class of its first character
    std::uint64_t joined = 0;           // the classes of characters before which a merge may have one of its last parts
    std::uint32_t first = 0, last = 0;  // its first parts, its last parts: up to the one that stays
  };

  /// Borders of a thread's last texts: the tokens at both sides, and in the lowest bit whether it stays. Texts repeat
  /// few pairs of tokens very often.
  struct Known {
    std::uint64_t owner = 0;
    std::vector<std::uint64_t> slots = {};
  };
  static constexpr int kKnownBits = 16;

  /// Sets `start` and `joined` of the tokens.
  void classify(const std::vector<Entry>& entries, const std::vector<std::size_t>& entry_of_token);
  bool is_merged(const Entry& entry, std::vector<Part>& first, std::vector<Part>& last) const;
  /// Whether no merge crosses the border between two tokens; looked up, or computed and noted.
  bool stays(std::int32_t left, std::int32_t right, Known& known) const;
  bool compute_stays(const Token& left, const Token& right) const;

  const MergeTable& merges_;
  std::vector<Token> tokens_;
  std::vector<Part> parts_;
  PieceTrie trie_;
  std::uint32_t root_ = 0;
  std::uint64_t serial_ = 0;  // another one for each object
};

}  // namespace tern::data
