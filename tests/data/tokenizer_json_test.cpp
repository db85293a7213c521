// The tokenizers of tokenizer.json compared with Hugging Face tokenizers 0.23: what the library makes of texts with
// small tokenizers of every kind, and what each normalizer and pre-tokenizer makes of every code point
// (tests/golden/tokenizer/make_pipelines.py). Damaged files are errors.

#include "tern/data/tokenizers/pipeline/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "tern/core/io/json.h"
#include "tern/data/files/utf8.h"
#include "tern/data/tokenizers/pipeline/normalizers.h"
#include "tern/data/tokenizers/pipeline/pre_tokenizers.h"
#include "tern/tests/data/support.h"
#include "tern/tests/places.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;

const json& golden() {
  static const json root = read_json_object(test::source_dir() + "/tests/golden/tokenizer/pipelines.json");
  return root;
}

struct Fnv {
  std::uint32_t hash = 0x811c9dc5u;
  void add(std::uint32_t value) { hash = (hash ^ value) * 0x01000193u; }
  void add(std::string_view bytes) {
    for (const char c : bytes) add(static_cast<unsigned char>(c));
  }
};

std::uint32_t hash_of(const Ids& ids) {
  Fnv fnv;
  for (const std::int32_t id : ids) fnv.add(static_cast<std::uint32_t>(id));
  return fnv.hash;
}

TEST(TokenizerJson, IdsOfEveryTokenizer) {
  const json& texts = golden()["texts"];
  ASSERT_EQ(golden()["tokenizers"].size(), 12u);
  for (const json& entry : golden()["tokenizers"]) {
    const auto tokenizer = TokenizerJson::from_text(entry["tokenizer"].dump(), entry["name"].get<std::string>());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string text = texts[i];
      const Ids special = tokenizer.encode_as_library(text, true), plain = tokenizer.encode_as_library(text, false);
      EXPECT_EQ(hash_of(special), entry["special"][i]) << entry["name"] << " " << i << " " << text;
      EXPECT_EQ(hash_of(plain), entry["plain"][i]) << entry["name"] << " " << i << " " << text;
      Fnv decoded;
      decoded.add(tokenizer.decode(special, i % 2 == 0));
      EXPECT_EQ(decoded.hash, entry["decoded"][i]) << entry["name"] << " " << i << " " << text;
      for (const std::int32_t id : special) {
        EXPECT_LT(id, tokenizer.vocab_size());
        EXPECT_EQ(tokenizer.id(tokenizer.token(id)), id);
      }
    }
    EXPECT_EQ(tokenizer.encode_as_library(texts[38].get<std::string>(), true), entry["ids of text 38"].get<Ids>())
        << entry["name"];
  }
}

/// Texts that have every code point, 256 in each, as make_pipelines.py makes them.
std::vector<std::string> blocks_of_code_points() {
  std::vector<std::string> blocks;
  for (char32_t start = 0; start <= unicode::kLastCodePoint; start += 256) {
    if (start >= 0xD800 && start < 0xE000) continue;
    std::string text;
    for (char32_t c = start; c < start + 256; ++c) {
      std::string one;
      unicode::append_utf8(one, c);
      text += "a" + one + "b " + one + "1'" + one + "\u0301";
    }
    blocks.push_back(std::move(text));
  }
  return blocks;
}

/// What a component makes of texts, as component_hash() of make_pipelines.py.
template <class Texts>
std::uint32_t component_hash(const json& entry, const Texts& begin, const Texts& end) {
  const std::string name = "component";
  const JsonField field(entry["component"], name);
  std::unique_ptr<const Normalizer> normalizer;
  std::vector<std::unique_ptr<const PreTokenizer>> parts;
  if (entry["kind"] == "normalizer") {
    normalizer = read_normalizer(field);
  } else {
    parts = read_pre_tokenizers(field, [] { return false; });
  }
  Fnv fnv;
  for (auto text = begin; text != end; ++text) {
    std::string given = *text;
    if (normalizer) {
      std::size_t origin = 0;
      normalizer->apply(given, origin);
      fnv.add(given);
    } else {
      Words words{given, {}};
      if (!given.empty()) words.list.push_back({0, given.size(), 1});
      for (const auto& part : parts) part->apply(words);
      for (const Word& word : words.list) {
        fnv.add(words.view(word));
        fnv.add(static_cast<std::uint32_t>('\n'));
      }
    }
    fnv.add(std::uint32_t{0});
  }
  return fnv.hash;
}

