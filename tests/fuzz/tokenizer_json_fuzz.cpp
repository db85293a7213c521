// tokenizer.json with any components, and a text that its tokenizer encodes, separated by a line "=====".

#include "tern/data/tokenizers/pipeline/tokenizer_json.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view input) {
  const std::string_view mark = "\n=====\n";
  const size_t at = input.find(mark);
  const std::string_view text = at == std::string_view::npos ? input : input.substr(at + mark.size());
  read([&] {
    const auto tokenizer = data::TokenizerJson::from_text(input.substr(0, at));
    const std::vector<int32_t> ids = tokenizer.encode_special(text);
    for (const int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size());
    tokenizer.decode(ids);
    read([&] {
      const data::TypedIds pair = tokenizer.encode_pair(text.substr(0, text.size() / 2), text, 40);
      require(pair.ids.size() == pair.types.size() && pair.ids.size() <= 40);
      for (const int32_t id : pair.ids) require(id >= 0 && id < tokenizer.vocab_size());
    });
    for (const int32_t id : tokenizer.encode_as_library(text, true)) {
      require(id >= 0);
      read([&] { require(!tokenizer.token(id).empty() || tokenizer.id("") == id); });
    }
  });
}
