#include "tern/data/tokenizers/pipeline/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "tern/data/files/files.h"
#include "tern/data/files/sha256.h"
#include "tern/data/files/utf8.h"
#include "tern/data/tokenizers/pipeline/added_tokens.h"
#include "tern/data/tokenizers/pipeline/decoders.h"
#include "tern/data/tokenizers/pipeline/models.h"
#include "tern/data/tokenizers/pipeline/normalizers.h"
#include "tern/data/tokenizers/pipeline/post_processors.h"
#include "tern/data/tokenizers/pipeline/pre_tokenizers.h"
#include "tern/data/tokenizers/pipeline/tokenizer_json_reader.h"

namespace tern::data {

struct TokenizerJson::Parts {
  std::string name, hash, text;
  std::array<std::string, 5> special;  // by SpecialToken
  TextLimits limits;
  std::unique_ptr<const Normalizer> normalizer;
  std::vector<std::unique_ptr<const PreTokenizer>> pre_tokenizers;
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  AddedTokens added;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  std::unique_ptr<const Decoder> decoder;

  explicit Parts(const JsonField& root) {
    if (const auto version = root.find("version"))
      if (version->value() != "1.0") version->reject("the version \"1.0\"");
    if (const auto part = root.find("normalizer")) normalizer = read_normalizer(*part);
    model = read_model(root.at("model"));
    if (const auto part = root.find("pre_tokenizer"))
      pre_tokenizers = read_pre_tokenizers(*part, [this] { return model->take_bytes(); });
    if (const auto part = root.find("post_processor")) post_processor = PostProcessor(*part);
    if (const auto part = root.find("added_tokens")) added.read(*part, *model, normalizer.get());
    if (const auto part = root.find("truncation")) truncation.emplace(*part);
    if (const auto part = root.find("padding")) padding.emplace(*part);
    if (const auto part = root.find("decoder")) decoder = read_decoder(*part);
    post_processor.for_each_id([&](std::int32_t id) {
      TERN_CHECK(added.find(id) != nullptr || model->token(id), root.at("post_processor").where(),
                 ": no token has the id ", id, ", which is put around a sequence");
    });
  }

  /// Text without added tokens that are not normalized; `at_start`: it is at the start of the input.
  void encode_text(std::string_view text, bool at_start, std::vector<std::int32_t>& ids) const {
    if (text.empty()) return;
    std::string normalized(text);
    std::size_t origin = 0;
    if (at_start) {
      const char* p = normalized.data();
      unicode::next_code_point(p, p + normalized.size());
      origin = static_cast<std::size_t>(p - normalized.data());
    }
    if (normalizer) normalizer->apply(normalized, origin);
    std::vector<Section> sections;
    added.split(normalized, true, sections);
    Words words;
    for (const Section& section : sections) {
      if (section.id >= 0) {
        ids.push_back(section.id);
        continue;
      }
      const Word whole{0, normalized.size(), origin};
      words.list.clear();
      Words::append_part(words.list, whole, section.begin, section.end);
      if (sections.size() == 1) {
        words.text = std::move(normalized);
      } else {
        words.text.assign(normalized, section.begin, section.end - section.begin);
        for (Word& word : words.list) word = {0, words.text.size(), word.origin};
      }
      for (const auto& part : pre_tokenizers) part->apply(words);
      for (const Word& word : words.list) model->encode(words.view(word), ids);
    }
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const {
    std::vector<Section> sections;
    added.split(text, false, sections);
    for (const Section& section : sections) {
      if (section.id >= 0) {
        ids.push_back(section.id);
      } else {
        encode_text(text.substr(section.begin, section.end - section.begin), section.begin == 0, ids);
      }
    }
  }
};

TokenizerJson TokenizerJson::from_text(std::string_view json, const std::string& name) {
  return TokenizerJsonReader::read(parse_json_object(json, name), name);
}

TokenizerJson TokenizerJsonReader::read(const nlohmann::json& root, const std::string& name,
                                        const TokenizerFacts& facts) {
  auto parts = std::make_shared<TokenizerJson::Parts>(JsonField(root, name));
  parts->name = name;
  parts->text = root.dump();
  for (std::size_t i = 0; i < facts.special.size(); ++i)
    if (!facts.special[i].empty()) parts->special[i] = facts.special[i];
  if (facts.limits)
    parts->limits = *facts.limits;
  else if (parts->truncation)
    parts->limits.cuts_left = parts->truncation->left;
  Sha256 digest;
  digest.update("tokenizer.json\n");
  digest.update(parts->text);
  parts->hash = digest.hex();
  return TokenizerJson(std::move(parts));
}

TokenizerJson TokenizerJson::from_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  const std::string file = fs::is_directory(path, none) ? (fs::path(path) / "tokenizer.json").string() : path;
  std::string text;
  read_file(file, text);
  return from_text(text, file);
}

std::size_t TokenizerJson::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  std::string valid;
  valid.reserve(text.size());
  const auto replaced = static_cast<std::size_t>(append_valid_utf8(text, valid));
  parts_->encode(valid, ids);
  return replaced;
}

