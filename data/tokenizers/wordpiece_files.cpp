// Reads and writes the tokenizer files that Hugging Face stores with a BERT model.

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
using nlohmann::json;
using namespace nlohmann::literals;

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

/// The value of a key that is true, false, or absent (or null).
std::optional<bool> read_flag(const json& object, const char* key, const fs::path& path) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  TERN_CHECK(found->is_boolean(), path.string(), ": ", key, " must be true or false, got ", shortened(*found));
  return found->get<bool>();
}

/// The vocabulary object {"token": id} as tokens indexed by id; the views point into the object.
std::vector<std::string_view> tokens_by_id(const json& vocabulary, const std::string& name) {
  TERN_CHECK(vocabulary.is_object(), name, ": model.vocab must be an object of tokens and ids");
  std::vector<std::string_view> tokens(vocabulary.size());
  std::vector<bool> seen(tokens.size());
  for (auto item = vocabulary.begin(); item != vocabulary.end(); ++item) {
    const json& id = item.value();
    const bool good =
        id.is_number_unsigned() && id.get<std::uint64_t>() < tokens.size() && !seen[id.get<std::size_t>()];
    TERN_CHECK(good, name, ": the ids of ", tokens.size(), " tokens must be 0 to ", tokens.size() - 1,
               ", each once; \"", detail::printable(item.key()), "\" has ", shortened(id));
    TERN_CHECK(item.key().find('\n') == std::string::npos, name, ": the token with id ", id.dump(),
               " has a line break");
    seen[id.get<std::size_t>()] = true;
    tokens[id.get<std::size_t>()] = item.key();
  }
  return tokens;
}

