// gzip in memory, against what zlib's own compressor writes.

#include "tern/data/files/gzip.h"

#include "tern/tests/data/support.h"
#include "tern/tests/support/seed.h"

namespace tern::data {
namespace {

std::string gunzip_error(const std::string& bytes, int64_t max_size = 1 << 20) {
  return error_of([&] { gunzip(bytes, "input", max_size); });
}

TEST(Gzip, GivesWhatWasCompressed) {
  std::mt19937_64 random = fresh_random();
  const size_t block = 1 << 16;  // what is unpacked at a time
  for (const size_t size : {size_t{0}, size_t{1}, size_t{777}, block - 1, block, block + 1, 3 * block + 5}) {
    const std::string bytes = random_bytes(size, random, 5);  // few values, so that they shrink
    const int64_t max_size = static_cast<int64_t>(size);
    EXPECT_EQ(gunzip(gzip(bytes), "input", max_size), bytes) << size;
    if (size == 0) continue;
    EXPECT_TRUE(contains(gunzip_error(gzip(bytes), max_size - 1), {"input: refused", "more than expected"})) << size;
  }
}

TEST(Gzip, RefusesWhatIsDamaged) {
  std::mt19937_64 random = fresh_random();
  const std::string good = gzip(random_bytes(5000, random, 5));
  for (size_t size = 0; size < good.size(); size += 1 + random() % 50)
    EXPECT_TRUE(contains(gunzip_error(good.substr(0, size)), {"input: truncated"})) << size;
  EXPECT_TRUE(contains(gunzip_error("plain text"), {"input: damaged"}));
  EXPECT_TRUE(contains(gunzip_error(good + "xyz"), {"input: damaged", "3 bytes follow"}));
  std::string sum = good;
  sum[sum.size() - 8] = static_cast<char>(sum[sum.size() - 8] ^ 1);  // of CRC-32, which precedes the length
  EXPECT_TRUE(contains(gunzip_error(sum), {"input: damaged"}));
}

}  // namespace
}  // namespace tern::data
