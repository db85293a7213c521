#pragma once
// What every tokenizer offers to data sets, models and the program.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tern::data {

/// An immutable tokenizer: many threads may encode at once. Malformed UTF-8 counts as U+FFFD.
class Tokenizer {
 public:
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  virtual ~Tokenizer() = default;

  /// Appends the ids of a text, without the tokens that are put around a sequence. Returns the number of malformed
  /// UTF-8 sequences.
  virtual std::size_t encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
  /// The ids with the tokens that are put around a sequence, cut so that the result has at most max_length entries.
  /// `replaced`, if given, receives the number of malformed UTF-8 sequences.
  virtual std::vector<std::int32_t> encode_special(std::string_view text, std::size_t max_length = kNoLimit,
                                                   std::size_t* replaced = nullptr) const = 0;

  /// The token with this id. Throws Error if no token has it.
  virtual std::string_view token(std::int32_t id) const = 0;
  /// The id of this token.
  virtual std::optional<std::int32_t> id(std::string_view token) const = 0;
  /// All ids are smaller.
  virtual std::int64_t vocab_size() const = 0;
  /// SHA-256 of what decides the ids: tokenizers of equal hash give equal ids.
  virtual std::string content_hash() const = 0;

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
};

}  // namespace tern::data
