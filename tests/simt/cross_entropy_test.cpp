// Cross entropy on the emulated device, against fp64.

#include "tern/kernels/softmax.h"
#include "tern/tests/simt/results.h"

namespace tern::kernels {
namespace {

constexpr int64_t kIgnore = -100;

struct Case {
  DType dtype;
  int64_t rows, classes;
  double smoothing;
  bool weighted;
  Order order = Order::kContiguous;
  double offset = 0;  // added to all logits
};

/// All tensors of one call.
struct Tensors {
  Array logits, targets, weights, losses, log_sum_exp, scale, dlogits;
  int64_t expected_bad = 0;
  Tensors(const Case& s, std::mt19937_64& random)
      : logits(s.dtype, {s.rows, s.classes}, s.order),
        targets(int64, {s.rows}),
        weights(wide(s), {s.rows}),
        losses(wide(s), {s.rows}),
        log_sum_exp(wide(s), {s.rows}),
        scale(wide(s), {s.rows}),
        dlogits(s.dtype, {s.rows, s.classes}) {
    fill_with_random(logits, random, s.offset - 6, s.offset + 6);
    fill_with_random(weights, random, 0.5, 2);
    fill_with_random(scale, random, -1, 1);
    for (int64_t r = 0; r < s.rows; ++r) {
      auto target = static_cast<int64_t>(random() % static_cast<uint64_t>(s.classes));
      if (r % 5 == 3) target = kIgnore;
      if (r % 7 == 5) target = r % 2 == 0 ? -1 : s.classes;
      expected_bad += target != kIgnore && (target < 0 || target >= s.classes);
      targets.set(r, static_cast<double>(target));
    }
  }
  static DType wide(const Case& s) { return s.dtype == float64 ? float64 : float32; }
};

void check(const Case& s, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(s.dtype) << " [" << s.rows << ", " << s.classes << "] smoothing "
                                  << s.smoothing << " weights " << s.weighted << " offset " << s.offset);
  Tensors t(s, random);
  const double unit = s.dtype == float64 ? 0x1p-53 : 0x1p-24;
  expect_same_for_all_schedules({&t.losses, &t.log_sum_exp, &t.dlogits}, [&] {
    IndexFault bad;
    cuda::cross_entropy_forward(kCuda, t.logits.cview(), t.targets.cview(),
                                s.weighted ? t.weights.cview() : ConstView(), kIgnore, s.smoothing, t.losses.view(),
                                t.log_sum_exp.view(), &bad);
    EXPECT_EQ(bad.count, t.expected_bad);
    cuda::cross_entropy_backward(kCuda, t.logits.cview(), t.targets.cview(), t.log_sum_exp.cview(), t.scale.cview(),
                                 kIgnore, s.smoothing, t.dlogits.view());
  });
  for (int64_t r = 0; r < s.rows; ++r) {
    const auto target = static_cast<int64_t>(t.targets.at(r));
    const bool counts = target >= 0 && target < s.classes;
    double largest = -INFINITY;
    long double sum = 0, mean = 0;  // the reference must be more accurate than fp64
    for (int64_t c = 0; c < s.classes; ++c) largest = std::max(largest, t.logits.at(r * s.classes + c));
    for (int64_t c = 0; c < s.classes; ++c) sum += std::exp(t.logits.at(r * s.classes + c) - largest);
    const double log_sum = static_cast<double>(std::log(sum)), lse = largest + log_sum;
    for (int64_t c = 0; c < s.classes; ++c)
      mean += (log_sum - (t.logits.at(r * s.classes + c) - largest)) / static_cast<double>(s.classes);
    // log_sum is computed relative to the largest logit, and their sum is rounded.
    ASSERT_TRUE(near(t.log_sum_exp.at(r), lse, 1.01 * unit, 40 * unit)) << t.log_sum_exp.at(r) << " for " << lse;
    double loss = 0;
    if (counts) {
      loss = log_sum - (t.logits.at(r * s.classes + target) - largest);
      loss = (1 - s.smoothing) * loss + s.smoothing * static_cast<double>(mean);
      if (s.weighted) loss *= t.weights.at(r);
    }
    ASSERT_TRUE(near(t.losses.at(r), loss, 20 * unit, 100 * unit)) << t.losses.at(r) << " for " << loss;
    const double slack = 60 * unit + 6.1e-8 * (s.dtype == float16);
    const double from_lse = std::expm1(1.01 * unit * std::fabs(lse));  // backward reads the rounded value
    for (int64_t c = 0; c < s.classes; ++c) {
      const double distribution = (c == target ? 1 - s.smoothing : 0) + s.smoothing / static_cast<double>(s.classes);
      const double probability = std::exp(t.logits.at(r * s.classes + c) - lse);
      const double gradient = counts ? t.scale.at(r) * (probability - distribution) : 0;
      const double absolute = slack + from_lse * std::fabs(t.scale.at(r)) * probability;
      ASSERT_TRUE(near(t.dlogits.at(r * s.classes + c), gradient, 1.01 * epsilon_of(s.dtype), absolute))
          << "row " << r << " class " << c << ": " << t.dlogits.at(r * s.classes + c) << " for " << gradient;
    }
  }
}

TEST(SimtCrossEntropy, AgreesWithDouble) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes) {
    for (const double smoothing : {0.0, 0.1}) {
      check({dtype, 17, 1, smoothing, false}, random);
      check({dtype, 100, 2, smoothing, true}, random);
      check({dtype, 12, 301, smoothing, true, Order::kMisaligned}, random);
      check({dtype, 7, 1024, smoothing, false}, random);
      check({dtype, 6, 1025, smoothing, true}, random);
      check({dtype, 0, 3, smoothing, false}, random);
    }
    check({dtype, 2, 30001, 0.1, false, Order::kMisaligned}, random);
  }
  // Large logits with small differences: all computations must be relative to the largest.
  check({float32, 5, 100, 0.2, false, Order::kContiguous, 1e6}, random);
  check({float32, 3, 2000, 0.2, false, Order::kContiguous, -1e6}, random);
}

