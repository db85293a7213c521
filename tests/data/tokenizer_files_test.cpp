// The files of a WordPiece tokenizer: vocab.txt, tokenizer_config.json and tokenizer.json, read, written and damaged.

#include <nlohmann/json.hpp>
#include <random>

#include "tern/data/tokenizers/read_tokenizer.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/tests/data/support.h"
#include "tern/tests/places.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
using WordPieceFiles = FolderTest;

TEST_F(WordPieceFiles, VocabularyFiles) {
  const WordPiece crlf = WordPiece::from_file(write("crlf.txt", "[UNK]\r\nab\r\n##c \r\n\xE2\x80\x83\r\n\r\nab\r\nd"));
  EXPECT_EQ(crlf.vocab_size(), 7);
  EXPECT_EQ(crlf.id("ab"), 5);  // of two equal lines the last one counts
  EXPECT_EQ(crlf.id("##c"), 2);
  EXPECT_EQ(crlf.id(""), 4);
  EXPECT_EQ(crlf.encode("abc d e ab"), (Ids{5, 2, 6, 0, 5}));
  EXPECT_TRUE(fails([&] { crlf.cls_id(); }, {"no [CLS]"}));
  EXPECT_TRUE(fails([&] { crlf.pad_id(); }, {"no [PAD]"}));
  EXPECT_TRUE(fails([&] { crlf.encode_special("ab"); }, {"no [SEP]"}));

  const auto error = [&](const std::string& text) {
    return error_of([&] { WordPiece::from_file(write("bad.txt", text)); });
  };
  EXPECT_TRUE(contains(error(""), {"empty"}));
  EXPECT_TRUE(contains(error("a\nb\n"), {"no [UNK]"}));
  EXPECT_TRUE(contains(error("\xEF\xBB\xBF[UNK]\n"), {"no [UNK]"}));
  EXPECT_TRUE(contains(error("[UNK]\n\xFF\n"), {"not UTF-8", "bad.txt"}));
  EXPECT_TRUE(fails([&] { WordPiece::from_file((root() / "none.txt").string()); }, {"none.txt"}));
  EXPECT_THROW(WordPiece::from_file(root().string()), Error);
  EXPECT_TRUE(fails([&] { WordPiece::from_folder(root().string()); }, {"vocab.txt"}));
  EXPECT_TRUE(fails([] { WordPiece::from_embedded({.max_word_chars = 0}); }, {"max_word_chars"}));
  EXPECT_EQ(WordPiece::from_text(std::string("[UNK]\na\0b\n##\0\n#\n##\n", 19)).encode("ab # ##"), (Ids{0, 3, 3, 3}));
}

TEST_F(WordPieceFiles, SavedFolderIsReadBack) {
  const std::string dir = (root() / "model").string();
  for (const WordPieceOptions& options : {WordPieceOptions{},
                                          {.lowercase = false},
                                          {.strip_accents = false},
                                          {.lowercase = false, .strip_accents = true}}) {
    const WordPiece tokenizer = WordPiece::from_embedded(options);
    tokenizer.save(dir, 128);
    EXPECT_EQ(read_bytes(fs::path(dir) / "vocab.txt"),
              read_bytes(test::source_dir() + "/data/assets/bert-base-uncased-vocab.txt"));
    const WordPiece again = WordPiece::from_folder(dir);
    EXPECT_EQ(again.options().lowercase, options.lowercase);
    EXPECT_EQ(again.options().strip_accents, options.strip_accents);
    EXPECT_EQ(again.encode("H\u00C9llo w\u00F6rld"), tokenizer.encode("H\u00C9llo w\u00F6rld"));
    const auto config = nlohmann::json::parse(read_bytes(fs::path(dir) / "tokenizer_config.json"));
    EXPECT_EQ(config["tokenizer_class"], "BertTokenizer");
    EXPECT_EQ(config["do_lower_case"], options.lowercase);
    EXPECT_EQ(config["model_max_length"], 128);
    EXPECT_EQ(config["cls_token"], "[CLS]");
  }
  write("model/tokenizer_config.json", "{\"do_lower_case\": 1}");
  EXPECT_TRUE(fails([&] { WordPiece::from_folder(dir); }, {"do_lower_case must be true or false"}));
  write("model/tokenizer_config.json", "{\"do_lower_case\": ");
  EXPECT_TRUE(fails([&] { WordPiece::from_folder(dir); }, {"tokenizer_config.json: not valid JSON"}));
  write("model/tokenizer_config.json", "[]");
  EXPECT_TRUE(fails([&] { WordPiece::from_folder(dir); }, {"not a JSON object"}));
}

