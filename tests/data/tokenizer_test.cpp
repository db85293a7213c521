// The WordPiece tokenizer compared with Hugging Face: committed hashes of its ids and words over every code point and
// over random strings (tests/golden/tokenizer), literal ids, and a slow reference implementation for other
// vocabularies.

#include "tern/data/tokenizers/wordpiece.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <tuple>

#include "tern/tests/data/support.h"
#include "tern/tests/places.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
using Words = std::vector<std::string>;

std::string utf8(char32_t c) {
  std::string out;
  unicode::append_utf8(out, c);
  return out;
}

/// The embedded one.
const WordPiece& tokenizer() {
  static const WordPiece embedded = WordPiece::from_embedded();
  return embedded;
}

class Hashes {
 public:
  Hashes() {
    for (const WordPieceOptions& options : {WordPieceOptions{},
                                            {.lowercase = false},
                                            {.strip_accents = false},
                                            {.lowercase = false, .strip_accents = true}})
      tokenizers_.push_back(WordPiece::from_embedded(options));
    std::ifstream file(test::source_dir() + "/tests/golden/tokenizer/hashes.txt");
    std::string line;
    while (std::getline(file, line)) {
      if (line.starts_with("#")) continue;
      std::istringstream fields(line);
      std::string set, start, rest;
      fields >> set >> start >> std::ws;
      std::getline(fields, rest);
      expected_[set + " " + start] = rest;
    }
  }

  /// Compares the block of a set that begins with string `start`; true if the hash file has this block.
  bool check(const std::string& set, std::size_t start, const std::vector<std::string>& texts) const {
    const auto found = expected_.find(set + " " + std::to_string(start));
    const std::string given = hashes(texts), expected = found == expected_.end() ? "not in hashes.txt" : found->second;
    EXPECT_EQ(given, expected) << set << " " << start;
    return given == expected;
  }

 private:
  static void mix(std::uint32_t& hash, std::uint32_t value) { hash = (hash ^ value) * 0x01000193u; }

  std::string hashes(const std::vector<std::string>& texts) const {
    std::string line;
    for (const WordPiece& tokenizer : tokenizers_) {
      std::uint32_t ids_hash = 0x811c9dc5u, words_hash = 0x811c9dc5u;
      Ids ids;
      for (const std::string& text : texts) {
        ids.clear();
        tokenizer.encode(text, ids);
        mix(ids_hash, static_cast<std::uint32_t>(ids.size()));
        for (const std::int32_t id : ids) mix(ids_hash, static_cast<std::uint32_t>(id));
        for (const std::string& word : tokenizer.words(text)) {
          for (const char c : word) mix(words_hash, static_cast<unsigned char>(c));
          mix(words_hash, '\n');
        }
        mix(words_hash, 0);
      }
      char text[32];
      std::snprintf(text, sizeof text, "%s%08x %08x", line.empty() ? "" : " ", ids_hash, words_hash);
      line += text;
    }
    return line;
  }

  std::vector<WordPiece> tokenizers_;
  std::map<std::string, std::string> expected_;
};

// ThreadSanitizer is ten times slower, for a single thread, and AddressSanitizer four times: both run samples.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kRandomTexts = 5000;
constexpr int kEvery = 16;  // one of this many blocks of code points
#elif defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kRandomTexts = 30000;
constexpr int kEvery = 3;
#else
constexpr std::size_t kRandomTexts = 100000;
constexpr int kEvery = 1;
#endif
constexpr int kBlocks = (unicode::kLastCodePoint + 1) / 4096;

void check_every_code_point(const std::string& set, const std::string& before, const std::string& after) {
  const Hashes hashes;
  int blocks = 0;
  for (char32_t start = 0; start <= unicode::kLastCodePoint; start += 4096 * kEvery) {
    std::vector<std::string> texts;
    for (char32_t c = start; c < start + 4096; ++c) {
      if (c < 0xD800 || c >= 0xE000) texts.push_back(before + utf8(c) + after);
    }
    blocks += hashes.check(set, start, texts);
  }
  EXPECT_EQ(blocks, (kBlocks + kEvery - 1) / kEvery);
}

TEST(WordPiece, EveryCodePointAlone) { check_every_code_point("alone", "", ""); }
TEST(WordPiece, EveryCodePointBetweenLetters) { check_every_code_point("between", "a", "b"); }