TEST(TokenizerJson, SplitsWhereTheScriptChanges) {
  const json component = {{"type", "UnicodeScripts"}};
  const std::string name = "component";
  const auto parts = read_pre_tokenizers(JsonField(component, name), [] { return false; });
  const auto split = [&](const std::string& text) {
    Words words{text, {{0, text.size(), 1}}};
    for (const auto& part : parts) part->apply(words);
    std::vector<std::string> found;
    for (const Word& word : words.list) found.emplace_back(words.view(word));
    return found;
  };
  using Parts = std::vector<std::string>;
  // What tokenizers 0.23 gives.
  EXPECT_EQ(split("どこで生れ。Yes"), (Parts{"どこで生れ", "。", "Yes"}));
  EXPECT_EQ(split("Apples are りんご 林檎"), (Parts{"Apples are ", "りんご 林檎"}));
  EXPECT_EQ(split("カタ漢字ー か"), (Parts{"カタ漢字ー か"}));
  EXPECT_EQ(split("aー1 2"), (Parts{"a", "ー", "1 2"}));
  EXPECT_EQ(split("  a  "), (Parts{"a  "}));
  EXPECT_EQ(split("   "), (Parts{}));
  EXPECT_EQ(split("a\tb"), (Parts{"a", "\t", "b"}));
}

TEST(TokenizerJson, ComponentsOnTexts) {
  const auto texts = golden()["texts"].get<std::vector<std::string>>();
  for (const json& entry : golden()["components"])
    EXPECT_EQ(component_hash(entry, texts.begin(), texts.end()), entry["texts"]) << entry["component"];
}

TEST(TokenizerJson, ComponentsOnEveryCodePoint) {
  const std::vector<std::string> blocks = blocks_of_code_points();
  std::mt19937_64 random = fresh_random();
  ASSERT_GE(golden()["components"].size(), 40u);
  for (const json& entry : golden()["components"]) {
    const json& expected = entry["code points"];
    ASSERT_EQ(expected.size(), (blocks.size() + 271) / 272);
    // The first two groups have nearly all characters; of the others each run checks one.
    const std::size_t other = 2 + random() % (expected.size() - 2);
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}, other}) {
      const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(i * 272);
      const auto end = i + 1 < expected.size() ? begin + 272 : blocks.end();
      EXPECT_EQ(component_hash(entry, begin, end), expected[i]) << entry["component"] << " group " << i;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
      break;  // the sanitizers are many times slower: the first 65,536 code points only
#endif
    }
  }
}

/// The JSON of a golden tokenizer.
json tokenizer_of(const std::string& name) {
  for (const json& entry : golden()["tokenizers"])
    if (entry["name"] == name) return entry["tokenizer"];
  return nullptr;
}

TEST(TokenizerJson, LimitOfLengthIsKept) {
  const auto tokenizer = TokenizerJson::from_text(tokenizer_of("wordpiece_bert").dump());
  const Ids all = tokenizer.encode_special("Hello, brave new world");
  ASSERT_GT(all.size(), 6u);
  for (std::size_t limit = 2; limit <= all.size(); ++limit) {
    Ids expected(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(limit) - 1);
    expected.push_back(all.back());
    EXPECT_EQ(tokenizer.encode_special("Hello, brave new world", limit), expected);
  }
  EXPECT_TRUE(fails([&] { tokenizer.encode_special("x", 1); }, {"max_length must be at least 2", "got 1"}));
}

TEST(TokenizerJson, InvalidUtf8IsReplaced) {
  const auto tokenizer = TokenizerJson::from_text(tokenizer_of("bpe_gpt2").dump());
  Ids damaged, replaced;
  EXPECT_EQ(tokenizer.encode("a\xFF\xE2\x82 b", damaged), 2u);
  EXPECT_EQ(tokenizer.encode("a\uFFFD\uFFFD b", replaced), 0u);
  EXPECT_EQ(damaged, replaced);
}

/// Byte-pair merging as described in the paper: the pair of least rank, everywhere, until there is none.
Ids slow_bpe(const json& model, const std::string& text) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  for (;;) {
    std::size_t best = symbols.size(), rank = model["merges"].size();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
      for (std::size_t r = 0; r < rank; ++r)
        if (model["merges"][r][0] == symbols[i] && model["merges"][r][1] == symbols[i + 1]) {
          rank = r;
          best = i;
        }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) ids.push_back(model["vocab"][symbol]);
  return ids;
}