TEST_F(WordPieceFiles, TokenizerJsonWithoutVocabTxt) {
  auto json = nlohmann::json::parse(R"({
    "added_tokens": [{"id": 0, "content": "[UNK]"}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": false, "strip_accents": null,
                   "lowercase": false},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 0]},
    "model": {"unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 5, "vocab": {"##b": 2, "[UNK]": 0, "a": 1}}})");
  const auto load = [&] {
    write("tokenizer.json", json.dump());
    return WordPiece::from_folder(root().string());
  };
  EXPECT_EQ(load().encode("ab A abbbb abbbbb"), (Ids{1, 2, 0, 1, 2, 2, 2, 2, 0}));
  EXPECT_FALSE(load().options().split_cjk);
  write("tokenizer_config.json", R"({"do_lower_case": true})");
  EXPECT_EQ(load().encode("A"), (Ids{1}));

  const auto good = json;
  const auto error_with = [&](const char* path, const nlohmann::json& value) {
    json = good;
    json[nlohmann::json::json_pointer(path)] = value;
    return error_of([&] { load(); });
  };
  // What is not BERT's tokenizer is read as any tokenizer.json, and damage has that reader's errors.
  for (const auto& [path, value] : {std::pair<const char*, nlohmann::json>{"/model/vocab/a", 3},
                                    {"/normalizer", nullptr},
                                    {"/post_processor", nullptr}}) {
    EXPECT_TRUE(contains(error_with(path, value), {"another tokenizer than BERT's"})) << path;
    EXPECT_EQ(read_tokenizer(root().string())->id("##b"), 2) << path;
  }
  EXPECT_TRUE(contains(error_with("/model/type", "BPE"), {"/model", "\"merges\" is missing"}));
  EXPECT_TRUE(contains(error_with("/model/vocab/a", 2), {"/model/vocab"}));
  EXPECT_TRUE(contains(error_with("/model/vocab/a", -1), {"/model/vocab/a"}));
  EXPECT_TRUE(contains(error_with("/model/vocab", nlohmann::json::array()), {"/model/vocab"}));
  EXPECT_TRUE(contains(error_with("/added_tokens", 3), {"added_tokens"}));
  EXPECT_TRUE(contains(error_with("/added_tokens/0/content", 3), {"/added_tokens/0/content"}));
  EXPECT_TRUE(contains(error_with("/added_tokens/0/content", "[E1]"), {"\"[E1]\"", "by the vocabulary its id is 3"}));
  EXPECT_TRUE(contains(error_with("/post_processor/type", "Unknown"), {"/post_processor"}));
  EXPECT_TRUE(contains(error_with("/model", 5), {"/model"}));
  for (const nlohmann::json& value :
       {nlohmann::json("5"), nlohmann::json(true), nlohmann::json(2.5), nlohmann::json(-1), nlohmann::json(UINT64_MAX),
        nlohmann::json::array(), nlohmann::json::object()})
    EXPECT_TRUE(contains(error_with("/model/max_input_chars_per_word", value), {"/model/max_input_chars_per_word"}))
        << value;
  json = good;
  json["model"]["max_input_chars_per_word"] = nullptr;
  EXPECT_EQ(load().options().max_word_chars, WordPieceOptions().max_word_chars);
}