constexpr const char* kSpecial[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

/// Fails unless a token added to the vocabulary is one of kSpecial, without rules of its own: Tern matches no others.
void check_added(const json& added, const json& content, const std::string& name) {
  bool plain = std::find(std::begin(kSpecial), std::end(kSpecial), content) != std::end(kSpecial);
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"})
    plain = plain && (!added.is_object() || !added.contains(flag) || added[flag] == false);
  TERN_CHECK(plain, name, ": added tokens other than plain [PAD] [UNK] [CLS] [SEP] [MASK] are not supported: ",
             shortened(added.is_object() ? added : content));
}

/// Whether a post-processor puts [CLS] in front and [SEP] behind, and nothing else.
bool adds_cls_and_sep(const json& processor) {
  if (!processor.is_object() || !processor.contains("type")) return false;
  if (processor["type"] == "BertProcessing") return true;
  if (processor["type"] != "TemplateProcessing" || !processor.contains("single")) return false;
  const json expected = R"(["[CLS]", "A", "[SEP]"])"_json;
  json found = json::array();
  for (const json& part : processor["single"])
    for (const char* kind : {"SpecialToken", "Sequence"})
      if (part.is_object() && part.contains(kind) && part[kind].is_object() && part[kind].contains("id"))
        found.push_back(part[kind]["id"]);
  return found == expected && processor["single"].size() == expected.size();
}

/// Fails unless tokenizer.json describes BERT's tokenizer as it is implemented here.
void check_model(const json& root, const std::string& name) {
  const auto expect = [&](const char* path, const json& expected) {
    const json::json_pointer pointer(path);
    const json given = root.contains(pointer) ? root[pointer] : json();
    TERN_CHECK(given == expected, name, ": ", path, " must be ", expected.dump(), ", got ", shortened(given));
  };
  // Early files have no type; their "##" prefix implies WordPiece.
  if (root.contains("/model/type"_json_pointer)) expect("/model/type", "WordPiece");
  expect("/model/unk_token", "[UNK]");
  expect("/model/continuing_subword_prefix", "##");
  expect("/normalizer/type", "BertNormalizer");
  expect("/normalizer/clean_text", true);
  expect("/pre_tokenizer/type", "BertPreTokenizer");
  const json processor = root.contains("post_processor") ? root["post_processor"] : json();
  TERN_CHECK(adds_cls_and_sep(processor), name, ": /post_processor must add [CLS] and [SEP], as BERT's does; got ",
             shortened(processor));
  const json added_tokens = root.contains("added_tokens") ? root["added_tokens"] : json::array();
  TERN_CHECK(added_tokens.is_array(), name, ": added_tokens must be an array, got ", shortened(added_tokens));
  for (const json& added : added_tokens)
    check_added(added, added.is_object() && added.contains("content") ? added["content"] : json(), name);
}

/// Fails if tokenizer_config.json or special_tokens_map.json gives a special token another text or names more of them.
void check_special_tokens(const json& config, const std::string& name) {
  const auto text_of = [](const json& token) {
    return token.is_object() && token.contains("content") ? token["content"] : token;
  };
  for (const char* special : kSpecial) {
    const std::string token = special, key = lower_ascii(token.substr(1, token.size() - 2)) + "_token";
    const json given = config.contains(key) ? text_of(config[key]) : json();
    TERN_CHECK(given.is_null() || given == token, name, ": ", key, " must be ", token, ", got ", shortened(given));
  }
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"})
    if (config.contains(list))
      for (const json& token : config[list]) check_added(token, text_of(token), name);
  if (config.contains("added_tokens_decoder"))
    for (const json& token : config["added_tokens_decoder"]) check_added(token, text_of(token), name);
}

/// How a folder's files are to be read, by its tokenizer's class.
enum class Rules {
  kBert,     // the vocabulary is read, everything else is the class's or in tokenizer_config.json
  kWhole,    // everything is in tokenizer.json
  kUnnamed,  // no class: tokenizer.json, and what tokenizer_config.json has in place of it
};

/// Throws Error for a class that Tern does not have.
Rules rules_of(const fs::path& dir, const json& config) {
  json name = config.contains("tokenizer_class") ? config["tokenizer_class"] : json();
  fs::path source = dir / "tokenizer_config.json";
  const fs::path model = dir / "config.json";
  if (name.is_null() && detail::name_exists(model.string())) {
    const json fields = read_json_object(model.string());
    source = model;
    if (fields.contains("tokenizer_class")) name = fields["tokenizer_class"];
    const json type = fields.contains("model_type") ? fields["model_type"] : json();
    if (name.is_null() && (type == "distilbert" || type == "bert")) name = "BertTokenizer";
  }
  if (name.is_null()) return Rules::kUnnamed;
  for (const char* known : {"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast"})
    if (name == known) return Rules::kBert;
  TERN_CHECK(name == "PreTrainedTokenizerFast" || name == "TokenizersBackend", source.string(), ": tokenizer_class is ",
             shortened(name),
             ", which Tern does not have; it has BertTokenizer, DistilBertTokenizer, and PreTrainedTokenizerFast with "
             "BERT's parts");
  return Rules::kWhole;
}

/// The object in a file; an empty one if there is no file.
json object_in(const fs::path& path) {
  return detail::name_exists(path.string()) ? read_json_object(path.string()) : json::object();
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

WordPiece WordPiece::from_folder(const std::string& dir) {
  const fs::path folder(dir), vocab = folder / "vocab.txt", model = folder / "tokenizer.json",
                              settings = folder / "tokenizer_config.json";
  const bool has_vocab = detail::name_exists(vocab.string()), has_model = detail::name_exists(model.string());
  TERN_CHECK(has_vocab || has_model, dir, ": no tokenizer here; expected vocab.txt or tokenizer.json");
  const json config = object_in(settings);
  const Rules rules = rules_of(folder, config);
  TERN_CHECK(has_model || rules != Rules::kWhole, model.string(), ": no such file; the tokenizer_class of ",
             settings.string(), " needs it");
  check_special_tokens(config, settings.string());
  check_special_tokens(object_in(folder / "special_tokens_map.json"), (folder / "special_tokens_map.json").string());
  const json added = object_in(folder / "added_tokens.json");
  for (const auto& [token, id] : added.items()) check_added(id, token, (folder / "added_tokens.json").string());

  WordPieceOptions options;
  const auto apply = [&options](const json& from, const char* lowercase, const char* cjk, const fs::path& path) {
    options.lowercase = read_flag(from, lowercase, path).value_or(options.lowercase);
    if (from.contains("strip_accents")) options.strip_accents = read_flag(from, "strip_accents", path);
    options.split_cjk = read_flag(from, cjk, path).value_or(options.split_cjk);
  };
  json root;
  if (has_model) {
    root = read_json_object(model.string());
    check_model(root, model.string());
    const json& limit = root["model"]["max_input_chars_per_word"];  // null if absent
    const std::optional<std::int64_t> max_chars = integer_in(limit);
    TERN_CHECK(limit.is_null() || (max_chars && *max_chars >= 0), model.string(),
               ": /model/max_input_chars_per_word must be a whole number, got ", shortened(limit));
    if (rules != Rules::kBert) {
      apply(root["normalizer"], "lowercase", "handle_chinese_chars", model);
      if (max_chars) options.max_word_chars = static_cast<std::size_t>(*max_chars);
    }
  }
  if (rules != Rules::kWhole) apply(config, "do_lower_case", "tokenize_chinese_chars", settings);
  if (!has_model) return from_file(vocab.string(), options);
  return WordPiece(build(tokens_by_id(root["model"]["vocab"], model.string()), model.string()), options);
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
