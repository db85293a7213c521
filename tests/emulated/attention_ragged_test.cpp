// The kernels that convert arguments and results of a library's attention, in the emulator, against plain loops.

#include "tern/kernels/cuda/attention/ragged.h"

#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels {
namespace {

/// Sequences of several lengths, one of them empty, and tokens after the last one.
struct Packed {
  std::vector<int32_t> offsets;
  int64_t sequences, used, tokens;
  Packed(int64_t count, int64_t longest, int64_t spare, std::mt19937_64& random) : offsets{0}, sequences(count) {
    for (int64_t s = 0; s < count; ++s)
      offsets.push_back(offsets.back() + (s == 1 ? 0 : static_cast<int32_t>(random() % longest + 1)));
    used = offsets.back();
    tokens = used + spare;
  }
};

std::vector<Packed> packed_cases(std::mt19937_64& random) {
  return {{0, 1, 0, random}, {0, 1, 7, random}, {1, 9, 0, random}, {5, 60, 33, random}, {300, 4, 1, random}};
}

TEST(SimtAttentionRagged, Offsets) {
  std::mt19937_64 random = fresh_random();
  const cuda::TokenStrides strides{{64, 768, 2304, int64_t{1} << 33}, 4};
  for (const Packed& p : packed_cases(random))
    for_each_schedule([&] {
      const int64_t pitch = cuda::offsets_pitch(p.sequences);
      EXPECT_GE(pitch, p.sequences + 1);
      EXPECT_EQ(pitch * 8 % 16, 0);
      std::vector<int32_t> lengths(p.sequences + 1, -7);
      std::vector<int64_t> elements(strides.count * pitch + 1, -7);
      cuda::ragged_offsets(kCuda, p.offsets.data(), p.sequences, strides, lengths.data(), elements.data());
      for (int64_t i = 0; i < p.sequences; ++i) ASSERT_EQ(lengths[i], p.offsets[i + 1] - p.offsets[i]) << i;
      EXPECT_EQ(lengths.back(), -7);
      for (int s = 0; s < strides.count; ++s)
        for (int64_t i = 0; i <= p.sequences; ++i)
          ASSERT_EQ(elements[s * pitch + i], p.offsets[i] * strides.values[s]) << s << " " << i;
      EXPECT_EQ(elements.back(), -7);
    });
}

TEST(SimtAttentionRagged, LogSumExpByHeadsAndByTokens) {
  std::mt19937_64 random = fresh_random();
  for (const Packed& p : packed_cases(random))
    for (const int64_t heads : {1, 3, 12})
      for (const Order order : kAllOrders) {
        Array by_token(float32, {p.used, heads});
        fill_with_random(by_token, random, -5, 5);
        for_each_schedule([&] {
          Array by_head(float32, {heads, p.tokens}, order);
          cuda::heads_first(kCuda, p.offsets.data(), p.sequences, static_cast<const float*>(by_token.cview().data),
                            by_head.view());
          for (int64_t i = 0; i < heads * p.tokens; ++i) {
            const int64_t head = i / p.tokens, token = i % p.tokens;
            ASSERT_EQ(by_head.at(i), token < p.used ? by_token.at(token * heads + head) : -INFINITY) << i;
          }
          Array back(float32, {p.used, heads});
          cuda::tokens_first(kCuda, p.offsets.data(), p.sequences, by_head.cview(), back.view().as<float>());
          EXPECT_EQ(back.values(), by_token.values());
          expect_gaps_untouched(by_head);
        });
      }
}

TEST(SimtAttentionRagged, ClearsRowsAfterTheLastSequence) {
  std::mt19937_64 random = fresh_random();
  for (const Packed& p : packed_cases(random))
    for (const DType dtype : {bfloat16, float16})
      for (const Order order : {Order::kContiguous, Order::kMisaligned})
        for_each_schedule([&] {
          // Heads 1 and 2 of five, as in rows that contain queries, keys and values.
          Array all(dtype, {p.tokens, 5, 24}, order);
          fill_with_random(all, random, 1, 2);
          const std::vector<double> before = all.values();
          View part = all.view();
          part.data = part.as<char>() + 24 * size_of(dtype);
          part.shape[1] = 2;
          cuda::clear_unused(kCuda, p.offsets.data(), p.sequences, part);
          for (int64_t i = 0; i < all.numel(); ++i) {
            const int64_t token = i / (5 * 24), head = i / 24 % 5;
            ASSERT_EQ(all.at(i), token >= p.used && (head == 1 || head == 2) ? 0 : before[i]) << i;
          }
          expect_gaps_untouched(all);
        });
}

}  // namespace
}  // namespace tern::kernels
