#pragma once
// What every tokenizer offers to data sets, models and the program.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/tokenizers/pair_pattern.h"

namespace tern::data {

/// Tokens with a meaning of their own: [UNK], [CLS], [SEP], [PAD] and [MASK] of BERT.
enum class SpecialToken : std::uint8_t { kUnknown, kClassify, kSeparator, kPadding, kMask };

/// BERT's name of it: "[CLS]".
const char* name_of(SpecialToken token);

/// The ids that are put around a text.
struct TokensAround {
  std::vector<std::int32_t> before, after;
  std::size_t size() const { return before.size() + after.size(); }
};

/// How long texts may be.
struct TextLimits {
  std::int64_t max_length = 0;  ///< the most tokens, those around a text included; 0: not known
  bool cuts_left = false;       ///< a text that is too long loses its beginning, not its end
};

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
  /// What encode_special() puts around a text. Throws Error if the vocabulary lacks a token for it.
  virtual TokensAround around() const = 0;
  /// How two texts become one sequence. Throws Error if the tokenizer's files do not say it.
  virtual PairPattern pair() const;
  /// The ids and types of two texts in one sequence, cut to max_length tokens: pair(). Texts that are too long lose
  /// what encode_special() would cut; the longer one is cut first.
  TypedIds encode_pair(std::string_view first, std::string_view second, std::size_t max_length = kNoLimit) const;
  virtual std::optional<std::int32_t> special(SpecialToken token) const = 0;
  /// Throw Error if there is no such token.
  std::int32_t cls_id() const { return required(SpecialToken::kClassify); }
  std::int32_t sep_id() const { return required(SpecialToken::kSeparator); }
  std::int32_t pad_id() const { return required(SpecialToken::kPadding); }
  std::int32_t mask_id() const { return required(SpecialToken::kMask); }
  /// What encode_special() cuts, and what a model should ask it for.
  virtual TextLimits limits() const = 0;

  /// Writes files for read_tokenizer() and Hugging Face's AutoTokenizer, which truncates to `model_max_length`. Creates
  /// the folder.
  virtual void save(const std::string& dir, std::int64_t model_max_length) const = 0;
  /// SHA-256 of what decides the ids: tokenizers of equal hash give equal ids.
  virtual std::string content_hash() const = 0;

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
  /// Throws Error that says which token there is not.
  virtual std::int32_t required(SpecialToken token) const;
};

}  // namespace tern::data
