// Backward of a linear layer's activation and bias, against fp64.

#include "tern/kernels/gemm.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

double derivative(Activation activation, double x) {
  if (activation == Activation::kGelu)
    return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
  return activation == Activation::kRelu ? (x > 0 ? 1 : 0) : 1;
}

struct Case {
  DType dtype, bias_dtype;
  int64_t rows, cols;
  Activation activation;
  bool with_bias = true;
  Order order = Order::kMisaligned;
};

void backward(Call& on, const Array& dy, ConstView pre, Activation activation, View dpre, View dbias) {
  void* const workspace = on.workspace(linear_activation_backward_workspace(on.stream(), dy.cview()));
  linear_activation_backward(on.stream(), on(dy), pre, activation, dpre, dbias, workspace);
}

struct Tensors {
  Array dy, pre, dpre, dbias;
  Tensors(const Case& s, std::mt19937_64& random)
      : dy(random_array(random, s.dtype, {s.rows, s.cols}, -1, 2, s.order)),
        pre(random_array(random, s.dtype, {s.rows, s.cols}, -4, 4)),
        dpre(s.dtype, {s.rows, s.cols}, s.order),
        dbias(s.bias_dtype, {s.cols}, s.order) {
    if (pre.numel() > 3) pre.set(3, 0);
  }
  void run(Call& on, const Case& s) {
    const bool active = s.activation != Activation::kNone;
    backward(on, dy, on.when(active, std::as_const(pre)), s.activation, on.when(active, dpre),
             on.when(s.with_bias, dbias));
  }
};

class LinearActivation : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, LinearActivation, testing::ValuesIn(all_targets()), name_of_target);

void check(const Case& s, std::mt19937_64& random) {
  if (!takes_case(s.rows * s.cols, random)) return;
  SCOPED_TRACE(testing::Message() << name_of(s.dtype) << " [" << s.rows << ", " << s.cols << "] bias "
                                  << name_of(s.bias_dtype) << " " << s.with_bias << " activation "
                                  << static_cast<int>(s.activation));
  Tensors t(s, random);
  const std::vector<char> untouched_dpre = t.dpre.bytes(), untouched_dbias = t.dbias.bytes();
  std::vector<Array*> results;
  if (s.activation != Activation::kNone) results.push_back(&t.dpre);
  if (s.with_bias) results.push_back(&t.dbias);
  expect_same_in_every_run(results, [&](Call& on) { t.run(on, s); });
  const double unit = s.dtype == float64 ? 0x1p-53 : 0x1p-24;
  std::vector<double> sums(s.cols, 0), magnitudes(s.cols, 0);
  for (int64_t i = 0; i < s.rows * s.cols; ++i) {
    const double dy = t.dy.at(i), expected = dy * derivative(s.activation, t.pre.at(i));
    sums[i % s.cols] += expected;
    magnitudes[i % s.cols] += std::fabs(dy) * 1.13;
    if (s.activation == Activation::kNone) continue;
    // The derivative is a sum of terms up to 1: its error is at most 8 units in the last place of 1.
    ASSERT_LE(std::fabs(t.dpre.at(i) - expected), 1.01 * epsilon_of(s.dtype) * std::fabs(expected) +
                                                      8 * unit * std::fabs(dy) + (s.dtype == float16 ? 6.1e-8 : 0))
        << "dpre at " << i;
  }
  if (s.activation == Activation::kNone) {
    EXPECT_EQ(t.dpre.bytes(), untouched_dpre);
  }
  if (!s.with_bias) {
    EXPECT_EQ(t.dbias.bytes(), untouched_dbias);
    return;
  }
  for (int64_t c = 0; c < s.cols; ++c)
    ASSERT_LE(std::fabs(t.dbias.at(c) - sums[c]),
              1.01 * epsilon_of(s.bias_dtype) * std::fabs(sums[c]) +
                  (8 + std::sqrt(static_cast<double>(s.rows))) * unit * magnitudes[c] +
                  (s.bias_dtype == float16 ? 6.1e-8 : 0))
        << "dbias at " << c;
}

