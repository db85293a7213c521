// Reads and writes vocab.txt, which Hugging Face stores with a BERT model.

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/data/files/files.h"
#include "tern/data/files/sha256.h"
#include "tern/data/files/text.h"
#include "tern/data/files/utf8.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/kernels/base/check.h"

namespace tern::embedded {
std::string_view bert_base_uncased_vocab();
}

namespace tern::data {
namespace {

namespace fs = std::filesystem;

/// Removes trailing white space as Unicode defines it.
std::string_view trim_end(std::string_view line) {
  while (!line.empty()) {
    std::size_t at = line.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) --at;
    const char* p = line.data() + at;
    const char32_t c = unicode::decode_utf8(p, line.data() + line.size());
    // The cleaner drops these, so the table does not mark them as white space.
    const bool other_space = c == 0x0B || c == 0x0C || c == 0x85;
    if (!other_space && !(unicode::properties(c).flags & unicode::kSpace)) break;
    line = line.substr(0, at);
  }
  return line;
}

}  // namespace

WordPiece WordPiece::from_text(std::string_view vocabulary, const WordPieceOptions& options, const std::string& name) {
  std::string copy;
  TERN_CHECK(append_valid_utf8(vocabulary, copy) == 0, name, ": not UTF-8 text; expected one token a line");
  std::vector<std::string_view> tokens;
  for (std::size_t at = 0; at < vocabulary.size();) {
    const std::size_t stop = std::min(vocabulary.find('\n', at), vocabulary.size());
    tokens.push_back(trim_end(vocabulary.substr(at, stop - at)));
    at = stop + 1;
  }
  return WordPiece(build(tokens, name), options);
}

WordPiece WordPiece::from_file(const std::string& path, const WordPieceOptions& options) {
  std::string text;
  read_file(path, text);
  return from_text(text, options, path);
}

WordPiece WordPiece::from_embedded(const WordPieceOptions& options) {
  static const WordPiece shared = from_text(embedded::bert_base_uncased_vocab());
  return WordPiece(shared.vocabulary_, options);
}

WordPiece WordPiece::from_tokens(const std::vector<std::string_view>& tokens, const WordPieceOptions& options,
                                 const std::string& name) {
  return WordPiece(build(tokens, name), options);
}

void WordPiece::write_vocab(const std::string& path) const {
  std::string text;
  for (std::int32_t id = 0; id < vocab_size(); ++id) text.append(token(id)).push_back('\n');
  write_file_atomically(path, {text});
}

void WordPiece::save(const std::string& dir, std::int64_t model_max_length) const {
  nlohmann::ordered_json config;
  config["tokenizer_class"] = "BertTokenizer";
  config["do_lower_case"] = options_.lowercase;
  config["strip_accents"] = nullptr;
  if (options_.strip_accents) config["strip_accents"] = *options_.strip_accents;
  config["tokenize_chinese_chars"] = options_.split_cjk;
  config["model_max_length"] = model_max_length;
  if (limits_.cuts_left) config["truncation_side"] = "left";
  for (const auto& [token, id] : vocabulary_->special) {
    config[lower_ascii(token.substr(1, token.size() - 2)) + "_token"] = token;  // "cls_token" for "[CLS]"
  }
  write_vocab((fs::path(dir) / "vocab.txt").string());
  write_file_atomically(fs::path(dir) / "tokenizer_config.json", {config.dump(2), "\n"});
}

std::string WordPiece::content_hash() const {
  Sha256 digest;
  for (std::int64_t id = 0; id < vocab_size(); ++id) {
    digest.update(token(static_cast<std::int32_t>(id)));
    digest.update("\n");
  }
  digest.update(static_cast<uint64_t>(options_.lowercase));
  digest.update(static_cast<uint64_t>(options_.strip_accents.value_or(options_.lowercase)));
  digest.update(static_cast<uint64_t>(options_.split_cjk));
  digest.update(static_cast<uint64_t>(options_.max_word_chars));
  return digest.hex();
}

}  // namespace tern::data
