// vocab.txt, and a text that its tokenizer encodes, separated by a line "=====".

#include "tern/data/tokenizers/wordpiece.h"
#include "tern/tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  if (size < 1) return 0;
  const std::string_view input = fuzz::text_of(data + 1, size - 1), mark = "\n=====\n";
  const size_t at = input.find(mark);
  const std::string_view text = at == std::string_view::npos ? input : input.substr(at + mark.size());
  fuzz::read([&] {
    const auto tokenizer = data::WordPiece::from_text(
        input.substr(0, at),
        {.lowercase = (data[0] & 1) != 0, .split_cjk = (data[0] & 2) != 0, .max_word_chars = data[0] & 4 ? 3u : 100u});
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    for (const int32_t id : ids) fuzz::require(id >= 0 && id < tokenizer.vocab_size());
    fuzz::require(tokenizer.pieces(text).size() == ids.size());
    fuzz::read([&] { fuzz::require(tokenizer.encode_special(text, 5).size() <= 5); });
  });
  return 0;
}