TEST_P(LinearActivation, AgreesWithDouble) {
  for (const DType dtype : kFloatTypes)
    for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kRelu}) {
      const DType wide = is_low_precision(dtype) ? float32 : dtype;
      check({dtype, dtype, 5, 768, activation, true, Order::kContiguous}, random);
      check({dtype, wide, 37, 129, activation}, random);
      check({dtype, dtype, 1, 1, activation}, random);
      check({dtype, wide, 300, 3, activation}, random);
      check({dtype, dtype, 9, 300, activation, false}, random);
      check({dtype, wide, 700, 64, activation, true, Order::kContiguous}, random);
      check({dtype, dtype, 0, 40, activation}, random);
      check({dtype, dtype, 40, 0, activation}, random);
      check({dtype, wide, 0, 3, activation}, random);
      check({dtype, wide, 37, 300, activation}, random);
      check({dtype, wide, 1500, 7, activation}, random);
    }
}

TEST_P(LinearActivation, ManyRowsAndManyColumns) {
  check({bfloat16, float32, 20000, 8, Activation::kGelu, true, Order::kContiguous}, random);
  check({bfloat16, bfloat16, 3, 9000, Activation::kGelu, true, Order::kContiguous}, random);
  check({float32, float32, 1100, 100, Activation::kRelu}, random);
}

TEST_P(LinearActivation, ReluStopsWhateverTheGradientIs) {
  for_each_run([] {
    Array dy(float32, {1, 4}), pre(float32, {1, 4}), dpre(float32, {1, 4}), dbias(float32, {4});
    dy.set({INFINITY, 2, INFINITY, 2});
    pre.set({-1, -1, 1, 1});
    run_kernel([&](Call& on) { backward(on, dy, on(pre), Activation::kRelu, on(dpre), on(dbias)); });
    EXPECT_EQ(dpre.values(), (std::vector<double>{0, 0, INFINITY, 2}));
    EXPECT_EQ(dbias.values(), (std::vector<double>{0, 0, INFINITY, 2}));
  });
}

TEST_P(LinearActivation, NanOfThePreActivationIsSeen) {
  for (const Activation activation : {Activation::kGelu, Activation::kRelu})
    for_each_run([&] {
      Array dy(bfloat16, {3, 8}), pre(bfloat16, {3, 8}), dpre(bfloat16, {3, 8}), dbias(float32, {8});
      dy.fill(1);
      pre.fill(1);
      dy.set(20, NAN);
      if (activation == Activation::kGelu) pre.set(10, NAN);
      run_kernel([&](Call& on) { backward(on, dy, on(pre), activation, on(dpre), on(dbias)); });
      for (int64_t i = 0; i < 24; ++i)
        EXPECT_EQ(std::isnan(dpre.at(i)), i == 20 || (i == 10 && activation == Activation::kGelu)) << i;
      for (int64_t c = 0; c < 8; ++c)
        EXPECT_EQ(std::isnan(dbias.at(c)), c == 4 || (c == 2 && activation == Activation::kGelu)) << c;
    });
}

class LinearActivationTraffic : public LinearActivation {};
INSTANTIATE_TEST_SUITE_P(, LinearActivationTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinearActivationTraffic);

TEST_P(LinearActivationTraffic, MovesEachByteOnce) {
  if (kFewCases) GTEST_SKIP() << "sanitizer: counts bytes, which are the same without a sanitizer";
  for (const DType dtype : {bfloat16, float32}) {
    const Case s{dtype, float32, 4096, 256, Activation::kGelu, true, Order::kContiguous};
    Tensors t(s, random);
    EXPECT_LE(traffic_of([&](Call& on) { t.run(on, s); }).bytes, 1.1 * 3 * bytes_of(t.dy));
  }
}

}  // namespace
}  // namespace tern::kernels
