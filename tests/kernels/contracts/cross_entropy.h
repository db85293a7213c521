#pragma once
// The contract of the cross entropy of class indices: cases, the definition, and bounds of the results.

#include "tern/kernels/softmax.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels::cross_entropy_test {

inline constexpr int64_t kIgnore = -100;

struct Case {
  DType dtype;
  int64_t rows, classes;
  double smoothing;
  bool weighted;
  Order order = Order::kContiguous;
  double offset = 0;  // added to all logits
};

inline std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const DType dtype : kFloatTypes) {
    for (const double smoothing : {0.0, 0.1}) {
      cases.push_back({dtype, 17, 1, smoothing, false, Order::kMisaligned});
      cases.push_back({dtype, 17, 1, smoothing, false});
      cases.push_back({dtype, 100, 2, smoothing, true});
      cases.push_back({dtype, 300, 2, smoothing, true, Order::kMisaligned});
      cases.push_back({dtype, 12, 301, smoothing, true, Order::kMisaligned});
      cases.push_back({dtype, 7, 1024, smoothing, false});
      cases.push_back({dtype, 6, 1025, smoothing, true});
      cases.push_back({dtype, 0, 3, smoothing, false});
    }
    cases.push_back({dtype, 2, 30001, 0.1, false, Order::kMisaligned});
    cases.push_back({dtype, 2, 50000, 0.1, false, Order::kMisaligned});
  }
  // Large logits with small differences: all computations must be relative to the largest.
  cases.push_back({float32, 5, 100, 0.2, false, Order::kContiguous, 1e6});
  cases.push_back({float32, 3, 2000, 0.2, false, Order::kContiguous, -1e6});
  return cases;
}

/// All tensors of one call.
struct Tensors {
  Array logits, targets, weights, losses, log_sum_exp, scale, dlogits;
  int64_t expected_bad = 0;
  Tensors(const Case& s, std::mt19937_64& random)
      : logits(random_array(random, s.dtype, {s.rows, s.classes}, s.offset - 6, s.offset + 6, s.order)),
        targets(int64, {s.rows}),
        weights(random_array(random, wide(s), {s.rows}, 0.5, 2)),
        losses(wide(s), {s.rows}),
        log_sum_exp(wide(s), {s.rows}),
        scale(random_array(random, wide(s), {s.rows}, -1, 1)),
        dlogits(s.dtype, {s.rows, s.classes}) {
    for (int64_t r = 0; r < s.rows; ++r) {
      auto target = static_cast<int64_t>(random() % static_cast<uint64_t>(s.classes));
      if (r % 5 == 3) target = kIgnore;
      if (r % 7 == 5) target = r % 2 == 0 ? -1 : s.classes;
      expected_bad += target != kIgnore && (target < 0 || target >= s.classes);
      targets.set(r, static_cast<double>(target));
    }
  }
  void forward(Call& on, const Case& s, IndexFault& bad) {
    cross_entropy_forward(on.stream(), on(logits), on(targets), on.when(s.weighted, weights), kIgnore, s.smoothing,
                          on(losses), on(log_sum_exp), on.memory(&bad));
  }
  void backward(Call& on, const Case& s) {
    cross_entropy_backward(on.stream(), on(logits), on(targets), on(log_sum_exp), on(scale), kIgnore, s.smoothing,
                           on(dlogits));
  }
  static DType wide(const Case& s) { return s.dtype == float64 ? float64 : float32; }
};

/// Compares with the definition in long double; backward is a function of the rounded log-sum-exp.
inline void expect_cross_entropy(const Case& s, const Tensors& t) {
  const double unit = s.dtype == float64 ? 0x1p-53 : 0x1p-24;
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

}  // namespace tern::kernels::cross_entropy_test
