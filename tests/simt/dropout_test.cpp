// Dropout of CUDA tensors in the emulator: the documented mask, equal to the CPU's.

#include "tern/kernels/norm.h"
#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels {
namespace {

void check(DType dtype, int64_t rows, int64_t cols, double p, bool with_keys, Order order) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " [" << rows << ", " << cols << "] p " << p << " keys "
                                  << with_keys << " order " << static_cast<int>(order));
  Array x(dtype, {rows, cols}, order), y(dtype, {rows, cols}), cpu(dtype, {rows, cols}), keys(int64, {rows});
  std::mt19937_64 random = fresh_random();
  fill_with_random(x, random, 1, 2);
  for (int64_t r = 0; r < rows; ++r) keys.set(r, static_cast<double>((int64_t{1} << 40) + 3 * r));
  const Dropout call{p, order == Order::kContiguous ? RandomKey{fresh_seed(), 7} : key_with_base(fresh_seed(), 7)};
  const ConstView row_keys = with_keys ? keys.cview() : ConstView();
  cuda::dropout(kCuda, x.cview(), call, row_keys, y.view());
  dropout(Stream{}, x.cview(), call, row_keys, cpu.view());
  EXPECT_EQ(y.values(), cpu.values()) << "not the CPU's bits";
  const uint64_t key = philox_key(call.key);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const uint64_t row =
        with_keys ? static_cast<uint64_t>((int64_t{1} << 40) + 3 * (i / cols)) : static_cast<uint64_t>(i / cols);
    const bool kept = p < 1 && dropout_keeps(key, row, 0, static_cast<uint32_t>(i % cols), dropout_threshold(p));
    const double expected = kept ? x.at(i) / (1 - p) : 0;
    ASSERT_TRUE(near(y.at(i), expected, 1.01 * epsilon_of(dtype) + (dtype == float64 ? 0x1p-52 : 0x1p-23),
                     dtype == float16 ? 0x1p-25 : 0))
        << "at " << i;
  }
  expect_gaps_untouched(y);
}

TEST(SimtDropout, MaskIsTheDocumentedOne) {
  for_each_schedule([] {
    for (const DType dtype : kFloatTypes)
      for (const Order order : {Order::kContiguous, Order::kMisaligned}) {
        check(dtype, 3, 1000, 0.1, false, order);
        check(dtype, 70, 129, 0.5, true, order);
        check(dtype, 23, 768, 0.3, true, order);
        check(dtype, 1, 1, 0.9, false, order);
        check(dtype, 900, 8, 0.5, true, order);
        check(dtype, 5, 13, 0.5, false, order);
        check(dtype, 2, 7, 1, false, order);
        check(dtype, 2, 300, 0, false, order);
        check(dtype, 0, 5, 0.5, true, order);
        check(dtype, 5, 0, 0.5, false, order);
      }
  });
}

TEST(SimtDropout, InPlace) {
  for (const int64_t cols : {64, 61}) {
    Array x(bfloat16, {200, cols}), y(bfloat16, {200, cols});
    std::mt19937_64 random = fresh_random();
    fill_with_random(x, random, 1, 2);
    const Dropout call{0.5, {fresh_seed(), 1}};
    cuda::dropout(kCuda, x.cview(), call, {}, y.view());
    cuda::dropout(kCuda, x.cview(), call, {}, x.view());
    EXPECT_EQ(x.values(), y.values());
  }
}

TEST(SimtDropout, KeepsTheStatedShareAndPropagatesNan) {
  Array x(float32, {100, 1000}), y(float32, {100, 1000});
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, 1);
  for (const double p : {0.1, 0.5, 0.75}) {
    cuda::dropout(kCuda, x.cview(), {p, {fresh_seed(), 0}}, {}, y.view());
    double kept = 0;
    for (int64_t i = 0; i < y.numel(); ++i) kept += y.at(i) != 0;
    EXPECT_NEAR(kept / 1e5, 1 - p, 7 * std::sqrt(p * (1 - p) / 1e5));  // 7 standard deviations: once in 10^11 runs
  }
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, NAN);
  cuda::dropout(kCuda, x.cview(), {0.5, {fresh_seed(), 0}}, {}, y.view());
  for (int64_t i = 0; i < x.numel(); ++i) ASSERT_TRUE(std::isnan(y.at(i)));
}

TEST(SimtDropout, MovesEachByteOnce) {
  for (const DType dtype : {float32, bfloat16}) {
    Array x(dtype, {150, 768}), y(dtype, {150, 768});
    std::mt19937_64 random = fresh_random();
    fill_with_random(x, random, 0, 1);
    simt::reset_stats();
    cuda::dropout(kCuda, x.cview(), {0.1, {fresh_seed(), 0}}, {}, y.view());
    const simt::Stats stats = simt::stats();
    EXPECT_EQ(stats.launches, 1u);
    EXPECT_EQ(stats.loaded_bytes, static_cast<uint64_t>(x.numel() * size_of(dtype)));
    EXPECT_EQ(stats.stored_bytes, static_cast<uint64_t>(x.numel() * size_of(dtype)));
  }
}

}  // namespace
}  // namespace tern::kernels