/// The generator of make_hashes.py; with its seed it gives the strings of hashes.txt.
class RandomStrings {
 public:
  explicit RandomStrings(std::uint64_t seed = 20180810) : state_(seed) {}
  std::string next() {
    constexpr int kLengths[] = {1, 2, 3, 5, 8, 13, 21, 34};
    std::string text;
    for (int left = kLengths[below(8)]; left > 0; --left) text += symbol();
    return text;
  }

 private:
  std::uint64_t below(std::uint64_t n) {  // splitmix64
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % n;
  }

  char32_t from(char32_t first, std::uint64_t count) { return first + static_cast<char32_t>(below(count)); }

  std::string token() {
    const auto tokens = static_cast<std::uint64_t>(tokenizer().vocab_size());
    return std::string(tokenizer().token(static_cast<std::int32_t>(below(tokens))));
  }

  std::string symbol() {
    static constexpr char32_t kMarks[] = {0x8D4,   0x8DD,   0x1B44,  0x1BAA,  0x1DFB,  0x302E,  0x302F,
                                          0x1D165, 0x1D166, 0x1D16D, 0x1D16E, 0x1E000, 0x1E94A, 0xC48,
                                          0xC46,   0xC56,   0x1112E, 0xF73,   0x344,   0xDCF};
    static constexpr const char* kLiterals[] = {"[SEP]", "[MASK]", "[CLS]", "[PAD]",
                                                "[UNK]", "[sep]",  "[SE",   "[[MASK]]"};
    const std::uint64_t kind = below(16);
    if (kind < 4) return utf8(from('a', 26));
    if (kind == 4) return std::string(1, " \t\n .,-[]#'"[below(11)]);
    if (kind == 5) return token();
    if (kind == 6) {
      const std::string piece = token();
      return piece.starts_with("##") ? piece.substr(2) : piece;
    }
    if (kind == 7) return utf8(from(0, 128));
    if (kind == 8) return utf8(from(0xC0, 0x190));
    if (kind == 9) return utf8(from(0x300, 0x70));
    if (kind == 10) return utf8(from(0xAC00, 11172));
    if (kind == 11) return utf8(from(0x370, 0x1C0));
    if (kind == 12) return utf8(kMarks[below(std::size(kMarks))]);
    if (kind == 13) {
      const std::uint64_t at = below(std::size(kLiterals) + 3);
      return at < std::size(kLiterals) ? kLiterals[at] : std::string(99 + at - std::size(kLiterals), 'a');
    }
    const char32_t c = from(0, kind == 14 ? 0x10000 : 0x110000);
    return c >= 0xD800 && c < 0xE000 ? "x" : utf8(c);
  }

  std::uint64_t state_;
};

TEST(WordPiece, HundredThousandRandomStrings) {
  const Hashes hashes;
  RandomStrings strings;
  for (std::size_t start = 0; start < kRandomTexts; start += 1000) {
    std::vector<std::string> texts;
    for (int i = 0; i < 1000; ++i) texts.push_back(strings.next());
    ASSERT_TRUE(hashes.check("random", start, texts));
  }
}