TEST(TokenizerJson, RandomMergesAgainstASlowImplementation) {
  std::mt19937_64 random = fresh_random();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> tokens{"a", "b", "c"};
    json model{{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}}}, {"merges", json::array()}};
    for (int i = 0; i < 40; ++i) {
      const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 12 || model["vocab"].contains(left + right)) continue;
      model["vocab"][left + right] = tokens.size();
      tokens.push_back(left + right);
      model["merges"].push_back({left, right});
    }
    const auto tokenizer = TokenizerJson::from_text(json{{"model", model}}.dump());
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (std::uint64_t left = random() % (i % 4 == 0 ? 150 : 20); left > 0; --left)
        text += static_cast<char>('a' + random() % 3);
      Ids ids;
      tokenizer.encode(text, ids);
      EXPECT_EQ(ids, slow_bpe(model, text)) << text << " " << model;
    }
  }
}

TEST(TokenizerJson, CompositionIsBlockedByAMarkOfTheSameClass) {
  using unicode::Form;
  EXPECT_EQ(unicode::normalized("a\u0305\u0301", Form::kNfc), "a\u0305\u0301");
  EXPECT_EQ(unicode::normalized("a\u0323\u0301", Form::kNfc), "\u1EA1\u0301");
  EXPECT_EQ(unicode::normalized("a\u0301\u0323", Form::kNfd), "a\u0323\u0301");
}

// The library reads the scores with two roundings: "cd" would be one token if its score were the exact sum's double.
TEST(TokenizerJson, ScoresAreThoseOfTheLibrary) {
  const auto tokenizer = TokenizerJson::from_text(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["c", -9.873971570789525],
          ["d", -5.2956212316547955], ["cd", -15.16959280244432]]}})");
  Ids ids;
  tokenizer.encode("cd", ids);
  EXPECT_EQ(ids, (Ids{1, 2}));
}

TEST(TokenizerJson, LongTexts) {
  for (const char* name : {"bpe_llama2", "unigram_bytes", "wordpiece_bert", "bpe_gpt2"}) {
    const auto tokenizer = TokenizerJson::from_text(tokenizer_of(name).dump());
    Ids ids;
    EXPECT_EQ(tokenizer.encode(std::string(300'000, 'a'), ids), 0u);
    EXPECT_FALSE(ids.empty()) << name;
  }
}

TEST(TokenizerJson, ManyThreadsShareOne) {
  const auto tokenizer = TokenizerJson::from_text(tokenizer_of("unigram_t5").dump());
  const auto texts = golden()["texts"].get<std::vector<std::string>>();
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode_special(text));
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(tokenizer.encode_special(texts[i]), expected[i]);
    });
}

/// Reads a golden tokenizer after `change`.
template <class Change>
testing::AssertionResult refused(const std::string& name, const Change& change,
                                 std::initializer_list<std::string> parts) {
  json root = tokenizer_of(name);
  change(root);
  return fails([&] { TokenizerJson::from_text(root.dump(), "dir/tokenizer.json"); }, parts);
}