TEST(SimtCrossEntropy, HugeLogits) {
  for_each_schedule([] {
    Array logits(float32, {4, 3}), targets(int64, {4}), losses(float32, {4}), lse(float32, {4}), scale(float32, {4});
    Array dlogits(float32, {4, 3});
    const double values[] = {1e30, 0, -1e30, -INFINITY, 0, 0, NAN, 0, 0, -INFINITY, 0, 0};
    for (int64_t i = 0; i < 12; ++i) logits.set(i, values[i]);
    targets.set(0, 0), targets.set(1, 1), targets.set(2, 1), targets.set(3, 0);
    for (int64_t r = 0; r < 4; ++r) scale.set(r, r == 2 ? 0 : 1);
    IndexFault bad;
    cuda::cross_entropy_forward(kCuda, logits.cview(), targets.cview(), {}, -1, 0, losses.view(), lse.view(), &bad);
    cuda::cross_entropy_backward(kCuda, logits.cview(), targets.cview(), lse.cview(), scale.cview(), -1, 0,
                                 dlogits.view());
    EXPECT_EQ(bad.count, 0);
    EXPECT_EQ(losses.at(0), 0);
    EXPECT_NEAR(losses.at(1), std::log(2.0), 1e-6);
    EXPECT_TRUE(std::isnan(losses.at(2)));
    EXPECT_EQ(losses.at(3), INFINITY);
    // scale 0: an ignored row, with any logits
    const double expected[] = {0, 0, 0, 0, -0.5, 0.5, 0, 0, 0, -1, 0.5, 0.5};
    for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(dlogits.at(i), expected[i], 1e-6) << i;
    // Smoothing gives every class a weight: a masked class makes the loss infinite at any position.
    for (const int64_t target : {0, 1, 2}) {
      targets.set(1, static_cast<double>(target));
      cuda::cross_entropy_forward(kCuda, logits.cview(), targets.cview(), {}, -1, 0.1, losses.view(), lse.view(), &bad);
      EXPECT_EQ(losses.at(1), INFINITY) << target;
    }
  });
}

TEST(SimtCrossEntropy, MaskedStretchesAndNoClasses) {
  for_each_schedule([] {
    // Whole vectors and whole threads read only -infinity, before the finite values or after them.
    for (const int64_t classes : {100, 4000}) {
      Array logits(float32, {3, classes}), targets(int64, {3}), losses(float32, {3}), lse(float32, {3});
      for (int64_t i = 0; i < logits.numel(); ++i) logits.set(i, -INFINITY);
      logits.set(classes - 1, 3);
      logits.set(classes, -2);
      logits.set(2 * classes - 2, -2);
      targets.set(0, static_cast<double>(classes - 1)), targets.set(1, 0), targets.set(2, 0);
      IndexFault bad;
      cuda::cross_entropy_forward(kCuda, logits.cview(), targets.cview(), {}, -1, 0, losses.view(), lse.view(), &bad);
      EXPECT_EQ(losses.at(0), 0);
      EXPECT_EQ(lse.at(0), 3);
      EXPECT_NEAR(losses.at(1), std::log(2.0), 1e-6);
      EXPECT_TRUE(std::isnan(losses.at(2)));
      EXPECT_TRUE(std::isnan(lse.at(2)));
    }
    Array logits(float32, {2, 0}), targets(int64, {2}), losses(float32, {2}), lse(float32, {2}), scale(float32, {2});
    targets.set(0, 0), targets.set(1, kIgnore);
    IndexFault bad;
    cuda::cross_entropy_forward(kCuda, logits.cview(), targets.cview(), {}, kIgnore, 0, losses.view(), lse.view(),
                                &bad);
    EXPECT_EQ(bad.count, 1);
    EXPECT_EQ(losses.at(0), 0);
    EXPECT_EQ(losses.at(1), 0);
    EXPECT_EQ(lse.at(0), -INFINITY);
    cuda::cross_entropy_backward(kCuda, logits.cview(), targets.cview(), lse.cview(), scale.cview(), kIgnore, 0,
                                 logits.view());
  });
}

