// Tokenising a set with threads, and the cache: hits, damage, folders that cannot be written.

#include "tern/data/datasets/token_set.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <set>
#include <stdexcept>
#include <thread>

#include "tern/data/files/sha256.h"
#include "tern/tests/data/support.h"

namespace tern::data {
namespace {

namespace fs = std::filesystem;

class Tokens : public FolderTest {
 protected:
  /// Row r has r % 13 letters.
  static TextSet letters(int32_t n) {
    TextSet set;
    for (int32_t row = 0; row < n; ++row)
      set.add(std::string(static_cast<size_t>(row % 13), static_cast<char>('a' + row % 26)), 0);
    return set;
  }

  /// One id a byte; counts the calls.
  Encode encode() {
    return [this](std::string_view text, std::vector<int32_t>& ids) {
      ++calls_;
      for (const char c : text) ids.push_back(1000 + c);
    };
  }

  /// Without a key there is no cache.
  TokenizeOptions options(const std::string& key = "vocabulary", int threads = 2, int64_t max_length = 8) {
    return {max_length, {{101}, {102}}, false, threads, key, log_to(lines_)};
  }

  int calls() { return calls_.exchange(0); }
  std::ptrdiff_t caches() const { return std::distance(fs::directory_iterator(root() / "cache/tern/tokens"), {}); }

  std::atomic<int> calls_ = 0;
  std::vector<std::string> lines_;
  Environment cache_{"XDG_CACHE_HOME", (root() / "cache").string()};
};

void expect_equal(const TokenSet& a, const TokenSet& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.offsets, b.offsets);
}

TEST_F(Tokens, FramedAndTruncated) {
  TextSet set;
  for (const char* text : {"", "ab", "abcdef", "abcdefg", "abcdefghij"}) set.add(text, 0);
  const TokenSet tokens = tokenize(set, encode(), options(""));
  const std::vector<int32_t> cut = {101, 1097, 1098, 1099, 1100, 1101, 1102, 102};
  const std::vector<std::vector<int32_t>> expected = {{101, 102}, {101, 1097, 1098, 102}, cut, cut, cut};
  ASSERT_EQ(tokens.size(), 5);
  for (int64_t row = 0; row < 5; ++row)
    EXPECT_EQ(std::vector<int32_t>(tokens.row(row).begin(), tokens.row(row).end()), expected[row]);
  EXPECT_EQ(tokens.lengths(), (std::vector<int32_t>{2, 4, 8, 8, 8}));
  EXPECT_FALSE(fs::exists(root() / "cache"));
  EXPECT_EQ(tokenize(set, encode(), options("", 2, 2)).lengths(), std::vector<int32_t>(5, 2));
  EXPECT_TRUE(fails([&] { tokenize(set, encode(), options("", 2, 1)); }, {"max_length", "got 1"}));
}

TEST_F(Tokens, AnyNumberOfThreads) {
  const TextSet set = letters(3000);
  const TokenSet expected = tokenize(set, encode(), options("", 1));
  EXPECT_EQ(expected.size(), 3000);
  for (const int threads : {0, 2, 5, 64}) expect_equal(tokenize(set, encode(), options("", threads)), expected);
  EXPECT_EQ(tokenize({}, encode(), options("")).size(), 0);
}

TEST_F(Tokens, ErrorOfTheFirstFailingRow) {
  const TextSet set = letters(3000);
  const Encode failing = [&](std::string_view text, std::vector<int32_t>&) {
    const int64_t row = std::upper_bound(set.offsets.begin(), set.offsets.end(), text.data() - set.bytes.data()) -
                        set.offsets.begin() - 1;
    if (row >= 1500) throw std::runtime_error(std::to_string(row));
  };
  for (int trial = 0; trial < 20; ++trial) {
    try {
      tokenize(set, failing, options(""));
      ADD_FAILURE() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_LT(std::stoi(error.what()), 1502);  // row 1500 has an empty neighbour at the same address
    }
  }
}

TEST_F(Tokens, KeyedByContentAndOptions) {
  const TextSet set = letters(100);
  TokenizeOptions first = options(), last = options();
  first.around.before = last.around.after = {9};
  std::set<fs::path> paths = {token_cache_path(letters(101), options())};
  for (const TokenizeOptions& o : {options(), options("other vocabulary"), options("vocabulary", 2, 9), first, last})
    paths.insert(token_cache_path(set, o));
  EXPECT_EQ(paths.size(), 6u);
  EXPECT_EQ(token_cache_path(set, options("vocabulary", 7)), token_cache_path(set, options()));
}

TEST_F(Tokens, DamagedCachesAreRewritten) {
  const TextSet set = letters(50);
  const TokenSet expected = tokenize(set, encode(), options());
  const fs::path path = token_cache_path(set, options());
  const std::string good = read_bytes(path);
  std::vector<std::string> damaged = {"", good.substr(0, 10), good.substr(0, good.size() - 1), good + "x",
                                      std::string(good.size(), '\0')};
  for (size_t at = 0; at < good.size(); at += at < 24 ? 1 : 61) {
    damaged.push_back(good);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x41);
  }
  for (const std::string& bytes : damaged) {
    std::ofstream(path, std::ios::binary) << bytes;
    calls();
    expect_equal(tokenize(set, encode(), options()), expected);
    EXPECT_EQ(calls(), 50);
    EXPECT_EQ(read_bytes(path), good);
  }
  EXPECT_TRUE(lines_.empty());
}

