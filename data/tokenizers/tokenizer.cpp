#include "tern/data/tokenizers/tokenizer.h"

#include <utility>

#include "tern/kernels/base/check.h"

namespace tern::data {

const char* name_of(SpecialToken token) {
  constexpr const char* kNames[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
  return kNames[static_cast<std::size_t>(token)];
}

PairPattern Tokenizer::pair() const {
  fail("tokenizer: this one does not say how two texts become one sequence; its class lacks pair()");
}

TypedIds Tokenizer::encode_pair(std::string_view first, std::string_view second, std::size_t max_length) const {
  std::vector<std::int32_t> first_ids, second_ids;
  encode(first, first_ids);
  encode(second, second_ids);
  TypedIds result;
  pair().append(std::move(first_ids), std::move(second_ids), max_length, limits().cuts_left, result);
  return result;
}

std::int32_t Tokenizer::required(SpecialToken token) const {
  const std::optional<std::int32_t> id = special(token);
  TERN_CHECK(id, "tokenizer: there is no token in the place of ", name_of(token),
             "; tokenizer_config.json names it (\"cls_token\", \"sep_token\", \"pad_token\", \"mask_token\")");
  return *id;
}

}  // namespace tern::data