TEST(TokenizerJson, WhatIsMissingIsNamed) {
  const auto put = [](const char* key, const json& value) { return [=](json& root) { root[key] = value; }; };
  const json any = R"({"type": "RandomSplit"})"_json;
  EXPECT_TRUE(refused("bpe_gpt2", put("pre_tokenizer", any), {"dir/tokenizer.json: /pre_tokenizer", "RandomSplit"}));
  EXPECT_TRUE(refused("bpe_gpt2", put("normalizer", any), {"/normalizer", "RandomSplit"}));
  EXPECT_TRUE(refused("bpe_gpt2", put("post_processor", any), {"/post_processor", "RandomSplit"}));
  EXPECT_TRUE(
      refused("bpe_gpt2", [](json& root) { root["model"]["type"] = "Other"; }, {"/model", "Other", "it has BPE"}));
  EXPECT_TRUE(refused("bpe_gpt2", [](json& root) { root["model"]["dropout"] = 0.1; }, {"/model/dropout", "0.1"}));
  EXPECT_TRUE(refused("bpe_gpt2", [](json& root) { root["version"] = "2.0"; }, {"/version", "2.0"}));
  const json split =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(a|b)+c"},"behavior":"Isolated","invert":false}]})"_json;
  EXPECT_TRUE(
      refused("bpe_gpt2", put("pre_tokenizer", split), {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a|b)+c"}));
}

TEST(TokenizerJson, ContradictionsAreErrors) {
  EXPECT_TRUE(refused("bpe_gpt2",
                      [](json& root) {
                        root["model"]["merges"].push_back({"q", "nowhere"});
                      },
                      {"/model/merges/", "lacks \"nowhere\"", "belong together"}));
  EXPECT_TRUE(
      refused("bpe_gpt2", [](json& root) { root["model"]["merges"][3] = "a b c"; }, {"/model/merges/3", "one space"}));
  EXPECT_TRUE(refused("bpe_gpt2", [](json& root) { root["model"]["vocab"]["twice"] = 5; },
                      {"/model/vocab", "id 5", "two tokens"}));
  for (const json& id : {json(-1), json(1e30), json(2147483647), json(1.5), json("7"), json(nullptr)})
    EXPECT_TRUE(refused("bpe_gpt2", [&](json& root) { root["model"]["vocab"]["x y"] = id; },
                        {"/model/vocab/x y: expected a whole number", id.dump()}));
  EXPECT_TRUE(
      refused("bpe_gpt2", [](json& root) { root["added_tokens"][1]["id"] = 77777; }, {"/added_tokens/1", "77777"}));
  EXPECT_TRUE(refused("bpe_gpt2", [](json& root) { root["added_tokens"].push_back(root["added_tokens"][0]); },
                      {"added twice"}));
  EXPECT_TRUE(refused("unigram_t5", [](json& root) { root["model"]["unk_id"] = 4000000000; },
                      {"/model/unk_id", "whole number"}));
  EXPECT_TRUE(refused("unigram_t5", [](json& root) { root["model"]["vocab"][2] = {"a"}; },
                      {"/model/vocab/2", "[token, score]"}));
  EXPECT_TRUE(refused("unigram_t5", [](json& root) { root["padding"]["strategy"]["Fixed"] = 1000000000000; },
                      {"/padding/strategy/Fixed", "1000000000000"}));
  EXPECT_TRUE(
      refused("wordpiece_parts", [](json& root) { root["truncation"]["stride"] = 99; }, {"/truncation", "stride 99"}));
  EXPECT_TRUE(refused("wordpiece_bert", [](json& root) { root["post_processor"]["cls"][1] = 5000; },
                      {"/post_processor", "5000"}));
  EXPECT_TRUE(refused("unigram_charsmap", [](json& root) { root["normalizer"]["precompiled_charsmap"] = "/////wAA"; },
                      {"/normalizer/precompiled_charsmap", "claims a trie of 4294967295"}));
  EXPECT_TRUE(refused("bpe_gpt2", [](json& root) { root.erase("model"); }, {"\"model\" is missing"}));
  EXPECT_TRUE(
      refused("bpe_gpt2", [](json& root) { root["model"].erase("vocab"); }, {"/model", "\"vocab\" is missing"}));
}

TEST(TokenizerJson, TruncatedFilesAreErrors) {
  const std::string text = tokenizer_of("wordpiece_bert").dump();
  for (std::size_t size = 0; size < text.size(); size += 1 + size / 20)
    EXPECT_TRUE(fails([&] { TokenizerJson::from_text(text.substr(0, size), "cut.json"); }, {"cut.json"})) << size;
}

TEST(TokenizerJson, DamagedFilesGiveErrorsOrIds) {
  std::mt19937_64 random = fresh_random();
  for (const json& entry : golden()["tokenizers"]) {
    const std::string text = entry["tokenizer"].dump();
    for (int i = 0; i < 30; ++i) {
      std::string damaged = text;
      for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
      try {
        const auto tokenizer = TokenizerJson::from_text(damaged);
        for (const json& one : golden()["texts"])
          for (const std::int32_t id : tokenizer.encode_special(one.get<std::string>()))
            EXPECT_LT(id, tokenizer.vocab_size());
      } catch (const Error&) {
      }
    }
  }
}

using TokenizerJsonFiles = FolderTest;

TEST_F(TokenizerJsonFiles, AFileOrItsFolder) {
  const std::string text = tokenizer_of("bpe_roberta").dump();
  const std::string path = write("model/tokenizer.json", text);
  const auto from_file = TokenizerJson::from_file(path),
             from_folder = TokenizerJson::from_file((root() / "model").string());
  EXPECT_EQ(from_file.content_hash(), from_folder.content_hash());
  EXPECT_EQ(from_file.content_hash(), TokenizerJson::from_text(text + " ").content_hash());
  EXPECT_NE(from_file.content_hash(), TokenizerJson::from_text(tokenizer_of("bpe_gpt2").dump()).content_hash());
  EXPECT_TRUE(fails([&] { TokenizerJson::from_file((root() / "none.json").string()); }, {"none.json"}));
}

}  // namespace
}  // namespace tern::data
