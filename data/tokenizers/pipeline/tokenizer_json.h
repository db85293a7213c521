#pragma once
// A tokenizer that a tokenizer.json describes whole. For every text the ids equal those of Hugging Face's library
// `tokenizers` 0.23 with the same file; what Tern does not have is an Error that names it.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/tokenizers/tokenizer.h"

namespace tern::data {

/// Copies share the vocabulary.
class TokenizerJson final : public Tokenizer {
 public:
  /// Reads a tokenizer.json, or that of a folder. Throws Error with file and place in it: not JSON, a part that Tern
  /// does not have, ids that are given twice, merges of unknown tokens.
  static TokenizerJson from_file(const std::string& path);
  /// Parses the text of a tokenizer.json; errors call it `name`.
  static TokenizerJson from_text(std::string_view json, const std::string& name = "tokenizer.json");

  /// The model's and the added tokens' ids, without post-processor, truncation and padding.
  std::size_t encode(std::string_view text, std::vector<std::int32_t>& ids) const override;
  /// With the special tokens of the post-processor; truncation and padding of the file do not apply, as in
  /// transformers. Cuts at the side that limits() say.
  std::vector<std::int32_t> encode_special(std::string_view text, std::size_t max_length = kNoLimit,
                                           std::size_t* replaced = nullptr) const override;
  /// What the library's Tokenizer.encode() gives: with the file's truncation and padding.
  std::vector<std::int32_t> encode_as_library(std::string_view text, bool special) const;

  /// The text of ids by the file's decoder, or the tokens with spaces between them; ids that no token has are left out,
  /// and with `skip_special` those of special tokens.
  std::string decode(const std::vector<std::int32_t>& ids, bool skip_special = true) const;

  std::string_view token(std::int32_t id) const override;
  std::optional<std::int32_t> id(std::string_view token) const override;
  std::int64_t vocab_size() const override;
  TokensAround around() const override;
  PairPattern pair() const override;
  std::optional<std::int32_t> special(SpecialToken token) const override;
  TextLimits limits() const override;
  /// Writes DIR/tokenizer.json and DIR/tokenizer_config.json.
  void save(const std::string& dir, std::int64_t model_max_length) const override;
  std::string content_hash() const override;

 private:
  friend class TokenizerJsonReader;
  struct Parts;
  explicit TokenizerJson(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::vector<std::int32_t> finish(std::vector<std::int32_t> ids, std::size_t max_length, bool special) const;

  std::shared_ptr<const Parts> parts_;
};

}  // namespace tern::data
