// Byte-pair encoding of long words compared with its definition: always the merge of least rank, of equal ones the
// leftmost, until there is none.

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tern/data/files/utf8.h"
#include "tern/data/tokenizers/pipeline/tokenizer_json.h"
#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;
using Symbols = std::vector<std::string>;

/// A model with random merges in any order, also several that make one token, or that make a part later than the whole.
struct Random {
  std::map<std::string, std::int32_t> vocabulary;
  std::map<std::pair<std::string, std::string>, int> ranks;
  Symbols characters;
  bool fallback;
  json list = json::array();  // the merges

  Random(std::mt19937_64& random, const Symbols& letters, std::size_t merges, bool fallback)
      : characters(letters), fallback(fallback) {
    const auto add = [&](const std::string& token) {
      vocabulary.emplace(token, static_cast<std::int32_t>(vocabulary.size()));
    };
    add("<unk>");
    if (fallback)
      for (const char* byte : {"<0xC3>", "<0xA9>"}) add(byte);
    Symbols tokens = letters;
    for (const std::string& letter : letters) add(letter);
    std::vector<std::pair<std::string, std::string>> pairs;
    while (pairs.size() < merges) {
      const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
      const std::string both = left + right;
      if (both.size() > 24) continue;
      if (!vocabulary.contains(both)) tokens.push_back(both);
      add(both);
      pairs.emplace_back(left, right);
    }
    std::shuffle(pairs.begin(), pairs.end(), random);
    for (std::size_t i = 0; i < pairs.size(); ++i) ranks[pairs[i]] = static_cast<int>(i);  // of equal ones the last
    for (const auto& [left, right] : pairs) list.push_back({left, right});
  }
  TokenizerJson tokenizer() const {
    const json model = {{"type", "BPE"},        {"vocab", vocabulary},       {"merges", list},
                        {"unk_token", "<unk>"}, {"byte_fallback", fallback}, {"fuse_unk", true}};
    return TokenizerJson::from_text(json{{"model", model}}.dump());
  }

  /// By the definition.
  Ids expected(const Symbols& text) const {
    Symbols symbols;
    bool unknown = false;  // the library puts it in front of the next known character, behind the bytes of others
    const auto put_unknown = [&] {
      if (unknown) symbols.emplace_back("<unk>");
      unknown = false;
    };
    for (const std::string& c : text) {
      if (vocabulary.contains(c)) {
        put_unknown();
        symbols.push_back(c);
      } else if (fallback && c == "é") {
        symbols.insert(symbols.end(), {"<0xC3>", "<0xA9>"});
      } else {
        unknown = true;
      }
    }
    put_unknown();
    for (;;) {
      int best = INT32_MAX;
      std::size_t at = 0;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ranks.find({symbols[i], symbols[i + 1]});
        if (found != ranks.end() && found->second < best) best = found->second, at = i;
      }
      if (best == INT32_MAX) break;
      symbols[at] += symbols[at + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    Ids ids;
    for (const std::string& symbol : symbols) ids.push_back(vocabulary.at(symbol));
    return ids;
  }
};

TEST(Bpe, LongWordsAreMergedAsDefined) {
  std::mt19937_64 random = fresh_random();
  int longest = 0;
  for (int model = 0; model < 40; ++model) {
    const Symbols all = {"a", "b", "▁", "ß", "日", "e", "f", "g"};
    const Symbols letters(all.begin(), all.begin() + 2 + static_cast<std::ptrdiff_t>(random() % 7));
    const Random made(random, letters, 1 + random() % 60, model % 2 == 0);
    const TokenizerJson tokenizer = made.tokenizer();
    for (int trial = 0; trial < 20; ++trial) {
      Symbols text;
      std::string joined;
      const bool unknown = trial % 3 == 0;
      for (std::size_t i = 0, count = 20 + random() % 100; i < count; ++i) {
        const std::size_t k = random() % (letters.size() + (unknown ? 2 : 0));
        text.push_back(k < letters.size() ? letters[k] : k == letters.size() ? "é" : "z");
        if (random() % 4 == 0) text.insert(text.end(), random() % 9, text.back());
      }
      for (const std::string& c : text) joined += c;
      Ids ids;
      tokenizer.encode(joined, ids);
      ASSERT_EQ(ids, made.expected(text)) << joined << " " << made.list;
      for (const std::int32_t id : ids) longest = std::max(longest, static_cast<int>(tokenizer.token(id).size()));
    }
  }
  EXPECT_GE(longest, 8);
}

/// Models whose unknown characters do not end a word: they vanish, or are in merges.
TEST(Bpe, UnknownCharactersBetweenWhatIsMerged) {
  const std::string a30(30, 'a'), b30(30, 'b');
  const auto ids_of = [&](json model, const std::string& text) {
    model.update(json{{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"<unk>", 3}, {"a<unk>", 4}}}});
    Ids ids;
    TokenizerJson::from_text(json{{"model", model}}.dump()).encode(text, ids);
    return ids;
  };
  Ids expected(30, 0);
  expected.back() = 2;
  expected.insert(expected.end(), 29, 1);
  EXPECT_EQ(ids_of({{"merges", json::array({{"a", "b"}})}}, a30 + "z" + b30), expected);
  expected[29] = 4;
  expected.push_back(1);
  EXPECT_EQ(ids_of({{"merges", json::array({{"a", "b"}, {"a", "<unk>"}})}, {"unk_token", "<unk>"}}, a30 + "z" + b30),
            expected);
  expected = Ids(30, 0);
  expected.push_back(3);
  expected.insert(expected.end(), 30, 1);
  EXPECT_EQ(ids_of({{"merges", json::array({{"a", "b"}})}, {"unk_token", "<unk>"}}, a30 + "z" + b30), expected);
}

/// The time is linear in the length, and threads share a model.
TEST(Bpe, VeryLongWordsOnSeveralThreads) {
  std::mt19937_64 random = fresh_random();
  const Random made(random, {"a", "b"}, 40, false);
  const TokenizerJson tokenizer = made.tokenizer();
  std::string text;
  for (int i = 0; i < 300000; ++i) text += random() % 3 == 0 ? 'b' : 'a';
  std::vector<Ids> found(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& ids : found) threads.emplace_back([&] { tokenizer.encode(text, ids); });
  }
  std::string back;
  for (const std::int32_t id : found[0]) back += tokenizer.token(id);
  EXPECT_EQ(back, text);
  for (const Ids& ids : found) EXPECT_EQ(ids, found[0]);
  // Another model's borders are not taken for this one's.
  const Random other(random, {"a", "b"}, 40, false);
  const TokenizerJson next = other.tokenizer();
  Ids again, ids;
  next.encode(text.substr(0, 300), ids);
  tokenizer.encode(text, again);
  EXPECT_EQ(again, found[0]);
}

}  // namespace
}  // namespace tern::data
