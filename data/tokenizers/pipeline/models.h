#pragma once
// The models of a tokenizer.json: what cuts a word into tokens of the vocabulary.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tern/data/tokenizers/pipeline/json_field.h"
#include "tern/data/tokenizers/pipeline/vocabulary.h"

namespace tern::data {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of a word, which is not empty.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  /// Whether words can be bytes instead of the characters that stand for them; if so, they are from now on.
  virtual bool take_bytes() { return false; }

  virtual std::int32_t id(std::string_view token) const = 0;
  virtual std::optional<std::string_view> token(std::int32_t id) const = 0;
  /// The number of tokens.
  virtual std::size_t size() const = 0;
  /// All ids are smaller.
  virtual std::int64_t bound() const = 0;
};

/// Throws Error for a model that Tern does not have, and for vocabularies and merges that contradict themselves.
std::unique_ptr<TokenModel> read_model(const JsonField& field);
std::unique_ptr<TokenModel> read_bpe(const JsonField& field);
std::unique_ptr<TokenModel> read_unigram(const JsonField& field);

/// A model with a Vocabulary.
class VocabularyModel : public TokenModel {
 public:
  explicit VocabularyModel(const JsonField& object) : vocabulary_(object) {}
  std::int32_t id(std::string_view token) const override { return vocabulary_.id(token); }
  std::optional<std::string_view> token(std::int32_t id) const override { return vocabulary_.token(id); }
  std::size_t size() const override { return vocabulary_.size(); }
  std::int64_t bound() const override { return vocabulary_.bound(); }

 protected:
  Vocabulary vocabulary_;
};

}  // namespace tern::data