// Expected values printed by Hugging Face tokenizers 0.23.3.
TEST(WordPiece, LiteralIds) {
  const std::vector<std::pair<std::string, Ids>> cases = {
      {"", {}},
      {" \t\r\n", {}},
      {"Which NFL team won Super Bowl 50?", {2029, 5088, 2136, 2180, 3565, 4605, 2753, 1029}},
      {"abc[SEP]def", {5925, 102, 13366}},
      {"[sep]", {1031, 19802, 1033}},
      {"[ MASK ]", {1031, 7308, 1033}},
      {"[[MASK]]", {1031, 103, 1033}},
      {"[MASK][MASK]", {103, 103}},
      {"a[PAD] [UNK]", {1037, 0, 100}},
      {"[CLS", {1031, 18856, 2015}},
      {"[MASK]\u0301e", {103, 1041}},
      {"[SE\uFFFDP]", {1031, 19802, 1033}},
      {std::string("[SE\0P]", 6), {1031, 19802, 1033}},
      {std::string(101, 'a'), {100}},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(tokenizer().encode(text), expected) << text;
  EXPECT_EQ(tokenizer().pieces("H\u00C9llo [MASK] \u6F22\u5B57 x"), (Words{"hello", "[MASK]", "\u6F22", "[UNK]", "x"}));
  EXPECT_EQ(tokenizer().vocab_size(), 30522);
  EXPECT_EQ((Ids{tokenizer().pad_id(), tokenizer().unk_id(), tokenizer().cls_id(), tokenizer().sep_id(),
                 tokenizer().mask_id()}),
            (Ids{0, 100, 101, 102, 103}));
  EXPECT_EQ(tokenizer().token(2029), "which");
  EXPECT_EQ(tokenizer().id("which"), 2029);
  EXPECT_EQ(tokenizer().id("Which"), std::nullopt);
  EXPECT_TRUE(fails([&] { tokenizer().token(30522); }, {"0 to 30521"}));
  EXPECT_TRUE(fails([&] { tokenizer().token(-1); }, {"-1"}));
}

TEST(WordPiece, EncodeAppends) {
  Ids ids{7};
  EXPECT_EQ(tokenizer().encode("which unkn\u0900own which", ids), 0u);
  EXPECT_EQ(ids.front(), 7);
  EXPECT_EQ(ids[1], 2029);
  EXPECT_EQ(ids.back(), 2029);
}

TEST(WordPiece, InvalidUtf8IsDroppedAndCounted) {
  const std::vector<std::tuple<std::string, std::size_t, Words>> cases = {
      // malformed bytes as in Python's errors="replace"
      {"the\xFF\x6d", 1, {"them"}},
      {"\xE2\x82 \xE2\x82\xAC", 1, {"\u20AC"}},
      {"\xED\xA0\x80", 3, {}},
      {"\xF0\x9F\x98", 1, {}},
      {"\xF4\x90\x80\x80", 4, {}},
      {"\xC0\xAF", 2, {}},
      {"x\xE2[SEP]", 1, {"x", "[SEP]"}},
      {"\xF1\x80\x80\x61", 1, {"a"}},
      {"\uFFFD", 0, {}},
  };
  for (const auto& [text, replaced, pieces] : cases) {
    Ids ids;
    EXPECT_EQ(tokenizer().encode(text, ids), replaced) << testing::PrintToString(text);
    Words given;
    for (const std::int32_t id : ids) given.emplace_back(tokenizer().token(id));
    EXPECT_EQ(given, pieces) << testing::PrintToString(text);
  }
}

TEST(WordPiece, SpecialFormKeepsBothEndsWithinTheLimit) {
  const std::string text = "hello world foo bar, unaffable";
  const Ids all = tokenizer().encode(text);
  for (std::size_t limit = 2; limit < all.size() + 5; ++limit) {
    Ids expected{101};
    expected.insert(expected.end(), all.begin(),
                    all.begin() + static_cast<std::ptrdiff_t>(std::min(limit - 2, all.size())));
    expected.push_back(102);
    EXPECT_EQ(tokenizer().encode_special(text, limit), expected) << limit;
  }
  EXPECT_EQ(tokenizer().encode_special(text).size(), all.size() + 2);
  EXPECT_EQ(tokenizer().encode_special(""), (Ids{101, 102}));
  std::size_t replaced = 7;
  tokenizer().encode_special("a\xFF", 10, &replaced);
  EXPECT_EQ(replaced, 1u);
  EXPECT_TRUE(fails([&] { tokenizer().encode_special(text, 1); }, {"at least 2"}));
}

TEST(WordPiece, MarksThatStayAreOrdered) {
  const WordPiece keeping = WordPiece::from_embedded({.lowercase = false});
  EXPECT_EQ(tokenizer().words("a\U0001D16D\U0001D165"), (Words{"a\U0001D165\U0001D16D"}));
  EXPECT_EQ(tokenizer().words("a\U0001D16D\u0301\U0001D165"), (Words{"a\U0001D165\U0001D16D"}));
  EXPECT_EQ(tokenizer().words("a\U0001D16D\u0C46\U0001D165"), (Words{"a\U0001D16D\U0001D165"}));  // split by a starter
  EXPECT_EQ(keeping.words("a\U0001D16D\U0001D165"), (Words{"a\U0001D16D\U0001D165"}));
  EXPECT_EQ(WordPiece::from_embedded({.strip_accents = false}).words("\u0130"), (Words{"i\u0307"}));
  EXPECT_EQ(tokenizer().words("\u0130"), (Words{"i"}));
  EXPECT_EQ(WordPiece::from_embedded({.split_cjk = false}).words("\u6F22\u5B57"), (Words{"\u6F22\u5B57"}));
  EXPECT_EQ(tokenizer().words("\u6F22\u5B57"), (Words{"\u6F22", "\u5B57"}));
}

TEST(WordPiece, LongTextWithoutSpaces) {
  EXPECT_EQ(tokenizer().encode(std::string(10'000'000, 'a')), (Ids{100}));
  std::string marks = "a";
  for (int i = 0; i < 1'000'000; ++i) marks += i % 2 ? "\U0001D16D" : "\U0001D165";
  EXPECT_EQ(tokenizer().encode(marks), (Ids{100}));
  EXPECT_EQ(tokenizer().words(marks)[0].size(), marks.size());
  std::string ideographs;
  for (int i = 0; i < 1'000'000; ++i) ideographs += "\u6F22";
  EXPECT_EQ(tokenizer().encode(ideographs), Ids(1'000'000, *tokenizer().id("\u6F22")));
  EXPECT_EQ(tokenizer().encode_special(ideographs, 16).size(), 16u);
}

/// Greedy longest match, as described in the paper, for words of ASCII letters.
Ids slow_encode(const std::map<std::string, std::int32_t>& vocabulary, const std::string& text, std::size_t max_chars) {
  Ids ids;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    Ids pieces;
    std::size_t at = 0, length = 0;
    for (; at < word.size() && word.size() <= max_chars; at += length) {
      for (length = word.size() - at; length > 0; --length) {
        const auto found = vocabulary.find((at > 0 ? "##" : "") + word.substr(at, length));
        if (found != vocabulary.end()) {
          pieces.push_back(found->second);
          break;
        }
      }
      if (length == 0) break;
    }
    if (at < word.size()) pieces = {vocabulary.at("[UNK]")};
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }
  return ids;
}

