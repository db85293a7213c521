#include "tern/tests/kernels/contracts/cross_entropy.h"

namespace tern::kernels::cross_entropy_test {
namespace {

class CrossEntropy : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, CrossEntropy, testing::ValuesIn(all_targets()), name_of_target);

TEST_P(CrossEntropy, AgreesWithDouble) {
  for (const Case& s : cases()) {
    if (!takes_case(s.rows * s.classes, random)) continue;
    SCOPED_TRACE(testing::Message() << name_of(s.dtype) << " [" << s.rows << ", " << s.classes << "] smoothing "
                                    << s.smoothing << " weights " << s.weighted << " offset " << s.offset);
    Tensors t(s, random);
    IndexFault bad;  // of all runs
    expect_same_in_every_run({&t.losses, &t.log_sum_exp, &t.dlogits}, [&](Call& on) {
      t.forward(on, s, bad);
      t.backward(on, s);
    });
    EXPECT_EQ(bad.count, t.expected_bad * target().runs());
    ASSERT_NO_FATAL_FAILURE(expect_cross_entropy(s, t));
  }
}

/// The loss of each row without weights.
void losses_of(const Array& logits, const Array& targets, int64_t ignored, double smoothing, Array& losses, Array& lse,
               int64_t expected_bad = 0) {
  IndexFault bad;
  run_kernel([&](Call& on) {
    cross_entropy_forward(on.stream(), on(logits), on(targets), {}, ignored, smoothing, on(losses), on(lse),
                          on.memory(&bad));
  });
  EXPECT_EQ(bad.count, expected_bad);
}

TEST_P(CrossEntropy, HugeLogits) {
  for_each_run([] {
    Array logits(float32, {4, 3}), targets(int64, {4}), losses(float32, {4}), lse(float32, {4}), scale(float32, {4});
    Array dlogits(float32, {4, 3});
    logits.set({1e30, 0, -1e30, -INFINITY, 0, 0, NAN, 0, 0, -INFINITY, 0, 0});
    targets.set({0, 1, 1, 0});
    scale.set({1, 1, 0, 1});
    losses_of(logits, targets, -1, 0, losses, lse);
    run_kernel([&](Call& on) {
      cross_entropy_backward(on.stream(), on(logits), on(targets), on(lse), on(scale), -1, 0, on(dlogits));
    });
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
      losses_of(logits, targets, -1, 0.1, losses, lse);
      EXPECT_EQ(losses.at(1), INFINITY) << target;
    }
  });
}

TEST_P(CrossEntropy, MaskedClassesAndNoClasses) {
  for_each_run([] {
    // Whole vectors and whole threads read only -infinity, before the finite values or after them.
    for (const int64_t classes : {100, 4000}) {
      Array logits(float32, {3, classes}), targets(int64, {3}), losses(float32, {3}), lse(float32, {3});
      logits.fill(-INFINITY);
      logits.set(classes - 1, 3);
      logits.set(classes, -2);
      logits.set(2 * classes - 2, -2);
      targets.set({static_cast<double>(classes - 1), 0, 0});
      losses_of(logits, targets, -1, 0, losses, lse);
      EXPECT_EQ(losses.at(0), 0);
      EXPECT_EQ(lse.at(0), 3);
      EXPECT_NEAR(losses.at(1), std::log(2.0), 1e-6);
      EXPECT_TRUE(std::isnan(losses.at(2)));
      EXPECT_TRUE(std::isnan(lse.at(2)));
    }
    Array logits(float32, {2, 0}), targets(int64, {2}), losses(float32, {2}), lse(float32, {2}), scale(float32, {2});
    targets.set({0, kIgnore});
    losses_of(logits, targets, kIgnore, 0, losses, lse, 1);
    EXPECT_EQ(losses.at(0), 0);
    EXPECT_EQ(losses.at(1), 0);
    EXPECT_EQ(lse.at(0), -INFINITY);
    run_kernel([&](Call& on) {
      cross_entropy_backward(on.stream(), on(logits), on(targets), on(lse), on(scale), kIgnore, 0, on(logits));
    });
  });
}

void check_mean(DType dtype, int64_t rows, bool weighted, bool all_ignored, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " rows " << rows << " weights " << weighted);
  const Case s{dtype, rows, 5, 0, weighted};
  Tensors t(s, random);
  if (all_ignored) t.targets.fill(kIgnore);
  const DType wide = Tensors::wide(s);
  Array loss(wide, {1}), divisor(wide, {1}), one_scale(wide, {rows}), plain_scale(wide, {rows});
  fill_with_random(t.losses, random, 0, 2);
  expect_same_in_every_run({&loss, &divisor, &one_scale, &plain_scale}, [&](Call& on) {
    const ConstView targets = on(t.targets), weights = on.when(weighted, t.weights);
    cross_entropy_mean(on.stream(), on(t.losses), targets, weights, kIgnore, on(loss), on(divisor));
    cross_entropy_scale(on.stream(), on(loss), on(divisor), targets, weights, kIgnore, on(one_scale));
    cross_entropy_scale(on.stream(), on(t.scale), {}, targets, weights, kIgnore, on(plain_scale));
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

TEST_P(CrossEntropy, MeanAndScaleAgreeWithDouble) {
  for (const DType dtype : {float32, float64, bfloat16})
    for (const bool weighted : {false, true})
      for (const int64_t rows : {0, 1, 2, 31, 1024, 3001}) {
        if (!takes_case(rows, random)) continue;
        check_mean(dtype, rows, weighted, false, random);
        check_mean(dtype, rows, weighted, true, random);
      }
}

class CrossEntropyTraffic : public CrossEntropy {};
INSTANTIATE_TEST_SUITE_P(, CrossEntropyTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CrossEntropyTraffic);

TEST_P(CrossEntropyTraffic, ReadsLogitsOnce) {
  for (const DType dtype : {bfloat16, float32})
    for (const int64_t classes : {256, 1000, 30522}) {
      const Case s{dtype, 6, classes, 0.1, false};
      Tensors t(s, random);
      IndexFault bad;
      // Few classes: targets, losses and log-sum-exps matter too.
      EXPECT_LE(traffic_of([&](Call& on) { t.forward(on, s, bad); }).bytes, 1.06 * bytes_of(t.logits));
      EXPECT_LE(traffic_of([&](Call& on) { t.backward(on, s); }).bytes, 2.06 * bytes_of(t.logits));
    }
}

}  // namespace
}  // namespace tern::kernels::cross_entropy_test
