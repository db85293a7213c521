#include "tern/kernels/softmax.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {
namespace {

constexpr int64_t kIgnore = -100;

void check(DType dtype, int64_t rows, int64_t classes, double smoothing, bool weighted, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " [" << rows << ", " << classes << "] smoothing " << smoothing
                                  << " weights " << weighted);
  const DType wide = dtype == float64 ? float64 : float32;
  const double unit = dtype == float64 ? 0x1p-53 : 0x1p-24;
  Array logits(dtype, {rows, classes}, Order::kMisaligned), targets(int64, {rows}), weights(wide, {rows}),
      losses(wide, {rows});
  Array log_sum_exp(wide, {rows}), scale(wide, {rows}), dlogits(dtype, {rows, classes});
  fill_with_random(logits, random, -6, 6);
  fill_with_random(weights, random, 0.5, 2);
  fill_with_random(scale, random, -1, 1);
  int64_t expected_bad = 0;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t target = static_cast<int64_t>(random() % static_cast<uint64_t>(classes));
    if (r % 5 == 3) target = kIgnore;
    if (r % 7 == 5) target = r % 2 == 0 ? -1 : classes;
    expected_bad += target != kIgnore && (target < 0 || target >= classes);
    targets.set(r, static_cast<double>(target));
  }
  IndexFault bad;
  expect_same_for_any_threads(losses, [&] {
    bad = {};
    cross_entropy_forward(Stream{}, logits.cview(), targets.cview(), weighted ? weights.cview() : ConstView(), kIgnore,
                          smoothing, losses.view(), log_sum_exp.view(), &bad);
  });
  EXPECT_EQ(bad.count, expected_bad);
  expect_same_for_any_threads(dlogits, [&] {
    cross_entropy_backward(Stream{}, logits.cview(), targets.cview(), log_sum_exp.cview(), scale.cview(), kIgnore,
                           smoothing, dlogits.view());
  });
  for (int64_t r = 0; r < rows; ++r) {
    const auto target = static_cast<int64_t>(targets.at(r));
    const bool counts = target >= 0 && target < classes;
    long double largest = -INFINITY, sum = 0, mean = 0;  // the reference must be more accurate than fp64
    for (int64_t c = 0; c < classes; ++c) largest = std::max<long double>(largest, logits.at(r * classes + c));
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits.at(r * classes + c) - largest);
    const long double lse = largest + std::log(sum);
    for (int64_t c = 0; c < classes; ++c)
      mean += (lse - logits.at(r * classes + c)) / static_cast<long double>(classes);
    ASSERT_TRUE(near(log_sum_exp.at(r), static_cast<double>(lse), 8 * unit, 40 * unit));
    long double loss = 0;
    if (counts) loss = (1 - smoothing) * (lse - logits.at(r * classes + target)) + smoothing * mean;
    if (weighted) loss *= weights.at(r);
    ASSERT_TRUE(near(losses.at(r), static_cast<double>(loss), 20 * unit, 100 * unit))
        << losses.at(r) << " for " << static_cast<double>(loss);
    for (int64_t c = 0; c < classes; ++c) {
      const double distribution = (c == target ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      const auto probability = static_cast<double>(std::exp(logits.at(r * classes + c) - lse));
      const double gradient = counts ? scale.at(r) * (probability - distribution) : 0;
      ASSERT_TRUE(near(dlogits.at(r * classes + c), gradient, 1.01 * epsilon_of(dtype),
                       60 * unit + 6.1e-8 * (dtype == float16)))
          << "row " << r << " class " << c << ": " << dlogits.at(r * classes + c) << " for " << gradient;
    }
  }
}

TEST(CrossEntropy, AgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for_each_level([&] {
    for (const DType dtype : kFloatTypes) {
      for (const double smoothing : {0.0, 0.1}) {
        check(dtype, 17, 1, smoothing, false, random);
        check(dtype, 300, 2, smoothing, true, random);
        check(dtype, 12, 301, smoothing, true, random);
        check(dtype, 0, 3, smoothing, false, random);
      }
      check(dtype, 2, 50000, 0.1, false, random);
    }
  });
}

TEST(CrossEntropy, HugeLogits) {
  for_each_level([] {
    Array logits(float32, {3, 3}), targets(int64, {3}), losses(float32, {3}), lse(float32, {3}), scale(float32, {3});
    Array dlogits(float32, {3, 3});
    const double values[] = {1e30, 0, -1e30, -INFINITY, 0, 0, NAN, 0, 0};
    for (int64_t i = 0; i < 9; ++i) logits.set(i, values[i]);
    targets.set(0, 0), targets.set(1, 1), targets.set(2, 1);
    for (int64_t r = 0; r < 3; ++r) scale.set(r, r == 2 ? 0 : 1);
    IndexFault bad;
    cross_entropy_forward(Stream{}, logits.cview(), targets.cview(), {}, -1, 0, losses.view(), lse.view(), &bad);
    cross_entropy_backward(Stream{}, logits.cview(), targets.cview(), lse.cview(), scale.cview(), -1, 0,
                           dlogits.view());
    EXPECT_EQ(bad.count, 0);
    EXPECT_EQ(losses.at(0), 0);
    EXPECT_NEAR(losses.at(1), std::log(2.0), 1e-6);
    EXPECT_TRUE(std::isnan(losses.at(2)));
    const double expected[] = {0, 0, 0, 0, -0.5, 0.5, 0, 0, 0};  // scale 0: an ignored row, with any logits
    for (int64_t i = 0; i < 9; ++i) EXPECT_NEAR(dlogits.at(i), expected[i], 1e-6) << i;
  });
}

}  // namespace
}  // namespace tern::kernels
