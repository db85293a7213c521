#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tern/data/files/text.h"
#include "tern/data/hub/hub.h"
#include "tern/data/tokenizers/pipeline/tokenizer_json.h"
#include "tern/data/tokenizers/read_tokenizer.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/commands/line_input.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/options/common_options.h"
#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/run/run_folder.h"

namespace tern::cli {
namespace {

struct TokenizeOptions : CommonOptions {
  using Self = TokenizeOptions;
  std::vector<std::string> files =
      option(&Self::files, {}, "files",
             "files of lines, or .csv, .tsv and .jsonl files with a text column; - or none: lines of stdin");
  std::string vocab =
      option(&Self::vocab, "", "--vocab",
             "vocab.txt, tokenizer.json or a folder with one of them, or the name of a model on Hugging Face's hub "
             "(ORG/NAME[@REVISION]); default: that of BERT base uncased, which is built in");
  bool tokens = option(&Self::tokens, false, "--tokens", "print the pieces instead of their ids");
  bool special =
      option(&Self::special, false, "--special", "with the tokens that are put around a text, as [CLS] and [SEP]");
  bool cased = option(&Self::cased, false, "--cased", "keep case and accents");
  bool jsonl =
      option(&Self::jsonl, false, "--jsonl",
             "lines are {\"text\": ...}; answers {\"ids\": [...]}; of a pair of texts, which has also \"text_pair\", "
             "with \"token_types\"");
  int64_t max_length = option(&Self::max_length, 0, "--max-length", "cut to this many tokens, special ones included",
                              Bounds{2, int64_t{1} << 40});
};

/// The tokenizer that --vocab and --cased name. With a tokenizer.json the ids are those of Hugging Face's
/// Tokenizer.encode(), with the file's truncation and padding. A folder without one is read as predict reads it.
class ChosenTokenizer {
 public:
  explicit ChosenTokenizer(const TokenizeOptions& a) {
    std::error_code none;
    const std::string vocab = data::local_model(a.vocab, data::HubUse::kTokenizer, [&](const std::string& line) {
      if (!a.quiet) std::cerr << line << "\n";
    });
    const bool folder = std::filesystem::is_directory(vocab, none);
    TERN_CHECK(!a.cased || !(folder || vocab.ends_with(".json")), "--cased is for a vocab.txt; ", vocab,
               " says itself what happens to case");
    const data::WordPieceOptions options{.lowercase = !a.cased};
    if (vocab.ends_with(".json") ||
        (folder && std::filesystem::exists(std::filesystem::path(vocab) / "tokenizer.json", none)))
      tokenizer_ = json_ = std::make_shared<data::TokenizerJson>(data::TokenizerJson::from_file(vocab));
    else if (folder)
      tokenizer_ = data::read_tokenizer(vocab);
    else
      tokenizer_ = std::make_shared<data::WordPiece>(vocab.empty() ? data::WordPiece::from_embedded(options)
                                                                   : data::WordPiece::from_file(vocab, options));
  }

  const data::Tokenizer& get() const { return *tokenizer_; }
  /// Two texts as one sequence. The truncation and padding of a tokenizer.json do not apply, as in transformers.
  data::TypedIds encode_pair(const std::string& text, const std::string& pair, bool special, size_t limit) const {
    data::PairPattern pattern = get().pair();
    if (!special)
      std::erase_if(pattern.parts, [](const auto& part) { return part.source == data::PairPattern::Source::kSpecial; });
    data::TypedIds joined;
    std::vector<int32_t> first, second;
    get().encode(text, first);
    get().encode(pair, second);
    pattern.append(std::move(first), std::move(second), limit, get().limits().cuts_left, joined);
    return joined;
  }
  std::vector<int32_t> encode(const std::string& text, bool special, size_t limit) const {
    if (json_ && limit == data::Tokenizer::kNoLimit) return json_->encode_as_library(text, special);
    if (special) return get().encode_special(text, limit);
    std::vector<int32_t> ids;
    get().encode(text, ids);
    if (ids.size() > limit) ids.resize(limit);
    return ids;
  }

 private:
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  std::shared_ptr<const data::TokenizerJson> json_;  // the same, if it is one that was asked for as a file
};

class LineTokenizer {
 public:
  LineTokenizer(const TokenizeOptions& arguments, const ChosenTokenizer& tokenizer)
      : a_(arguments), tokenizer_(tokenizer) {}

  void read(const std::string& file) {
    for_each_text(file, {.jsonl = a_.jsonl}, [&](const GivenText& text, bool pauses) {
      write(text);
      check_output();
      if (pauses) std::cout.flush();
    });
  }

 private:
  void write(const GivenText& text) {
    const size_t limit = a_.max_length > 0 ? static_cast<size_t>(a_.max_length) : data::Tokenizer::kNoLimit;
    const auto [ids, types] = text.pair ? tokenizer_.encode_pair(text.text, *text.pair, a_.special, limit)
                                        : data::TypedIds{tokenizer_.encode(text.text, a_.special, limit), {}};
    if (a_.jsonl && !a_.tokens) {
      Json answer = Json::object({{"ids", ids}});
      if (text.pair) answer["token_types"] = types;
      std::cout << json_text(answer) << '\n';
      return;
    }
    std::vector<std::string> words;
    for (const int32_t id : ids)
      words.push_back(a_.tokens ? std::string(tokenizer_.get().token(id)) : std::to_string(id));
    std::cout << (a_.jsonl ? json_text(Json::object({{"tokens", words}})) : data::join(words, " ")) << '\n';
  }

  const TokenizeOptions& a_;
  const ChosenTokenizer& tokenizer_;
};

int tokenize(const TokenizeOptions& a) {
  std::ios::sync_with_stdio(false);
  const ChosenTokenizer tokenizer(a);
  LineTokenizer lines(a, tokenizer);
  if (a.files.empty()) lines.read("-");
  for (const std::string& name : a.files) lines.read(name);
  return 0;
}

}  // namespace

Command tokenize_command() {
  const auto options = std::make_shared<TokenizeOptions>();
  return {"tokenize", "lines of text to token ids", "Example: echo 'Hello, world' | tern tokenize --special", options,
          [options] { return tokenize(*options); }};
}

}  // namespace tern::cli
