// Pairs of texts: files that hold them, the sequences that tokenizers make of them (tests/golden/make_pairs.py), their
// token types in caches.

#include <nlohmann/json.hpp>

#include "tern/core/io/json.h"
#include "tern/data/datasets/target_set.h"
#include "tern/data/datasets/token_set.h"
#include "tern/data/tokenizers/pipeline/tokenizer_json.h"
#include "tern/data/tokenizers/read_tokenizer.h"
#include "tern/data/tokenizers/wordpiece.h"
#include "tern/tests/data/support.h"
#include "tern/tests/places.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ids = std::vector<int32_t>;
using Texts = std::vector<std::pair<std::string, std::string>>;

json golden(const std::string& name) { return read_json_object(test::source_dir() + "/tests/golden/" + name); }

Texts pairs_of(const TextSet& set) {
  Texts pairs;
  for (int64_t row = 0; row < set.size(); ++row)
    pairs.emplace_back(std::string(set.text(row)), std::string(set.text_pair(row)));
  return pairs;
}

/// Cases of tokens.json: [pair, longest (0: any), whether the left is cut, ids, types].
TEST(Pairs, IdsAndTypesOfTheLibrary) {
  const json root = golden("pairs/tokens.json"), pipelines = golden("tokenizer/pipelines.json");
  ASSERT_GE(root["tokenizers"].size(), 18u);
  for (const json& entry : root["tokenizers"]) {
    json description = entry.value("tokenizer", json());
    for (const json& other : pipelines["tokenizers"])
      if (other["name"] == entry.value("pipeline", json())) description = other["tokenizer"];
    const auto tokenizer = TokenizerJson::from_text(description.dump());
    const PairPattern pattern = tokenizer.pair();
    ASSERT_GE(entry["cases"].size(), 90u);
    for (const json& one : entry["cases"]) {
      const std::string first = root["pairs"][one[0].get<size_t>()][0], second = root["pairs"][one[0].get<size_t>()][1];
      const size_t most = one[1].get<size_t>() == 0 ? Tokenizer::kNoLimit : one[1].get<size_t>();
      Ids first_ids, second_ids;
      tokenizer.encode(first, first_ids);
      tokenizer.encode(second, second_ids);
      TypedIds joined;
      pattern.append(first_ids, second_ids, most, one[2].get<bool>(), joined);
      EXPECT_EQ(joined.ids, one[3].get<Ids>()) << entry.value("pipeline", json()) << " " << one;
      EXPECT_EQ(joined.types, one[4].get<Ids>()) << entry.value("pipeline", json()) << " " << one;
      if (one[1] == 0) {
        EXPECT_EQ(tokenizer.encode_pair(first, second).ids, joined.ids);
      }
    }
  }
}

TEST(Pairs, ATokenizerThatDoesNotSayHow) {
  const json root = golden("pairs/tokens.json");
  json description;
  for (const json& entry : root["tokenizers"])
    if (entry.contains("tokenizer") && entry["tokenizer"]["post_processor"].is_object() &&
        entry["tokenizer"]["post_processor"]["type"] == "TemplateProcessing")
      description = entry["tokenizer"];
  const auto pair_of = [&](const json& pair) {
    description["post_processor"]["pair"] = pair;
    return TokenizerJson::from_text(description.dump(), "t.json").pair();
  };
  const auto sequence = [](const char* id, int type) { return json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  EXPECT_EQ(pair_of({sequence("B", 1), sequence("A", 0)}).parts.size(), 2u);
  for (const json& none : {json(), json::array(), json{sequence("A", 0)}, json{sequence("B", 0)}})
    EXPECT_TRUE(fails([&] { pair_of(none); }, {"t.json", "no template for a pair of texts"})) << none;
  EXPECT_TRUE(fails([&] { pair_of({sequence("A", 0), sequence("B", 0), sequence("A", 0)}); }, {"/pair", "repeats"}));
  EXPECT_TRUE(fails([&] { pair_of({sequence("A", 0), sequence("C", 0)}); }, {"pair", "the sequence A or B"}));
  EXPECT_TRUE(fails([&] { pair_of({sequence("A", -1), sequence("B", 0)}); }, {"type_id", "-1"}));
  json special = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  description["post_processor"]["special_tokens"]["<s>"]["ids"] = {99};
  EXPECT_TRUE(fails([&] { pair_of({special, sequence("A", 0), sequence("B", 0)}); }, {"no token has the id 99"}));
  description["post_processor"]["special_tokens"]["<s>"]["ids"] = {0};
  pair_of({sequence("A", 0), sequence("B", 0)});
  const json one = description["post_processor"];
  description["post_processor"] = {{"type", "Sequence"}, {"processors", {one, one}}};
  EXPECT_TRUE(fails([&] { TokenizerJson::from_text(description.dump()).pair(); }, {"one post-processor", "are 2"}));
}

TEST(Pairs, LengthsKeepWhatFits) {
  std::mt19937_64 random = fresh_random();
  for (int trial = 0; trial < 2000; ++trial) {
    const size_t first = random() % 12, second = random() % 12, room = random() % 20;
    const auto [a, b] = lengths_within(first, second, room);
    SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second) + " " + std::to_string(room));
    EXPECT_EQ(a + b, std::min(room, first + second));
    EXPECT_LE(a, first);
    EXPECT_LE(b, second);
    // A text is cut only to a half, or to what the other leaves.
    EXPECT_TRUE(a == first || a + 1 >= b);
    EXPECT_TRUE(b == second || b + 1 >= a);
  }
  EXPECT_EQ(lengths_within(SIZE_MAX, SIZE_MAX, 7), std::pair(size_t{3}, size_t{4}));
}

