#include <iostream>

#include "tern/data/tokenizers/wordpiece.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/line_input.h"
#include "tern/models/cli/run_folder.h"
#include "tern/models/cli/subcommand.h"

namespace tern::cli {
namespace {

struct TokenizeArguments {
  std::string vocab;
  std::vector<std::string> files;
  bool tokens = false, special = false, cased = false, jsonl = false;
  int64_t max_length = 0;
  CommonOptions common;
};

class LineTokenizer {
 public:
  LineTokenizer(const TokenizeArguments& arguments, const data::WordPiece& tokenizer)
      : a_(arguments), tokenizer_(tokenizer) {}

  void read(const std::string& file) {
    LineInput input(file);
    for (std::string line; input.next(line);) {
      if (!a_.jsonl) {
        write(line);
      } else if (line.find_first_not_of(" \t") != std::string::npos) {
        write(string_in(line, "text", input.place()));
      }
      TERN_CHECK(std::cout, "stdout: cannot be written (closed or full)");
      if (input.pauses()) std::cout.flush();
    }
  }

 private:
  void write(const std::string& text) {
    const size_t limit = a_.max_length > 0 ? static_cast<size_t>(a_.max_length) : data::WordPiece::kNoLimit;
    std::vector<int32_t> ids = a_.special ? tokenizer_.encode_special(text, limit) : tokenizer_.encode(text);
    if (ids.size() > limit) ids.resize(limit);
    std::string line;
    if (a_.jsonl) {
      Json json;
      if (a_.tokens) {
        json["tokens"] = Json::array();
        for (const int32_t id : ids) json["tokens"].push_back(std::string(tokenizer_.token(id)));
      } else {
        json["ids"] = ids;
      }
      line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    } else {
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i > 0) line += ' ';
        if (a_.tokens)
          line += tokenizer_.token(ids[i]);
        else
          line += std::to_string(ids[i]);
      }
    }
    std::cout << line << '\n';
  }

  const TokenizeArguments& a_;
  const data::WordPiece& tokenizer_;
};

int tokenize(const TokenizeArguments& a) {
  std::ios::sync_with_stdio(false);
  const data::WordPieceOptions options{.lowercase = !a.cased};
  const data::WordPiece tokenizer =
      a.vocab.empty() ? data::WordPiece::from_embedded(options) : data::WordPiece::from_file(a.vocab, options);
  LineTokenizer lines(a, tokenizer);
  if (a.files.empty()) lines.read("-");
  for (const std::string& name : a.files) lines.read(name);
  return 0;
}

}  // namespace

Command add_tokenize(CLI::App& app) {
  Subcommand c(app, "tokenize", "lines of text to WordPiece ids");
  auto a = std::make_shared<TokenizeArguments>();
  c.add_option("files", &a->files, "files of lines; - or none: stdin");
  c.add_option("--vocab", &a->vocab, "vocab.txt; default: bert-base-uncased's, which is built in");
  c.add_flag("--tokens", &a->tokens, "print the pieces instead of their ids");
  c.add_flag("--special", &a->special, "with [CLS] and [SEP]");
  c.add_flag("--cased", &a->cased, "keep case and accents");
  c.add_flag("--jsonl", &a->jsonl, "lines are {\"text\": ...}; answers {\"ids\": [...]}");
  c.add_option("--max-length", &a->max_length, "cut to this many tokens, special ones included")
      .whole_in(2, int64_t{1} << 40);
  add_common(c, a->common);
  c.footer("Example: echo 'Hello, world' | tern tokenize --special");
  return [a] { return tokenize(*a); };
}

}  // namespace tern::cli
