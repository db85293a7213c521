// tokenizer.json and tokenizer_config.json, separated by a line "=====".

#include "tern/data/tokenizers/wordpiece.h"
#include "tern/tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  const std::string_view text = fuzz::text_of(data, size), mark = "\n=====\n";
  const size_t at = text.find(mark);
  fuzz::write_file("tokenizer.json", text.substr(0, at));
  const std::string config = at == std::string_view::npos ? "{}" : std::string(text.substr(at + mark.size()));
  fuzz::write_file("tokenizer_config.json", config);
  fuzz::read([&] {
    const auto tokenizer = data::WordPiece::from_folder(fuzz::folder().string());
    for (const int32_t id : tokenizer.encode(text)) fuzz::require(id >= 0 && id < tokenizer.vocab_size());
  });
  return 0;
}
