// WordPiece throughput on one thread, in bytes of text per second.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tern/bench/benchmark.h"
#include "tern/data/tokenizers/wordpiece.h"

namespace tern::embedded {
std::string_view imdb_labelled();
}

namespace tern::bench {
namespace {

/// A step is the whole text.
void add_encoding(const char* name, const std::string& text) {
  add_steps(name_of_row("wordpiece", name), "bytes", [=]() -> Step {
    return [=, tokenizer = std::make_shared<data::WordPiece>(data::WordPiece::from_embedded()),
            ids = std::vector<std::int32_t>()]() mutable {
      ids.clear();
      tokenizer->encode(text, ids);
      keep(ids.data());
      return static_cast<std::int64_t>(text.size());
    };
  });
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (; times > 0; --times) result += text;
  return result;
}

void add_loading() {
  add("wordpiece/load", {}, []() -> Call {
    const data::WordPiece tokenizer = data::WordPiece::from_embedded();
    std::string vocabulary;
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) vocabulary.append(tokenizer.token(id)).push_back('\n');
    return [vocabulary] { keep(data::WordPiece::from_text(vocabulary)); };
  });
}

const Rows rows([] {
  if (!device().is_cpu()) return;
  const int times = is_tiny() ? 1 : 1000;
  add_encoding("english", std::string(embedded::imdb_labelled()));
  add_encoding(
      "accents",
      repeated("L'\u00E9t\u00E9 \u00E0 No\u00EBl, na\u00EFve Stra\u00DFe \u0416\u0438\u0437\u043D\u044C. ", times));
  add_encoding("cjk", repeated("\u6771\u4EAC\u306F\u65E5\u672C\u306E\u9996\u90FD", times));
  add_loading();
});

}  // namespace
}  // namespace tern::bench