/// Whose options count depends on the class. The ids are those of transformers 5.24's AutoTokenizer.
TEST_F(WordPieceFiles, ClassesOfTokenizers) {
  nlohmann::json model = nlohmann::json::parse(R"({
    "added_tokens": [{"id": 0, "content": "[PAD]", "special": true, "lstrip": false, "normalized": false}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                   "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
      "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                         "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 5,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "ab": 5, "##c": 6, "Ab": 7,
                        "é": 8, "e": 9, "abbbb": 10, "##b": 11, "a": 12}}})");
  const std::string dir = root().string();
  write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n");  // tokenizer.json counts
  const auto ids = [&](bool lowercase, const nlohmann::json& config, const nlohmann::json& fields = {}) {
    model["normalizer"]["lowercase"] = lowercase;
    write("tokenizer.json", model.dump());
    write("tokenizer_config.json", config.dump());
    write("config.json", fields.is_null() ? "{}" : fields.dump());
    return WordPiece::from_folder(dir).encode_special("Abc é ab [SEP] abbbbb");
  };
  const Ids lower = {2, 5, 6, 9, 5, 3, 10, 11, 3}, upper = {2, 7, 6, 8, 5, 3, 10, 11, 3};
  for (const char* name : {"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast"}) {
    const nlohmann::json config = {{"tokenizer_class", name}};
    EXPECT_EQ(ids(true, config), lower) << name;
    EXPECT_EQ(ids(false, config), lower) << name;  // the class's default
    EXPECT_EQ(ids(true, {{"tokenizer_class", name}, {"do_lower_case", false}}), upper) << name;
  }
  EXPECT_EQ(ids(false, nlohmann::json::object(), {{"model_type", "distilbert"}}), lower);
  EXPECT_EQ(ids(false, nlohmann::json::object(), {{"tokenizer_class", "BertTokenizer"}}), lower);
  for (const char* name : {"PreTrainedTokenizerFast", "TokenizersBackend"}) {
    EXPECT_EQ(ids(true, {{"tokenizer_class", name}}), (Ids{2, 5, 6, 9, 5, 3, 1, 3}));
    EXPECT_EQ(ids(true, {{"tokenizer_class", name}, {"do_lower_case", false}}), (Ids{2, 5, 6, 9, 5, 3, 1, 3}));
    EXPECT_EQ(ids(false, {{"tokenizer_class", name}}), (Ids{2, 7, 6, 8, 5, 3, 1, 3}));
  }
  const auto error = [&](const nlohmann::json& config) { return error_of([&] { ids(true, config); }); };
  EXPECT_TRUE(
      contains(error({{"tokenizer_class", "BertJapaneseTokenizer"}}), {"BertJapaneseTokenizer", "tokenizer_config"}));
  EXPECT_TRUE(contains(error({{"additional_special_tokens", {"ab"}}}), {"another tokenizer than BERT's"}));
  // "ab" is then found in the text before all else, as by transformers.
  EXPECT_EQ(read_tokenizer(dir)->encode_special("Abc abbc"), (Ids{2, 5, 6, 5, 1, 3}));
  EXPECT_TRUE(contains(error({{"cls_token", "<cls>"}}), {"cls_token: the token <cls> is not in tokenizer.json"}));
  EXPECT_TRUE(contains(error({{"added_tokens_decoder", {{"13", {{"content", "<x>"}}}}}}), {"<x> is not in"}));
  EXPECT_TRUE(contains(error({{"extra_special_tokens", {{"image_token", "<image>"}}}}), {"<image> is not in"}));
  const nlohmann::json plain = {{"added_tokens_decoder", {{"0", {{"content", "[PAD]"}, {"lstrip", false}}}}},
                                {"cls_token", {{"content", "[CLS]"}}},
                                {"additional_special_tokens", nlohmann::json::array()},
                                {"mask_token", nullptr}};
  EXPECT_EQ(ids(true, plain).size(), 8u);
  write("special_tokens_map.json", R"({"sep_token": "</s>"})");
  EXPECT_TRUE(contains(error(nlohmann::json::object()), {"special_tokens_map.json", "sep_token"}));
  write("special_tokens_map.json", R"({"sep_token": "[SEP]"})");
  write("added_tokens.json", R"({"<new>": 13})");
  EXPECT_TRUE(contains(error(nlohmann::json::object()), {"added_tokens.json", "<new>"}));
  write("added_tokens.json", R"({"[SEP]": 3})");
  EXPECT_EQ(ids(true, nlohmann::json::object()).size(), 8u);
  fs::remove(root() / "tokenizer.json");
  write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_TRUE(fails([&] { WordPiece::from_folder(dir); }, {"tokenizer.json: no such file"}));
}

