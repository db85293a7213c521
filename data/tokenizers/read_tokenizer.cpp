// The tokenizer files that Hugging Face stores with a model.

#include "tern/data/tokenizers/read_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tern/core/io/file_kind.h"
#include "tern/core/io/json.h"
#include "tern/core/io/pickle.h"
#include "tern/data/tokenizers/pipeline/tokenizer_json_reader.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace nlohmann::literals;

constexpr SpecialToken kSpecialKinds[] = {SpecialToken::kUnknown, SpecialToken::kClassify, SpecialToken::kSeparator,
                                          SpecialToken::kPadding, SpecialToken::kMask};

/// What the names of transformers' classes begin with whose tokenizer.json says everything.
constexpr std::string_view kWholeFiles[] = {
    "PreTrained", "TokenizersBackend", "Roberta", "XLMRoberta", "Camembert", "Albert", "Bart",  "MBart",
    "GPT2",       "GPTNeoX",           "MPNet",   "Deberta",    "DebertaV2", "T5",     "Llama", "Gemma",
    "Qwen2",      "Pegasus",           "BigBird", "FNet",       "Barthez",   "XLNet",  "CLIP",  "Longformer"};

/// The key that names it in a configuration, and what it is usually called if none does.
struct SpecialName {
  const char* key;
  std::vector<const char*> usual;
};
SpecialName special_name(SpecialToken token) {
  switch (token) {
    case SpecialToken::kUnknown:
      return {"unk_token", {"[UNK]", "<unk>"}};
    case SpecialToken::kClassify:
      return {"cls_token", {"[CLS]", "<s>"}};
    case SpecialToken::kSeparator:
      return {"sep_token", {"[SEP]", "</s>"}};
    case SpecialToken::kPadding:
      return {"pad_token", {"[PAD]", "<pad>"}};
    case SpecialToken::kMask:
      break;
  }
  return {"mask_token", {"[MASK]", "<mask>"}};
}

bool is_berts_special(const std::string& text) {
  return std::ranges::any_of(kSpecialKinds, [&](SpecialToken token) { return text == name_of(token); });
}

/// The object in a file; an empty one if there is no file.
json object_in(const fs::path& path) {
  return tern::detail::name_exists(path.string()) ? read_json_object(path.string()) : json::object();
}

/// The value of a key that is true, false, or absent (or null).
std::optional<bool> flag_in(const json& object, const char* key, const std::string& source) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  TERN_CHECK(found->is_boolean(), source, ": ", key, " must be true or false, got ", shortened(*found));
  return found->get<bool>();
}

/// The text of a token: a string, or an object with a content.
std::string content_of(const json& token, const std::string& source) {
  const json& text = token.is_object() && token.contains("content") ? token["content"] : token;
  TERN_CHECK(text.is_string() && !text.get_ref<const std::string&>().empty(), source,
             ": a token must be a text or an object with a content, got ", shortened(token));
  return text.get<std::string>();
}

/// The files of a folder, and what they say.
class TokenizerFolder {
 public:
  explicit TokenizerFolder(const std::string& dir)
      : dir_(dir),
        config_path_((dir_ / "tokenizer_config.json").string()),
        config_(object_in(config_path_)),
        map_path_((dir_ / "special_tokens_map.json").string()),
        map_(object_in(map_path_)) {
    const std::string path = file("tokenizer.json");
    if (exists("tokenizer.json")) root_ = read_json_object(path);
    find_class();
  }

  std::shared_ptr<const Tokenizer> read(const ReadTokenizerOptions& options) {
    if (root_.is_null()) return word_piece_of_vocab(options);
    apply_class();
    add_tokens();
    if (options.lowercase) lowercase_first();
    if (is_berts()) return word_piece();
    return std::make_shared<TokenizerJson>(
        TokenizerJsonReader::read(root_, file("tokenizer.json"), {special_names(), limits()}));
  }

 private:
  std::string file(const char* name) const { return (dir_ / name).string(); }
  bool exists(const char* name) const { return tern::detail::name_exists(file(name)); }

