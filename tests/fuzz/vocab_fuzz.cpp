// vocab.txt, and a text that its tokenizer encodes, separated by a line "=====".

#include "tern/data/tokenizers/wordpiece.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view input) {
  if (input.empty()) return;
  const auto first = static_cast<uint8_t>(input[0]);
  const std::string_view parts = input.substr(1), mark = "\n=====\n";
  const size_t at = parts.find(mark);
  const std::string_view text = at == std::string_view::npos ? parts : parts.substr(at + mark.size());
  read([&] {
    const auto tokenizer = data::WordPiece::from_text(
        parts.substr(0, at),
        {.lowercase = (first & 1) != 0, .split_cjk = (first & 2) != 0, .max_word_chars = first & 4 ? 3u : 100u});
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    for (const int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size());
    require(tokenizer.pieces(text).size() == ids.size());
    read([&] { require(tokenizer.encode_special(text, 5).size() <= 5); });
  });
}
