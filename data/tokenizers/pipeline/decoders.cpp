#include "tern/data/tokenizers/pipeline/decoders.h"

#include <algorithm>
#include <utility>

#include "tern/data/files/utf8.h"
#include "tern/data/tokenizers/characters.h"
#include "tern/data/tokenizers/pipeline/normalizers.h"
#include "tern/data/tokenizers/pipeline/patterns.h"

namespace tern::data {
namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view wanted, std::string_view content) {
  for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + content.size()))
    text.replace(at, wanted.size(), content);
}

struct DecoderSequence : Decoder {
  std::vector<std::unique_ptr<const Decoder>> parts;
  void apply(Tokens& tokens) const override {
    for (const auto& part : parts) part->apply(tokens);
  }
};

struct FuseDecoder : Decoder {
  void apply(Tokens& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {std::move(all)};
  }
};

struct WordPieceDecoder : Decoder {
  std::string prefix;
  bool cleanup;
  explicit WordPieceDecoder(const JsonField& field)
      : prefix(field.at("prefix").text()), cleanup(field.at("cleanup").boolean()) {}

  void apply(Tokens& tokens) const override {
    static constexpr std::pair<const char*, const char*> kCleaned[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i != 0 && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else if (i != 0) {
        token.insert(0, 1, ' ');
      }
      if (cleanup)
        for (const auto& [wanted, content] : kCleaned) replace_all(token, wanted, content);
    }
  }
};

struct ByteLevelDecoder : Decoder {
  void apply(Tokens& tokens) const override {
    std::string bytes, part;
    for (const std::string& token : tokens) {
      part.clear();
      for (const char *p = token.data(), *end = p + token.size(); p < end;) {
        const int byte = byte_of_character(unicode::next_code_point(p, end));
        if (byte < 0) {
          part = token;  // not a token of bytes
          break;
        }
        part += static_cast<char>(byte);
      }
      bytes += part;
    }
    std::string text;
    append_valid_utf8(bytes, text);
    tokens = {std::move(text)};
  }
};

struct MetaspaceDecoder : Decoder {
  std::string replacement;
  bool prepended;
  explicit MetaspaceDecoder(const JsonField& field)
      : replacement(field.at("replacement").one_character()),
        prepended(field.text_or("prepend_scheme", "always") != "never" && field.boolean_or("add_prefix_space", true)) {}
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], replacement, i == 0 && prepended ? "" : " ");
  }
};

struct BpeDecoder : Decoder {
  std::string suffix;
  explicit BpeDecoder(const JsonField& field) : suffix(field.at("suffix").text()) {
    if (suffix.empty()) field.at("suffix").reject("a text that is not empty");
  }
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
  }
};

struct ByteFallbackDecoder : Decoder {
  /// The byte of "<0x41>"; -1 for other tokens.
  static int byte_of(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    int value = 0;
    for (const char c : {token[3], token[4]}) {
      const bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'F', lower = c >= 'a' && c <= 'f';
      if (!digit && !upper && !lower) return -1;
      value = value * 16 + (digit ? c - '0' : upper ? c - 'A' + 10 : c - 'a' + 10);
    }
    return value;
  }

  void apply(Tokens& tokens) const override {
    Tokens out;
    std::string bytes;
    const auto flush = [&] {
      std::string text;
      if (bytes.empty()) return;
      if (append_valid_utf8(bytes, text) == 0) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), "\uFFFD");  // one for each byte of the run
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
};

struct StripDecoder : Decoder {
  std::string content;
  std::int64_t start, stop;
  explicit StripDecoder(const JsonField& field)
      : content(field.at("content").one_character()),
        start(field.at("start").integer(0, INT32_MAX)),
        stop(field.at("stop").integer(0, INT32_MAX)) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      for (std::int64_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
      for (std::int64_t i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
    }
  }
};

struct ReplaceDecoder : Decoder {
  std::unique_ptr<const Pattern> pattern;
  std::string content;
  explicit ReplaceDecoder(const JsonField& field)
      : pattern(read_pattern(field.at("pattern"))), content(field.at("content").text()) {}
  void apply(Tokens& tokens) const override {
    std::vector<Span> spans;
    for (std::string& token : tokens) {
      if (token.empty()) continue;
      spans.clear();
      pattern->find(token, spans);
      std::string out;
      for (const Span& span : spans)
        out +=
            span.match ? std::string_view(content) : std::string_view(token).substr(span.begin, span.end - span.begin);
      token = std::move(out);
    }
  }
};

}  // namespace

std::unique_ptr<const Decoder> read_decoder(const JsonField& field) {
  const std::string& type = field.at("type").text();
  if (type == "Sequence") {
    auto sequence = std::make_unique<DecoderSequence>();
    const JsonField parts = field.at("decoders");
    for (std::size_t i = 0; i < parts.size(); ++i) sequence->parts.push_back(read_decoder(parts[i]));
    return sequence;
  }
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(field);
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(field);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(field);
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Strip") return std::make_unique<StripDecoder>(field);
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(field);
  fail(field.where(), ": Tern does not have the decoder ", shortened(field.at("type").value()));
}

}  // namespace tern::data
