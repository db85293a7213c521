// WordPiece throughput on one thread, in bytes of text per second.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/tokenizers/wordpiece.h"

namespace tern::embedded {
std::string_view imdb_labelled();
}

namespace tern::data {
namespace {

void encode(benchmark::State& state, std::string_view text) {
  const WordPiece tokenizer = WordPiece::from_embedded();
  std::vector<std::int32_t> ids;
  for (auto _ : state) {
    ids.clear();
    tokenizer.encode(text, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * ids.size()));
}

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (; times > 0; --times) result += text;
  return result;
}

void wordpiece_english(benchmark::State& state) { encode(state, embedded::imdb_labelled()); }

void wordpiece_accents(benchmark::State& state) {
  encode(state,
         repeated("L'\u00E9t\u00E9 \u00E0 No\u00EBl, na\u00EFve Stra\u00DFe \u0416\u0438\u0437\u043D\u044C. ", 1000));
}

void wordpiece_cjk(benchmark::State& state) {
  encode(state, repeated("\u6771\u4EAC\u306F\u65E5\u672C\u306E\u9996\u90FD", 1000));
}

void wordpiece_load(benchmark::State& state) {
  const std::string vocabulary = [] {
    const WordPiece tokenizer = WordPiece::from_embedded();
    std::string text;
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) text.append(tokenizer.token(id)).push_back('\n');
    return text;
  }();
  for (auto _ : state) benchmark::DoNotOptimize(WordPiece::from_text(vocabulary));
}

BENCHMARK(wordpiece_english);
BENCHMARK(wordpiece_accents);
BENCHMARK(wordpiece_cjk);
BENCHMARK(wordpiece_load);

}  // namespace
}  // namespace tern::data
