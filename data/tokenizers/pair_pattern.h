#pragma once
// How two texts become one sequence, for models that compare them.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tern::data {

/// Token ids, and the type of each token: token_type_ids of transformers.
struct TypedIds {
  std::vector<std::int32_t> ids, types;
};

/// The parts of a sequence of two texts in their order: [CLS] first [SEP] second [SEP] of BERT, where the second text
/// and the last [SEP] have the type 1.
struct PairPattern {
  enum class Source : std::uint8_t { kSpecial, kFirst, kSecond };
  struct Part {
    Source source = Source::kSpecial;
    std::vector<std::int32_t> ids = {};  // of kSpecial
    std::int32_t type = 0;
  };
  std::vector<Part> parts;

  /// The number of special tokens.
  std::size_t added() const;
  /// The greatest type; 0: the types say nothing.
  std::int32_t greatest_type() const;
  /// The same with type 0 throughout, for models without token types.
  PairPattern without_types() const;
  /// Appends the sequence of two texts' ids to `out`, with at most max_length tokens, of which added() are special
  /// ones. Throws Error if there is no room for these.
  void append(std::vector<std::int32_t> first, std::vector<std::int32_t> second, std::size_t max_length, bool cuts_left,
              TypedIds& out) const;
};

/// BERT's: the first text with both tokens around it has the type 0, the rest the type 1.
PairPattern bert_pair(std::int32_t cls, std::int32_t sep);

/// How many ids remain of two texts that may have `room` together. The longer one is cut first; if both are longer than
/// half of the room, each gets a half, the longer one the greater: transformers' longest_first.
std::pair<std::size_t, std::size_t> lengths_within(std::size_t first, std::size_t second, std::size_t room);

}  // namespace tern::data