  void find_class() {
    json name = config_.contains("tokenizer_class") ? config_["tokenizer_class"] : json();
    if (name.is_null() && exists("config.json")) {
      const json fields = read_json_object(file("config.json"));
      if (fields.contains("tokenizer_class")) name = fields["tokenizer_class"];
      const json type = fields.contains("model_type") ? fields["model_type"] : json();
      if (name.is_null() && (type == "distilbert" || type == "bert")) name = "BertTokenizer";
    }
    has_class_ = !name.is_null();
    const std::string kind = kind_of_class(name);
    for (const char* known : {"Bert", "DistilBert", "Electra", "MobileBert"})
      is_bert_class_ = is_bert_class_ || kind == known;
    if (!root_.is_null()) {
      TERN_CHECK(!has_class_ || is_bert_class_ || std::ranges::find(kWholeFiles, kind) != std::end(kWholeFiles),
                 (config_.contains("tokenizer_class") ? config_path_ : file("config.json")), ": tokenizer_class is ",
                 shortened(name), ", which Tern does not have");
      set_prefix_space();
      return;
    }
    for (const char* other : {"vocab.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model"})
      TERN_CHECK(!exists(other) || exists("vocab.txt"), file(other),
                 ": Tern reads tokenizer.json, or BERT's vocab.txt; transformers' save_pretrained writes the former");
    TERN_CHECK(exists("vocab.txt"), dir_.string(), ": no tokenizer here; expected vocab.txt or tokenizer.json");
    TERN_CHECK(!has_class_ || is_bert_class_, file("tokenizer.json"), ": no such file; the tokenizer_class ",
               shortened(name), " needs it; vocab.txt alone is BERT's");
  }

  /// "Roberta" of "RobertaTokenizerFast".
  static std::string kind_of_class(const json& name) {
    std::string kind = name.is_string() ? name.get<std::string>() : "";
    for (const char* ending : {"Fast", "Tokenizer"})
      if (kind.ends_with(ending)) kind.resize(kind.size() - std::string_view(ending).size());
    return kind;
  }

  /// Of tokenizer_config.json, which transformers' classes of byte-level tokenizers follow.
  void set_prefix_space() {
    const auto given = flag_in(config_, "add_prefix_space", config_path_);
    const json::json_pointer type("/pre_tokenizer/type");
    if (given && has_class_ && root_.contains(type) && root_[type] == "ByteLevel")
      root_["pre_tokenizer"]["add_prefix_space"] = *given;
  }