TEST(SimtCrossEntropy, ReadsLogitsOnce) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {bfloat16, float32})
    for (const int64_t classes : {256, 1000, 30522}) {
      const Case s{dtype, 6, classes, 0.1, false};
      Tensors t(s, random);
      IndexFault bad;
      const double bytes = bytes_of(t.logits);
      EXPECT_LE(moved_bytes([&] {
                  cuda::cross_entropy_forward(kCuda, t.logits.cview(), t.targets.cview(), {}, kIgnore, s.smoothing,
                                              t.losses.view(), t.log_sum_exp.view(), &bad);
                }),
                1.06 * bytes);  // few classes: targets, losses and log-sum-exps matter too
      EXPECT_LE(moved_bytes([&] {
                  cuda::cross_entropy_backward(kCuda, t.logits.cview(), t.targets.cview(), t.log_sum_exp.cview(),
                                               t.scale.cview(), kIgnore, s.smoothing, t.dlogits.view());
                }),
                2.06 * bytes);
    }
}

void check_mean(DType dtype, int64_t rows, bool weighted, bool all_ignored, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " rows " << rows << " weights " << weighted);
  Tensors t({dtype, rows, 5, 0, weighted}, random);
  if (all_ignored)
    for (int64_t r = 0; r < rows; ++r) t.targets.set(r, kIgnore);
  const DType wide = Tensors::wide({dtype, rows, 5, 0, weighted});
  Array loss(wide, {1}), divisor(wide, {1}), one_scale(wide, {rows}), plain_scale(wide, {rows});
  fill_with_random(t.losses, random, 0, 2);
  const ConstView weights = weighted ? t.weights.cview() : ConstView();
  expect_same_for_all_schedules({&loss, &divisor, &one_scale, &plain_scale}, [&] {
    cuda::cross_entropy_mean(kCuda, t.losses.cview(), t.targets.cview(), weights, kIgnore, loss.view(), divisor.view());
    cuda::cross_entropy_scale(kCuda, loss.cview(), divisor.cview(), t.targets.cview(), weights, kIgnore,
                              one_scale.view());
    cuda::cross_entropy_scale(kCuda, t.scale.cview(), {}, t.targets.cview(), weights, kIgnore, plain_scale.view());
  });
  const double unit = wide == float64 ? 0x1p-53 : 0x1p-24;
  double total = 0, count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    total += t.losses.at(r);
    if (t.targets.at(r) != kIgnore) count += weighted ? t.weights.at(r) : 1;
  }
  if (count == 0) count = 1;
  ASSERT_TRUE(near(divisor.at(0), count, 100 * unit, 0)) << divisor.at(0) << " for " << count;
  ASSERT_TRUE(near(loss.at(0), total / count, 100 * unit, 0)) << loss.at(0) << " for " << total / count;
  for (int64_t r = 0; r < rows; ++r) {
    const double weight = t.targets.at(r) == kIgnore ? 0 : weighted ? t.weights.at(r) : 1;
    ASSERT_TRUE(near(one_scale.at(r), loss.at(0) / divisor.at(0) * weight, 8 * unit, 0)) << r;
    ASSERT_TRUE(near(plain_scale.at(r), (rows == 1 ? t.scale.at(0) : t.scale.at(r)) * weight, 8 * unit, 0)) << r;
  }
}

TEST(SimtCrossEntropy, MeanAndScaleAgreeWithDouble) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {float32, float64, bfloat16})
    for (const bool weighted : {false, true})
      for (const int64_t rows : {0, 1, 2, 31, 1024, 3001}) {
        if (kFewCases && rows > 1000 && random() % 3 != 0) continue;
        check_mean(dtype, rows, weighted, false, random);
        check_mean(dtype, rows, weighted, true, random);
      }
}

}  // namespace
}  // namespace tern::kernels
