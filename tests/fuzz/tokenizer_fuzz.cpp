// tokenizer.json and tokenizer_config.json, separated by a line "=====".

#include "tern/data/tokenizers/wordpiece.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view text) {
  const std::string_view mark = "\n=====\n";
  const size_t at = text.find(mark);
  write_file("tokenizer.json", text.substr(0, at));
  write_file("tokenizer_config.json", at == std::string_view::npos ? "{}" : std::string(text.substr(at + mark.size())));
  read([&] {
    const auto tokenizer = data::WordPiece::from_folder(folder().string());
    for (const int32_t id : tokenizer.encode(text)) require(id >= 0 && id < tokenizer.vocab_size());
  });
}