TEST(WordPiece, RandomVocabulariesAgainstASlowImplementation) {
  std::mt19937_64 random = fresh_random();
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  const auto random_word = [&](int letters, int longest) {
    std::string word;
    for (int left = 1 + below(longest); left > 0; --left) word += static_cast<char>('a' + below(letters));
    return word;
  };
  int unknown = 0, split = 0;
  for (int round = 0; round < 200; ++round) {
    const int letters = 1 + below(5);
    std::string file = "[UNK]\n";
    std::map<std::string, std::int32_t> vocabulary{{"[UNK]", 0}};
    for (int id = 1, size = below(300); id < size; ++id) {  // in case of duplicates the last line counts
      const std::string token = (below(2) ? "##" : "") + random_word(letters, 6);
      file += token + "\n";
      vocabulary[token] = id;
    }
    const WordPieceOptions options{.max_word_chars = static_cast<std::size_t>(1 + below(30))};
    const WordPiece tokenizer = WordPiece::from_text(file, options);
    for (int i = 0; i < 100; ++i) {
      const std::string text = random_word(letters, 4) + " " + random_word(letters, 33);
      const Ids ids = tokenizer.encode(text);
      ASSERT_EQ(ids, slow_encode(vocabulary, text, options.max_word_chars)) << file << "text: " << text;
      unknown += ids.back() == 0;
      split += ids.size() > 2;
    }
  }
  EXPECT_GT(unknown, 1000);
  EXPECT_GT(split, 1000);
}

TEST(WordPiece, ManyThreadsShareOne) {
  RandomStrings strings(fresh_seed());
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (int i = 0; i < 500; ++i) {
    texts.push_back(strings.next());
    expected.push_back(tokenizer().encode(texts.back()));
  }
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(tokenizer().encode(texts[i]), expected[i]) << texts[i];
    });
}

TEST(WordPiece, PublishedVectors) {
  const char* data = std::getenv("TERN_DATA");
  if (!data) GTEST_SKIP() << "data: TERN_DATA is not set";
  std::ifstream file(fs::path(data) / "wordpiece" / "vectors.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto vector = nlohmann::json::parse(line);
    EXPECT_EQ(tokenizer().encode(vector["text"].get<std::string>()), vector["ids"].get<Ids>()) << line;
  }
  EXPECT_EQ(lines, 3548);
}

TEST(WordPiece, MovieReviews) {
  const char* data = std::getenv("TERN_DATA");
  if (!data) GTEST_SKIP() << "data: TERN_DATA is not set";
  std::vector<std::string> reviews;
  for (const char* label : {"neg", "pos"}) {
    const std::vector<fs::path> paths = sorted_entries(fs::path(data) / "aclImdb" / "test" / label);
    for (std::size_t i = 0; i < 1000 && i < paths.size(); ++i) reviews.push_back(read_bytes(paths[i]));
  }
  ASSERT_EQ(reviews.size(), 2000u);
  const Hashes hashes;
  for (std::size_t start = 0; start < reviews.size(); start += 100) {
    const auto first = reviews.begin() + static_cast<std::ptrdiff_t>(start);
    EXPECT_TRUE(hashes.check("imdb", start, {first, first + 100}));
  }
}

}  // namespace
}  // namespace tern::data
