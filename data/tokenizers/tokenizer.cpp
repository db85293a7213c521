#include "tern/data/tokenizers/tokenizer.h"

#include "tern/kernels/base/check.h"

namespace tern::data {

const char* name_of(SpecialToken token) {
  constexpr const char* kNames[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
  return kNames[static_cast<std::size_t>(token)];
}

std::int32_t Tokenizer::required(SpecialToken token) const {
  const std::optional<std::int32_t> id = special(token);
  TERN_CHECK(id, "tokenizer: there is no token in the place of ", name_of(token),
             "; tokenizer_config.json names it (\"cls_token\", \"sep_token\", \"pad_token\", \"mask_token\")");
  return *id;
}

}  // namespace tern::data
