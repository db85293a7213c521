#include "tern/kernels/norm.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {
namespace {

void check(DType dtype, int64_t rows, int64_t cols, double p, bool with_keys) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " [" << rows << ", " << cols << "] p " << p << " keys "
                                  << with_keys);
  Array x(dtype, {rows, cols}, Order::kMisaligned), y(dtype, {rows, cols}), keys(int64, {rows});
  std::mt19937_64 random = fresh_random();
  fill_with_random(x, random, 1, 2);
  for (int64_t r = 0; r < rows; ++r) keys.set(r, static_cast<double>((int64_t{1} << 40) + 3 * r));
  const Dropout call{p, {99, 7}};
  expect_same_for_any_threads(
      y, [&] { dropout(Stream{}, x.cview(), call, with_keys ? keys.cview() : ConstView(), y.view()); });
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
}

TEST(Dropout, MaskIsTheDocumentedOne) {
  for_each_level([] {
    for (const DType dtype : kFloatTypes) {
      check(dtype, 3, 1000, 0.1, false);
      check(dtype, 70, 129, 0.5, true);
      check(dtype, 1, 1, 0.9, false);
      check(dtype, 2, 7, 1, false);
      check(dtype, 2, 300, 0, false);
      check(dtype, 0, 5, 0.5, true);
    }
  });
}

TEST(Dropout, KeepsTheStatedShare) {
  Array x(float32, {100, 1000}), y(float32, {100, 1000});
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, 1);
  for (const double p : {0.1, 0.5, 0.75}) {
    dropout(Stream{}, x.cview(), {p, {5, 0}}, {}, y.view());
    double kept = 0;
    for (int64_t i = 0; i < y.numel(); ++i) kept += y.at(i) != 0;
    EXPECT_NEAR(kept / 1e5, 1 - p, 5 * std::sqrt(p * (1 - p) / 1e5));
  }
}

TEST(Dropout, PropagatesNan) {
  Array x(float32, {1, 64}), y(float32, {1, 64});
  for (int64_t i = 0; i < 64; ++i) x.set(i, NAN);
  dropout(Stream{}, x.cview(), {0.5, {5, 0}}, {}, y.view());
  for (int64_t i = 0; i < 64; ++i) EXPECT_TRUE(std::isnan(y.at(i)));
}

}  // namespace
}  // namespace tern::kernels