  /// The settings of tokenizer_config.json in place of those in tokenizer.json.
  void apply_class() {
    const auto set = [&](const char* path, const json& value) { root_[json::json_pointer(path)] = value; };
    if (is_bert_class_) {
      const json::json_pointer type("/model/type");
      const json model = root_.contains(type) ? root_[type] : json("WordPiece");
      TERN_CHECK(model == "WordPiece", file("tokenizer.json"), ": /model/type is ", shortened(model),
                 ", but the tokenizer_class is BERT's, which is WordPiece");
      TERN_CHECK(root_.contains("model") && root_["model"].is_object(), file("tokenizer.json"),
                 ": /model must be an object");
      set("/model/unk_token", config_name(SpecialToken::kUnknown).value_or("[UNK]"));
      set("/model/continuing_subword_prefix", "##");
      set("/model/max_input_chars_per_word", WordPieceOptions().max_word_chars);
      root_["normalizer"] = R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                                "strip_accents": null, "lowercase": true})"_json;
      root_["pre_tokenizer"] = R"({"type": "BertPreTokenizer"})"_json;
      root_["decoder"] = R"({"type": "WordPiece", "prefix": "##", "cleanup": true})"_json;
      root_["post_processor"] = berts_template();
    } else if (has_class_ || !is_berts_normalizer()) {
      return;
    }
    json& normalizer = root_["normalizer"];
    if (const auto given = flag_in(config_, "do_lower_case", config_path_)) normalizer["lowercase"] = *given;
    if (config_.contains("strip_accents")) {
      flag_in(config_, "strip_accents", config_path_);
      normalizer["strip_accents"] = config_["strip_accents"];
    }
    if (const auto given = flag_in(config_, "tokenize_chinese_chars", config_path_))
      normalizer["handle_chinese_chars"] = *given;
  }

  bool is_berts_normalizer() const {
    return root_.contains("normalizer") && root_["normalizer"].is_object() &&
           root_["normalizer"].value("type", json()) == "BertNormalizer";
  }

  json berts_template() const {
    json tokens = json::object(), parts = json::array(), pair = json::array();
    for (const SpecialToken token : {SpecialToken::kClassify, SpecialToken::kSeparator}) {
      const std::string name = config_name(token).value_or(name_of(token));
      const std::optional<std::int64_t> id = id_in_vocabulary(name);
      TERN_CHECK(id, file("tokenizer.json"), ": the vocabulary has no ", tern::detail::printable(name),
                 ", which BERT's tokenizer puts around a text");
      tokens[name] = {{"id", name}, {"ids", {*id}}, {"tokens", {name}}};
      parts.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    }
    parts.insert(parts.begin() + 1, json{{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    pair = parts;
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    pair.push_back(parts[2]);
    pair[4]["SpecialToken"]["type_id"] = 1;
    return {{"type", "TemplateProcessing"}, {"single", parts}, {"pair", pair}, {"special_tokens", tokens}};
  }

  /// What tokenizer_config.json or special_tokens_map.json calls a special token.
  std::optional<std::string> config_name(SpecialToken token) const {
    const char* key = special_name(token).key;
    for (const auto& [object, path] : {std::pair{&config_, &config_path_}, std::pair{&map_, &map_path_}})
      if (const auto found = object->find(key); found != object->end() && !found->is_null())
        return content_of(*found, *path + ": " + key);
    return std::nullopt;
  }

  std::optional<std::int64_t> id_in_vocabulary(const std::string& token) const {
    const json::json_pointer path("/model/vocab");
    if (!root_.contains(path)) return std::nullopt;
    const json& vocabulary = root_[path];
    if (vocabulary.is_object()) {
      const auto found = vocabulary.find(token);
      return found == vocabulary.end() ? std::nullopt : integer_in(*found);
    }
    if (!vocabulary.is_array()) return std::nullopt;
    const auto found = std::ranges::find_if(
        vocabulary, [&](const json& piece) { return piece.is_array() && !piece.empty() && piece[0] == token; });
    return found == vocabulary.end() ? std::nullopt : std::optional<std::int64_t>(found - vocabulary.begin());
  }

  bool is_added(const std::string& token) const {
    const auto added = root_.find("added_tokens");
    return added != root_.end() && added->is_array() && std::ranges::any_of(*added, [&](const json& entry) {
             return entry.is_object() && entry.contains("content") && entry["content"] == token;
           });
  }

  /// A token that another file names is an added token, as in transformers, which gives it a new id if the vocabulary
  /// lacks it; here that is an error. `optional`: then it is left out.
  void add_token(const json& token, const std::string& source, bool optional) {
    const std::string content = content_of(token, source);
    if (is_added(content)) return;
    const std::optional<std::int64_t> id = id_in_vocabulary(content);
    if (!id && optional) return;
    TERN_CHECK(id, source, ": the token ", tern::detail::printable(content),
               " is not in tokenizer.json; save the folder with transformers' save_pretrained, which writes it there");
    const auto flag = [&](const char* name) {
      return token.is_object() && flag_in(token, name, source).value_or(false);
    };
    json entry = {{"id", *id}, {"content", content}, {"special", true}};
    for (const char* name : {"single_word", "lstrip", "rstrip", "normalized"}) entry[name] = flag(name);
    root_["added_tokens"].push_back(std::move(entry));
  }

  void add_tokens() {
    json& added = root_["added_tokens"];
    if (added.is_null()) added = json::array();
    TERN_CHECK(added.is_array(), file("tokenizer.json"), ": added_tokens must be an array, got ", shortened(added));
    for (json& entry : added)  // early files leave out flags that are false
      for (const char* name : {"single_word", "lstrip", "rstrip", "normalized", "special"})
        if (entry.is_object() && !entry.contains(name)) entry[name] = false;
    for (const auto& [object, path] : {std::pair{&config_, &config_path_}, std::pair{&map_, &map_path_}}) {
      for (const char* key :
           {"unk_token", "cls_token", "sep_token", "pad_token", "mask_token", "bos_token", "eos_token"})
        if (const auto found = object->find(key); found != object->end() && !found->is_null())
          add_token(*found, *path + ": " + key, is_berts_special(content_of(*found, *path + ": " + key)));
      for (const char* key : {"additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"})
        if (const auto found = object->find(key); found != object->end())
          for (const json& token : *found) add_token(token, *path + ": " + key, false);
    }
    const json more = object_in(file("added_tokens.json"));
    for (const auto& [token, id] : more.items()) add_token(token, file("added_tokens.json"), false);
    if (const json padding = padding_token(); padding.is_string() && !config_name(SpecialToken::kPadding))
      add_token(padding, file("tokenizer.json") + ": /padding/pad_token", true);
    for (const SpecialToken token : kSpecialKinds)
      if (is_bert_class_ && !config_name(token)) add_token(name_of(token), config_path_, true);
  }

  void lowercase_first() {
    json& normalizer = root_["normalizer"];
    const auto lowers = [](const json& part) {
      return part.is_object() &&
             (part.value("type", json()) == "Lowercase" ||
              (part.value("type", json()) == "BertNormalizer" && part.value("lowercase", json()) == true));
    };
    json parts = normalizer.is_null() ? json::array() : json::array({normalizer});
    if (normalizer.is_object() && normalizer.value("type", json()) == "Sequence" &&
        normalizer.value("normalizers", json()).is_array())
      parts = normalizer["normalizers"];
    if (std::ranges::any_of(parts, lowers)) return;
    parts.insert(parts.begin(), json{{"type", "Lowercase"}});
    normalizer = {{"type", "Sequence"}, {"normalizers", parts}};
  }

  /// Whether everything is as in BERT's own tokenizer.json, up to case, accents, ideographs, the longest word, and a
  /// vocabulary whose ids are 0, 1, 2...
  bool is_berts() {
    const auto has = [&](const char* path, const json& value) {
      const json::json_pointer at(path);
      return (root_.contains(at) ? root_[at] : json()) == value;
    };
    const bool parts = has("/normalizer/type", "BertNormalizer") && has("/normalizer/clean_text", true) &&
                       has("/pre_tokenizer/type", "BertPreTokenizer") && has("/model/unk_token", "[UNK]") &&
                       has("/model/continuing_subword_prefix", "##") &&
                       (has("/model/type", "WordPiece") || has("/model/type", json()));
    if (!parts || !puts_cls_and_sep_around()) return false;
    for (const json& entry : root_["added_tokens"]) {
      if (!entry.is_object() || !entry["content"].is_string()) return false;
      bool plain = is_berts_special(entry["content"].get<std::string>());
      for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) plain = plain && entry[flag] == false;
      if (!plain) return false;
    }
    for (const SpecialToken token : kSpecialKinds)
      if (config_name(token).value_or(name_of(token)) != name_of(token)) return false;
    const json& limit = root_["model"]["max_input_chars_per_word"];
    return (limit.is_null() || integer_in(limit).value_or(0) >= 1) && put_tokens_in_order();
  }

  bool puts_cls_and_sep_around() const {
    const json processor = root_.contains("post_processor") ? root_["post_processor"] : json();
    if (!processor.is_object()) return false;
    const json type = processor.value("type", json());
    if (type == "BertProcessing") return true;
    if (type != "TemplateProcessing") return false;
    const json pair = processor.value("pair", json());
    return has_berts_pieces(processor.value("single", json()), 3) && (pair.is_null() || has_berts_pieces(pair, 5));
  }

  /// Whether a template is the beginning of BERT's for pairs, that many pieces; of the single text any types.
  static bool has_berts_pieces(const json& pieces, size_t count) {
    if (!pieces.is_array() || pieces.size() != count) return false;
    const char* expected[][2] = {{"SpecialToken", "[CLS]"},
                                 {"Sequence", "A"},
                                 {"SpecialToken", "[SEP]"},
                                 {"Sequence", "B"},
                                 {"SpecialToken", "[SEP]"}};
    for (size_t i = 0; i < count; ++i) {
      const json part = pieces[i].is_object() ? pieces[i].value(expected[i][0], json()) : json();
      if (!part.is_object() || part.value("id", json()) != expected[i][1]) return false;
      if (count == 5 && part.value("type_id", json()) != (i < 3 ? 0 : 1)) return false;
    }
    return true;
  }

  /// Fills tokens_; false if the ids are not 0, 1, 2..., or WordPiece cannot hold a token.
  bool put_tokens_in_order() {
    const json& vocabulary = root_["model"]["vocab"];
    if (!vocabulary.is_object()) return false;
    tokens_.assign(vocabulary.size(), {});
    std::vector<bool> seen(tokens_.size());
    for (auto item = vocabulary.begin(); item != vocabulary.end(); ++item) {
      const auto id = static_cast<size_t>(integer_in(item.value()).value_or(-1));
      if (id >= tokens_.size() || seen[id] || item.key().find('\n') != std::string::npos) return false;
      seen[id] = true;
      tokens_[id] = item.key();
    }
    return true;
  }

  std::shared_ptr<const Tokenizer> word_piece() {
    const json& normalizer = root_["normalizer"];
    const std::string source = file("tokenizer.json");
    const json& limit = root_["model"]["max_input_chars_per_word"];
    const WordPieceOptions defaults,
        options{.lowercase = flag_in(normalizer, "lowercase", source).value_or(true),
                .strip_accents = flag_in(normalizer, "strip_accents", source),
                .split_cjk = flag_in(normalizer, "handle_chinese_chars", source).value_or(true),
                .max_word_chars = limit.is_null() ? defaults.max_word_chars : limit.get<size_t>()};
    return std::make_shared<WordPiece>(WordPiece::from_tokens(tokens_, options, source).with(limits()));
  }

  std::shared_ptr<const Tokenizer> word_piece_of_vocab(const ReadTokenizerOptions& given) {
    WordPieceOptions options;
    options.lowercase = flag_in(config_, "do_lower_case", config_path_).value_or(options.lowercase);
    options.strip_accents = flag_in(config_, "strip_accents", config_path_);
    options.split_cjk = flag_in(config_, "tokenize_chinese_chars", config_path_).value_or(options.split_cjk);
    if (given.lowercase && !options.lowercase) {
      options.strip_accents = options.strip_accents.value_or(false);
      options.lowercase = true;
    }
    const auto plain = [&](const json& token, const std::string& source) {
      bool flags = false;
      for (const char* name : {"single_word", "lstrip", "rstrip", "normalized"})
        flags = flags || (token.is_object() && flag_in(token, name, source).value_or(false));
      TERN_CHECK(is_berts_special(content_of(token, source)) && !flags, source,
                 ": with vocab.txt alone, added tokens other than plain [PAD] [UNK] [CLS] [SEP] [MASK] are not "
                 "supported: ",
                 shortened(token), "; save a tokenizer.json with transformers' save_pretrained");
    };
    for (const auto& [object, path] : {std::pair{&config_, &config_path_}, std::pair{&map_, &map_path_}}) {
      for (const SpecialToken token : kSpecialKinds) {
        const auto found = object->find(special_name(token).key);
        if (found == object->end() || found->is_null()) continue;
        const std::string source = *path + ": " + special_name(token).key;
        TERN_CHECK(content_of(*found, source) == name_of(token), source, " must be ", name_of(token), ", got ",
                   shortened(*found), "; with another name it needs a tokenizer.json");
      }
      for (const char* key : {"additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"})
        if (const auto found = object->find(key); found != object->end())
          for (const json& token : *found) plain(token, *path + ": " + key);
    }
    const json more = object_in(file("added_tokens.json"));
    for (const auto& [token, id] : more.items()) plain(token, file("added_tokens.json"));
    return std::make_shared<WordPiece>(WordPiece::from_file(file("vocab.txt"), options).with(limits()));
  }

  json padding_token() const {
    const json::json_pointer at("/padding/pad_token");
    return root_.contains(at) ? root_[at] : json();
  }

  std::vector<std::string> special_names() const {
    std::vector<std::string> names;
    const json padding = padding_token();
    for (const SpecialToken token : kSpecialKinds) {
      std::string name = config_name(token).value_or("");
      if (name.empty() && token == SpecialToken::kPadding && padding.is_string()) name = padding.get<std::string>();
      for (const char* usual : special_name(token).usual)
        if (name.empty() && (is_added(usual) || id_in_vocabulary(usual))) name = usual;
      names.push_back(name);
    }
    return names;
  }

  TextLimits limits() const {
    TextLimits limits;
    constexpr std::int64_t kLargest = 1 << 30;  // transformers writes 1e30 for "none"
    if (const auto found = config_.find("model_max_length"); found != config_.end() && !found->is_null()) {
      TERN_CHECK(found->is_number() && *found > 0, config_path_, ": model_max_length must be a positive number, got ",
                 shortened(*found));
      if (const auto length = integer_in(*found); length && *length < kLargest) limits.max_length = *length;
    }
    const json::json_pointer direction("/truncation/direction");
    json side = config_.contains("truncation_side") ? config_["truncation_side"] : json();
    if (side.is_null() && root_.is_object() && root_.contains(direction))
      side = root_[direction] == "Left" ? "left" : "right";
    TERN_CHECK(side.is_null() || side == "left" || side == "right", config_path_,
               ": truncation_side must be left or right, got ", shortened(side));
    limits.cuts_left = side == "left";
    return limits;
  }

  fs::path dir_;
  std::string config_path_;
  json config_;
  std::string map_path_;
  json map_, root_;  // root_: of tokenizer.json; null if there is none
  bool has_class_ = false, is_bert_class_ = false;
  std::vector<std::string_view> tokens_;
};

}  // namespace

std::shared_ptr<const Tokenizer> read_tokenizer(const std::string& dir, const ReadTokenizerOptions& options) {
  return TokenizerFolder(dir).read(options);
}

WordPiece WordPiece::from_folder(const std::string& dir) {
  const std::shared_ptr<const Tokenizer> tokenizer = read_tokenizer(dir);
  const auto* const found = dynamic_cast<const WordPiece*>(tokenizer.get());
  TERN_CHECK(found, dir, ": tokenizer.json describes another tokenizer than BERT's; data::read_tokenizer() reads it");
  return *found;
}

}  // namespace tern::data