/// Its checksums are right, but row 0, which has the two tokens around a text alone, would have one.
TEST_F(Tokens, CachedRowsHaveTheTokensAround) {
  const TextSet set = letters(50);
  const TokenSet expected = tokenize(set, encode(), options());
  const fs::path path = token_cache_path(set, options());
  std::string changed = read_bytes(path);
  constexpr size_t kDigest = 8 + 64, kOffsets = kDigest + 64 + 16;  // behind the mark, the key, and two counts
  ASSERT_EQ(changed[kOffsets + 8], 2);
  changed[kOffsets + 8] = 1;
  changed.replace(kDigest, 64, sha256(changed.substr(kOffsets)));
  std::ofstream(path, std::ios::binary) << changed;
  calls();
  expect_equal(tokenize(set, encode(), options()), expected);
  EXPECT_EQ(calls(), 50);
}

TEST_F(Tokens, WithoutAWritableFolderThereIsNoCache) {
  const TextSet set = letters(50);
  const TokenSet expected = tokenize(set, encode(), options(""));
  write("file", "not a folder");
  {
    const Environment blocked("XDG_CACHE_HOME", (root() / "file").string());
    expect_equal(tokenize(set, encode(), options()), expected);
    ASSERT_EQ(lines_.size(), 1u);
    EXPECT_TRUE(contains(lines_[0], {"not cached", (root() / "file").string()}));
  }
  const Environment no_cache("XDG_CACHE_HOME", std::nullopt);
  const Environment no_home("HOME", std::nullopt);
  expect_equal(tokenize(set, encode(), options()), expected);
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_TRUE(contains(lines_[1], {"not cached", "HOME"}));
  // A folder stands where the file should go.
  const Environment again("XDG_CACHE_HOME", (root() / "cache").string());
  fs::create_directories(fs::path(token_cache_path(set, options())) / "x");
  expect_equal(tokenize(set, encode(), options()), expected);
  EXPECT_EQ(lines_.size(), 3u);
  EXPECT_EQ(caches(), 1);
}

TEST_F(Tokens, FullDisk) {
  const TextSet set = letters(50'000);
  const TokenSet expected = tokenize(set, encode(), options(""));
  // A limit on the size of files makes write() fail as a full disk does.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100'000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_equal(tokenize(set, encode(), options()), expected);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_TRUE(contains(lines_[0], {"not cached", "cannot be written"}));
  EXPECT_TRUE(fs::is_empty(root() / "cache/tern/tokens"));
}

TEST_F(Tokens, SeveralWritersAtOnce) {
  const TextSet set = letters(2000);
  const TokenSet expected = tokenize(set, encode(), options(""));
  TokenizeOptions quiet = options();
  quiet.log = {};
  {
    std::vector<std::jthread> writers;
    for (int i = 0; i < 4; ++i) writers.emplace_back([&] { expect_equal(tokenize(set, encode(), quiet), expected); });
  }
  calls();
  expect_equal(tokenize(set, encode(), options()), expected);
  EXPECT_EQ(calls(), 0);  // the cache was read
  EXPECT_TRUE(lines_.empty());
  EXPECT_EQ(caches(), 1);
}

TEST_F(Tokens, ByWordPiece) {
  TextSet set;
  for (const char* text : {"", "Hello world", "hello hello hello hello"}) set.add(text, 0);
  const WordPiece tokenizer = WordPiece::from_embedded();
  const TokenSet tokens = tokenize(set, tokenizer, 4);
  EXPECT_EQ(tokens.ids, (std::vector<int32_t>{101, 102, 101, 7592, 2088, 102, 101, 7592, 7592, 102}));
  EXPECT_EQ(tokens.lengths(), (std::vector<int32_t>{2, 4, 4}));
  expect_equal(tokenize(set, tokenizer, 4), tokens);
  EXPECT_EQ(caches(), 1);
  tokenize(set, WordPiece::from_embedded({.lowercase = false}), 4);
  EXPECT_EQ(caches(), 2);
}

TEST_F(Tokens, CacheDirectory) {
  EXPECT_EQ(cache_directory(), root() / "cache" / "tern");
  const Environment relative("XDG_CACHE_HOME", "relative");
  const Environment home("HOME", "/home/somebody");
  EXPECT_EQ(cache_directory(), "/home/somebody/.cache/tern");
}

}  // namespace
}  // namespace tern::data