std::vector<std::int32_t> TokenizerJson::finish(std::vector<std::int32_t> ids, std::size_t max_length,
                                                bool special) const {
  const PostProcessor& processor = parts_->post_processor;
  const std::size_t around = special ? processor.added() : 0;
  if (max_length != kNoLimit) {
    TERN_CHECK(max_length >= around, parts_->name, ": max_length must be at least ", around,
               ", the number of special tokens, got ", max_length);
    Truncation::cut(ids, max_length - around, parts_->limits.cuts_left);
  }
  processor.apply(ids, special);
  return ids;
}

std::vector<std::int32_t> TokenizerJson::encode_special(std::string_view text, std::size_t max_length,
                                                        std::size_t* replaced) const {
  std::vector<std::int32_t> ids;
  const std::size_t count = encode(text, ids);
  if (replaced != nullptr) *replaced = count;
  return finish(std::move(ids), max_length, true);
}

std::vector<std::int32_t> TokenizerJson::encode_as_library(std::string_view text, bool special) const {
  std::vector<std::int32_t> ids;
  encode(text, ids);
  ids = finish(std::move(ids), parts_->truncation ? parts_->truncation->max_length : kNoLimit, special);
  if (parts_->padding) parts_->padding->apply(ids);
  return ids;
}

std::string TokenizerJson::decode(const std::vector<std::int32_t>& ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    const AddedToken* added = parts_->added.find(id);
    const auto model = added == nullptr ? parts_->model->token(id) : std::nullopt;
    if (added == nullptr && !model) continue;
    const std::string token(added != nullptr ? std::string_view(added->decoded) : *model);
    if (!skip_special || !parts_->added.is_special(token)) tokens.push_back(token);
  }
  std::string text;
  if (parts_->decoder && !tokens.empty()) parts_->decoder->apply(tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !parts_->decoder) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::string_view TokenizerJson::token(std::int32_t id) const {
  if (const AddedToken* added = parts_->added.find(id)) return added->content;
  const auto token = parts_->model->token(id);
  TERN_CHECK(token, parts_->name, ": no token has the id ", id);
  return *token;
}

std::optional<std::int32_t> TokenizerJson::id(std::string_view token) const {
  if (const auto added = parts_->added.id(token)) return added;
  const std::int32_t found = parts_->model->id(token);
  return found >= 0 ? std::optional(found) : std::nullopt;
}

std::int64_t TokenizerJson::vocab_size() const { return std::max(parts_->model->bound(), parts_->added.bound()); }

TokensAround TokenizerJson::around() const { return parts_->post_processor.around(parts_->name); }

PairPattern TokenizerJson::pair() const { return parts_->post_processor.pair(parts_->name); }

std::optional<std::int32_t> TokenizerJson::special(SpecialToken token) const {
  const std::string& text = parts_->special[static_cast<std::size_t>(token)];
  return text.empty() ? std::nullopt : id(text);
}

TextLimits TokenizerJson::limits() const { return parts_->limits; }

void TokenizerJson::save(const std::string& dir, std::int64_t model_max_length) const {
  namespace fs = std::filesystem;
  nlohmann::ordered_json config;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";  // which reads the file as it is
  config["model_max_length"] = model_max_length;
  config["truncation_side"] = parts_->limits.cuts_left ? "left" : "right";
  constexpr const char* kKeys[] = {"unk_token", "cls_token", "sep_token", "pad_token", "mask_token"};
  for (std::size_t i = 0; i < parts_->special.size(); ++i)
    if (parts_->added.id(parts_->special[i])) config[kKeys[i]] = parts_->special[i];  // naming a token adds it
  write_file_atomically(fs::path(dir) / "tokenizer.json", {parts_->text, "\n"});
  write_file_atomically(fs::path(dir) / "tokenizer_config.json", {config.dump(2), "\n"});
}

std::string TokenizerJson::content_hash() const { return parts_->hash; }

}  // namespace tern::data
