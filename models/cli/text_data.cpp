#include "tern/models/cli/text_data.h"

#include <string_view>

#include "tern/data/datasets/imdb.h"
#include "tern/data/datasets/sha256.h"
#include "tern/kernels/kernel.h"
#include "tern/models/cli/commands.h"

namespace tern::cli {

data::TextSet load_texts(const std::string& source, const std::vector<std::string>& known_labels, const Log& log) {
  std::string chosen = source;
  if (chosen.empty()) {
    chosen = data::find_imdb() ? "imdb" : "sentences";
    log(chosen == "imdb"
            ? "data: imdb (found on this machine)"
            : "data: sentences, the embedded set of 3,000; IMDB was not found on this machine (--data imdb "
              "fetches it, TERN_DATA names a folder that holds aclImdb)");
  }
  const auto log_or_end = [&](const std::string& line) {
    check_interrupted();
    log(line);
  };
  data::TextSet texts =
      data::load_text(chosen, {.known_labels = known_labels, .allow_download = true, .log = log_or_end});
  check_interrupted();
  if (texts.invalid_utf8 > 0)
    log("data: " + std::to_string(texts.invalid_utf8) + " invalid UTF-8 sequences were replaced by U+FFFD");
  return texts;
}

std::shared_ptr<const data::TokenSet> tokenize_texts(const data::TextSet& texts, const data::WordPiece& tokenizer,
                                                     int64_t max_length, const Log& log) {
  data::TokenizeOptions options;
  options.max_length = max_length;
  options.first_id = tokenizer.cls_id();
  options.last_id = tokenizer.sep_id();
  options.threads = kernels::num_threads();
  options.tokenizer_key = tokenizer.content_hash();
  options.log = log;
  const auto encode = [&](std::string_view text, std::vector<int32_t>& ids) {
    check_interrupted();
    tokenizer.encode(text, ids);
  };
  return std::make_shared<const data::TokenSet>(data::tokenize(texts, encode, options));
}

}  // namespace tern::cli
