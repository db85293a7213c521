#pragma once
// Token ids of a text set, and their cache on disk.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/datasets/text_set.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

/// Token ids of every row, one row after another.
struct TokenSet {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets = {0};  // [size() + 1]
  std::vector<int32_t> types = {};     // of every id, for BERT's segments; empty: all 0

  int64_t size() const { return offsets.empty() ? 0 : static_cast<int64_t>(offsets.size()) - 1; }
  /// Throws Error outside 0 .. size() - 1.
  std::span<const int32_t> row(int64_t row) const { return part(ids, row); }
  /// The types of a row's tokens; empty where all are 0. Throws Error outside 0 .. size() - 1.
  std::span<const int32_t> row_types(int64_t row) const {
    return types.empty() ? std::span<const int32_t>() : part(types, row);
  }
  /// Tokens of every row.
  std::vector<int32_t> lengths() const;

 private:
  std::span<const int32_t> part(const std::vector<int32_t>& values, int64_t row) const {
    TERN_CHECK(row >= 0 && row < size(), "token set: row ", row, " of ", size());
    return std::span(values).subspan(static_cast<size_t>(offsets[row]),
                                     static_cast<size_t>(offsets[row + 1] - offsets[row]));
  }
};

/// Appends a text's ids, without special tokens. Called from several threads at a time.
using Encode = std::function<void(std::string_view text, std::vector<int32_t>& ids)>;

struct TokenizeOptions {
  int64_t max_length = 512;  // tokens a row at most, those around it included; one more than these at least
  TokensAround around = {};  // every text, also a truncated one: [CLS] and [SEP]
  bool cuts_left = false;    // a text that is too long loses its beginning, not its end
  int threads = 0;           // 0: one for each hardware thread
  /// Names the vocabulary and every option of the tokenizer, by content (a hash). Empty: no cache.
  std::string tokenizer_key = {};
  std::function<void(const std::string&)> log = {};
  PairPattern pair = {};  // of a set of pairs, in place of `around`: both texts and what is around them
};

/// [before..., ids..., after...] of every text, or the parts of options.pair with both texts of a row, and the types of
/// these; truncated to max_length: read from the cache, or encoded by `threads`
/// threads and cached. The result does not depend on the number of threads. The cache is a file in
/// cache_directory()/tokens, named by a SHA-256 of texts, tokenizer key and options. A damaged file is rewritten; when
/// it cannot be written, `log` gets one line and nothing is cached. Throws what `encode` throws (of the first failing
/// row), and Error for a row without any token.
TokenSet tokenize(const TextSet& set, const Encode& encode, const TokenizeOptions& options);

/// The same with a tokenizer, what it puts around a text, and its key.
TokenSet tokenize(const TextSet& set, const Tokenizer& tokenizer, int64_t max_length,
                  const std::function<void(const std::string&)>& log = {});

/// The options of a tokenizer; of a set of pairs they also need its pair().
TokenizeOptions tokenize_options(const Tokenizer& tokenizer, int64_t max_length);

/// The cache file of tokenize(); empty without a tokenizer key or cache folder.
std::string token_cache_path(const TextSet& set, const TokenizeOptions& options);

}  // namespace tern::data
