// Placement of tensors in buckets that are cut into parts.

#include "tern/dist/gradients/shard_layout.h"
#include "tern/tests/support/seed.h"

#include <gtest/gtest.h>

namespace tern::dist {
namespace {

TEST(ShardLayout, EveryElementOnceAndCutsBetweenBlocks) {
  std::mt19937_64 random = fresh_random();
  const auto any = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  for (int round = 0; round < 3000; ++round) {
    const int ranks = 1 + static_cast<int>(any(9));
    const int64_t alignment = 1 << any(5), block = alignment << any(7);
    std::vector<int64_t> sizes;
    int64_t total = 0;
    for (int64_t i = 1 + any(12); i > 0; --i) {
      sizes.push_back(any(2) ? any(5) : any(5000));
      total += sizes.back();
    }
    const ShardLayout layout = lay_out_shards(sizes, ranks, alignment, block);
    ASSERT_EQ(layout.part % alignment, 0);
    ASSERT_TRUE(total == 0 || layout.part > 0);
    // At most the rounding of the parts is unused, and one gap before each tensor that is cut.
    ASSERT_LE(layout.part * ranks, total + (2 * ranks + 1) * block + alignment * static_cast<int64_t>(sizes.size()));
    int64_t end = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      ASSERT_EQ(layout.begins[i] % alignment, 0);
      ASSERT_GE(layout.begins[i], end);
      end = layout.begins[i] + sizes[i];
      ASSERT_LE(end, layout.part * ranks);
      int64_t covered = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ShardRange range = shard_of(layout.begins[i], sizes[i], layout.part, rank);
        ASSERT_GE(range.size(), 0);
        if (range.size() == 0) continue;
        ASSERT_EQ(range.begin, covered);
        ASSERT_EQ(range.begin % block, 0);
        ASSERT_EQ((layout.begins[i] + range.begin) / layout.part, rank);
        ASSERT_EQ((layout.begins[i] + range.end - 1) / layout.part, rank);
        covered = range.end;
      }
      ASSERT_EQ(covered, sizes[i]);
    }
  }
}

TEST(ShardLayout, EqualPartsWithoutBlocks) {
  const ShardLayout layout = lay_out_shards({100, 28, 128}, 4, 16, 16);
  EXPECT_EQ(layout.part, 80);  // 272 elements with the gap after the first
  EXPECT_EQ(layout.begins, (std::vector<int64_t>{0, 112, 144}));
}

TEST(ShardLayout, LittleIsLost) {
  // Fewer elements than one block per rank: the part is the tensor itself, which cannot be cut.
  EXPECT_EQ(lay_out_shards({400}, 4, 16, 4096).part, 400);
  EXPECT_EQ(lay_out_shards({64, 64, 64, 64}, 4, 16, 4096).part, 64);
  // One cut: the tensor begins so that the cut is between blocks. Several cuts: parts of whole blocks.
  EXPECT_EQ(lay_out_shards({400'000}, 2, 16, 4096).part, 200'704);
  EXPECT_EQ(lay_out_shards({400'000}, 4, 16, 4096).part, 102'400);
}

}  // namespace
}  // namespace tern::dist