/// A small tokenizer.json that is not BERT's.
nlohmann::json byte_level() {
  return nlohmann::json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<s>", "special": true}, {"id": 1, "content": "</s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": true,
                       "add_prefix_space": false},
    "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Left"},
    "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null, "pad_id": 2,
                "pad_type_id": 0, "pad_token": "!"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
              "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "merges": ["a b", "\u0120 a"],
              "vocab": {"<s>": 0, "</s>": 1, "!": 2, "a": 3, "b": 4, "\u0120": 5, "ab": 6, "\u0120a": 7, "B": 8}}})");
}

TEST_F(WordPieceFiles, AnyTokenizerOfAFolder) {
  const std::string dir = root().string();
  write("tokenizer.json", byte_level().dump());
  const auto read = [&](const nlohmann::json& config, const ReadTokenizerOptions& options = {}) {
    write("tokenizer_config.json", config.dump());
    return read_tokenizer(dir, options);
  };
  const auto plain = read(nlohmann::json::object());
  EXPECT_EQ(plain->encode_special("ab a"), (Ids{0, 6, 7, 1}));
  EXPECT_EQ(plain->around().before, (Ids{0}));
  EXPECT_EQ(plain->around().after, (Ids{1}));
  EXPECT_EQ(plain->cls_id(), 0);
  EXPECT_EQ(plain->sep_id(), 1);
  EXPECT_EQ(plain->pad_id(), 2);  // of "padding"
  EXPECT_EQ(plain->special(SpecialToken::kMask), std::nullopt);
  EXPECT_TRUE(fails([&] { plain->mask_id(); }, {"no token in the place of [MASK]", "mask_token"}));
  // tokenizer.json's lengths are not for models, but its side is.
  EXPECT_EQ(plain->limits().max_length, 0);
  EXPECT_EQ(plain->encode_special("ab a ab b", 4), (Ids{0, 5, 4, 1}));
  const auto right = read({{"truncation_side", "right"}, {"model_max_length", 77}, {"mask_token", "B"}});
  EXPECT_EQ(right->encode_special("ab a ab b", 4), (Ids{0, 6, 7, 1}));
  EXPECT_EQ(right->limits().max_length, 77);
  EXPECT_EQ(right->mask_id(), 8);
  EXPECT_EQ(read({{"model_max_length", 1e30}})->limits().max_length, 0);
  // Classes of byte-level tokenizers follow their own setting.
  EXPECT_EQ(read({{"add_prefix_space", true}, {"tokenizer_class", "RobertaTokenizer"}})->encode_special("ab"),
            (Ids{0, 5, 6, 1}));
  EXPECT_EQ(read({{"add_prefix_space", true}})->encode_special("ab"), (Ids{0, 6, 1}));
  EXPECT_EQ(read(nlohmann::json::object(), {.lowercase = true})->encode_special("B"), (Ids{0, 4, 1}));
  EXPECT_EQ(read(nlohmann::json::object())->encode_special("B"), (Ids{0, 8, 1}));
  EXPECT_TRUE(fails([&] { read({{"truncation_side", "up"}}); }, {"truncation_side must be left or right"}));
  EXPECT_TRUE(fails([&] { read({{"model_max_length", -1}}); }, {"model_max_length"}));
  EXPECT_TRUE(fails([&] { read({{"tokenizer_class", "BertTokenizer"}}); }, {"/model/type is \"BPE\""}));
  EXPECT_TRUE(fails([&] { read({{"pad_token", 5}}); }, {"pad_token: a token must be a text"}));

  // Saved, it is the same tokenizer, for transformers too.
  right->save((root() / "saved").string(), 50);
  const auto saved = read_tokenizer((root() / "saved").string());
  EXPECT_EQ(saved->content_hash(), right->content_hash());
  EXPECT_EQ(saved->limits().max_length, 50);
  EXPECT_EQ(saved->mask_id(), 8);
  EXPECT_FALSE(saved->limits().cuts_left);
  const auto config = nlohmann::json::parse(read_bytes(root() / "saved/tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["pad_token"], "!");
}

/// Files of a folder with a few random bytes or values: a tokenizer, or an Error.
TEST_F(WordPieceFiles, DamagedFolders) {
  std::mt19937_64 random = fresh_random();
  const std::string model = byte_level().dump();
  const std::string config = R"({"tokenizer_class": "RobertaTokenizer", "add_prefix_space": true, "pad_token": "!",
    "mask_token": {"content": "B", "lstrip": true}, "model_max_length": 512, "truncation_side": "left",
    "added_tokens_decoder": {"0": {"content": "<s>"}}, "additional_special_tokens": ["a"], "do_lower_case": true})";
  const auto damaged = [&](std::string text) {
    for (int k = 0; k < 2; ++k) text[random() % text.size()] = static_cast<char>(' ' + random() % 95);
    return text;
  };
  const char* values[] = {"null", "[]", "{}", "\"x\"", "5", "true", "[{}]", "-1", "1e300"};
  int read = 0;
  for (int i = 0; i < 600; ++i) {
    nlohmann::json changed = nlohmann::json::parse(model);
    const nlohmann::json flat = changed.flatten();
    auto place = flat.begin();
    std::advance(place, static_cast<std::ptrdiff_t>(random() % flat.size()));
    nlohmann::json::json_pointer pointer(place.key());
    if (random() % 2 == 0 && !pointer.parent_pointer().empty()) pointer.pop_back();
    changed[pointer] = nlohmann::json::parse(values[random() % std::size(values)]);
    write("tokenizer.json", i % 3 == 0 ? damaged(model) : i % 3 == 1 ? model : changed.dump());
    write("tokenizer_config.json", i % 3 == 1 ? damaged(config) : i % 4 == 0 ? "{}" : config);
    try {
      const auto tokenizer = read_tokenizer(root().string(), {.lowercase = i % 2 == 0});
      for (const std::int32_t id : tokenizer->encode_special("ab a! B <s>", 8)) EXPECT_LT(id, tokenizer->vocab_size());
      tokenizer->save((root() / "saved").string(), 8);
      ++read;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, 10);
}

TEST_F(WordPieceFiles, LimitsOfAVocabulary) {
  write("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\nb\nc\n\u00e9\nE\u00e9\n");
  const auto read = [&](const nlohmann::json& config, const ReadTokenizerOptions& options = {}) {
    write("tokenizer_config.json", config.dump());
    return read_tokenizer(root().string(), options);
  };
  const auto left = read({{"truncation_side", "left"}, {"model_max_length", 9}});
  EXPECT_EQ(left->encode_special("a b c", 4), (Ids{1, 4, 5, 2}));
  EXPECT_EQ(left->encode_special("a b c", 2), (Ids{1, 2}));
  EXPECT_EQ(left->limits().max_length, 9);
  left->save((root() / "saved").string(), 9);
  EXPECT_EQ(read_tokenizer((root() / "saved").string())->encode_special("a b c", 3), (Ids{1, 5, 2}));
  EXPECT_EQ(read(nlohmann::json::object())->encode_special("a b c", 4), (Ids{1, 3, 4, 2}));
  EXPECT_TRUE(fails([&] { read(nlohmann::json::object())->mask_id(); }, {"the vocabulary has no [MASK]"}));
  // Lowercased first: accents stay where the tokenizer keeps them.
  EXPECT_EQ(read({{"do_lower_case", false}}, {.lowercase = true})->encode_special("A \u00c9"), (Ids{1, 3, 6, 2}));
  EXPECT_TRUE(fails([&] { read({{"tokenizer_class", "RobertaTokenizer"}}); }, {"tokenizer.json: no such file"}));
  EXPECT_TRUE(fails([&] { read({{"cls_token", "<s>"}}); }, {"cls_token must be [CLS]", "<s>"}));
  EXPECT_TRUE(fails([&] { read({{"extra_special_tokens", {"<x>"}}}); }, {"vocab.txt alone", "<x>"}));
}

TEST_F(WordPieceFiles, HuggingFaceTokenizerJson) {
  const char* data = std::getenv("TERN_DATA");
  if (!data) GTEST_SKIP() << "data: TERN_DATA is not set";
  fs::copy(fs::path(data) / "bert-base-uncased" / "tokenizer.json", root() / "tokenizer.json");
  WordPiece::from_folder(root().string()).write_vocab((root() / "written.txt").string());
  EXPECT_EQ(read_bytes(root() / "written.txt"),
            read_bytes(test::source_dir() + "/data/assets/bert-base-uncased-vocab.txt"));
}

}  // namespace
}  // namespace tern::data