TEST(Pairs, BertsWordPiece) {
  const WordPiece tokenizer = WordPiece::from_embedded();
  const Ids first = tokenizer.encode("A good film."), second = tokenizer.encode("Is it?");
  const TypedIds pair = tokenizer.encode_pair("A good film.", "Is it?");
  Ids expected = {101};
  expected.insert(expected.end(), first.begin(), first.end());
  expected.push_back(102);
  expected.insert(expected.end(), second.begin(), second.end());
  expected.push_back(102);
  EXPECT_EQ(pair.ids, expected);
  EXPECT_EQ(pair.types, (Ids{0, 0, 0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(tokenizer.encode_pair("", "", 3).types, (Ids{0, 0, 1}));
  EXPECT_TRUE(fails([&] { tokenizer.encode_pair("", "", 2); }, {"at least 3", "got 2"}));
  const Ids left = tokenizer.with({.cuts_left = true}).encode_pair("A good film.", "Is it?", 6).ids;
  EXPECT_EQ(left, (Ids{101, first[2], first[3], 102, second[2], 102}));
}

class PairFiles : public FolderTest {
 protected:
  std::string error(const std::string& name, const std::string& bytes) const {
    return error_of([&] { load_text(write(name, bytes), {.allow_download = false}); });
  }
  const Environment cache_{"XDG_CACHE_HOME", (root() / "cache").string()};
};

TEST_F(PairFiles, NamesOfColumns) {
  const std::pair<const char*, const char*> names[] = {{"text", "text_pair"},     {"sentence1", "sentence2"},
                                                       {"premise", "hypothesis"}, {"question1", "question2"},
                                                       {"question", "sentence"},  {"query", "passage"}};
  for (const auto& [first, second] : names) {
    const std::string header = std::string(second) + ",idx,label, " + first + "\n";
    const TextSet set = load_text(write("x.csv", header + "b,1,no,a\nd,2,yes,\n"));
    EXPECT_TRUE(set.has_pairs());
    EXPECT_EQ(pairs_of(set), (Texts{{"a", "b"}, {"", "d"}})) << first;
    EXPECT_EQ(set.label_names, (std::vector<std::string>{"no", "yes"}));
    const json row = {{first, "a"}, {second, "b\xff"}, {"label", 1}};
    const std::string line = row.dump(-1, ' ', false, json::error_handler_t::ignore) + "\n";
    EXPECT_EQ(pairs_of(load_text(write("x.jsonl", line))), (Texts{{"a", "b"}}));
  }
  EXPECT_FALSE(load_text(write("x.csv", "sentence,hypothesis,label\na,b,1\n")).has_pairs());
  EXPECT_EQ(pairs_of(load_text(write("x.tsv", "SENTENCE1\tSentence2\tlabel\na\tb, c\t0\nd\te\t1\n"))),
            (Texts{{"a", "b, c"}, {"d", "e"}}));
}

TEST_F(PairFiles, WhatIsRefused) {
  EXPECT_TRUE(contains(error("x.csv", "sentence1,label\na,1\n"),
                       {"x.csv:1: no text column", "sentence1 and sentence2", "found: sentence1, label"}));
  EXPECT_TRUE(contains(error("x.csv", "sentence1,sentence2,premise,hypothesis,label\n"),
                       {"x.csv:1: more than one pair of texts: sentence1 and sentence2, premise and hypothesis"}));
  EXPECT_TRUE(contains(error("x.csv", "premise,hypothesis,Review,label\n"),
                       {"x.csv:1: a pair of texts, premise and hypothesis, and also a text, Review"}));
  EXPECT_TRUE(contains(error("x.csv", "premise,hypothesis,premise,label\n"), {"x.csv:1: more than one text column"}));
  EXPECT_TRUE(
      contains(error("x.csv", "text,text_pair,text_pair,label\n"), {"x.csv:1: more than one second text column"}));
  const std::string pair = R"({"text": "a", "text_pair": "b", "label": 1})", one = R"({"text": "a", "label": 1})";
  EXPECT_TRUE(contains(error("x.jsonl", pair + "\n" + one), {"x.jsonl:2: this row has one text, those before it two"}));
  EXPECT_TRUE(
      contains(error("x.jsonl", one + "\n" + pair), {"x.jsonl:2: this row has two texts, those before it one"}));
  EXPECT_TRUE(contains(error("x.jsonl", R"({"text": "a", "text_pair": null, "label": 1})"),
                       {"x.jsonl:1: the text must be a string, got null under text_pair"}));
  EXPECT_TRUE(contains(error("x.csv", "text,text_pair,label\n, ,1\n,,2\n"), {"all 2 texts are empty"}));
  TextSet set;
  set.add("a", "b", 0);
  EXPECT_TRUE(fails([&] { set.add("c", 0); }, {"one text after rows with two"}));
  TextSet single;
  single.add("a", 0);
  EXPECT_TRUE(fails([&] { single.add("a", "b", 0); }, {"two texts after rows with one"}));
}

TEST_F(PairFiles, OtherTargetsAndTextsAlone) {
  EXPECT_EQ(pairs_of(read_numbers(write("n.tsv", "sentence1\tsentence2\tscore\na\tb\t2.5\n")).texts),
            (Texts{{"a", "b"}}));
  EXPECT_EQ(pairs_of(read_numbers(write("n.jsonl", R"({"query": "a", "passage": "b", "score": 1})")).texts),
            (Texts{{"a", "b"}}));
  EXPECT_EQ(pairs_of(read_multi_label(write("m.csv", "premise,hypothesis,labels\na,b,x;y\n")).texts),
            (Texts{{"a", "b"}}));
  EXPECT_EQ(pairs_of(read_multi_label(write("m.jsonl", R"({"text": "a", "text_pair": "b", "labels": ["x"]})")).texts),
            (Texts{{"a", "b"}}));
  Texts found;
  const auto use = [&](const TextRow& row) { found.emplace_back(row.text, row.pair.value_or("none")); };
  read_texts(write("t.csv", "question,sentence\na,b\n,c\n"), use);
  read_texts(write("t.jsonl", R"({"question": "d"  , "text": "e"})"), use);
  EXPECT_EQ(found, (Texts{{"a", "b"}, {"", "c"}, {"e", "none"}}));
}

TextSet some_pairs(int32_t rows) {
  TextSet set;
  std::mt19937_64 fixed(3);  // the cases of damage below are of one file
  for (int32_t row = 0; row < rows; ++row)
    set.add(std::string(fixed() % 9, 'x') + " a", std::string(fixed() % 9, 'y') + " b", 0);
  return set;
}

TEST_F(PairFiles, TokensOfASetAndTheirCache) {
  const WordPiece tokenizer = WordPiece::from_embedded();
  const TextSet set = some_pairs(600);
  const TokenSet tokens = tokenize(set, tokenizer, 9);
  ASSERT_EQ(tokens.types.size(), tokens.ids.size());
  for (int64_t row = 0; row < set.size(); ++row) {
    const TypedIds expected = tokenizer.encode_pair(set.text(row), set.text_pair(row), 9);
    EXPECT_EQ(Ids(tokens.row(row).begin(), tokens.row(row).end()), expected.ids);
    EXPECT_EQ(Ids(tokens.row_types(row).begin(), tokens.row_types(row).end()), expected.types);
  }
  TokenizeOptions options = tokenize_options(tokenizer, 9);
  options.pair = tokenizer.pair();
  int calls = 0;
  const Encode counted = [&](std::string_view text, Ids& ids) { ++calls, tokenizer.encode(text, ids); };
  options.threads = 1;
  const TokenSet cached = tokenize(set, counted, options);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(cached.ids, tokens.ids);
  EXPECT_EQ(cached.types, tokens.types);
  // Any damage is found, also in the types at the end.
  const std::string path = token_cache_path(set, options);
  std::ifstream in(path, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> damaged = {good.substr(0, good.size() - 4 * tokens.types.size()), good + "abcd"};
  damaged.push_back(good);
  damaged.back().back() = 1;
  for (const std::string& bytes : damaged) {
    std::ofstream(path, std::ios::binary) << bytes;
    calls = 0;
    EXPECT_EQ(tokenize(set, counted, options).types, tokens.types);
    EXPECT_EQ(calls, 1200);
  }
  // Without types the file has none; another pattern, or other second texts, have another file.
  TokenizeOptions plain = options;
  plain.pair = options.pair.without_types();
  EXPECT_NE(token_cache_path(set, plain), path);
  const TokenSet untyped = tokenize(set, counted, plain);
  EXPECT_TRUE(untyped.types.empty());
  EXPECT_EQ(untyped.ids, tokens.ids);
  TextSet other = some_pairs(599), same = some_pairs(599), single;
  other.add("a", "b", 0);
  same.add("a", "c", 0);
  single.add("a", 0);
  EXPECT_NE(token_cache_path(other, options), token_cache_path(same, options));
  EXPECT_TRUE(fails([&] { tokenize(set, tokenizer, 2); }, {"at least 3 (the tokens around two texts)", "got 2"}));
  options.pair = {};
  EXPECT_TRUE(fails([&] { tokenize(set, counted, options); }, {"options.pair"}));
  EXPECT_NO_THROW(tokenize(single, counted, options));
  EXPECT_TRUE(tokenize(single, tokenizer, 9).types.empty());
}

}  // namespace
}  // namespace tern::data
