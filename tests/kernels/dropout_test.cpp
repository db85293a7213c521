// Dropout: the documented mask, and the CPU's bits on every target.

#include "tern/kernels/norm.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

class DropoutKernel : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, DropoutKernel, testing::ValuesIn(all_targets()), name_of_target);

struct Case {
  int64_t rows, cols;
  double p;
  bool keys;
};

void drop(Call& on, const Array& x, const Dropout& call, const Array* keys, Array& y) {
  dropout(on.stream(), on(x), {call.p, on.key(call.key)}, keys ? on(*keys) : ConstView(), on(y));
}

void check(DType dtype, const Case& s, Order order, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " [" << s.rows << ", " << s.cols << "] p " << s.p << " keys "
                                  << s.keys << " order " << static_cast<int>(order));
  const Shape shape = {s.rows, s.cols};
  const Array x = random_array(random, dtype, shape, 1, 2, order);
  Array y(dtype, shape), cpu(dtype, shape), keys(int64, {s.rows});
  for (int64_t r = 0; r < s.rows; ++r) keys.set(r, static_cast<double>((int64_t{1} << 40) + 3 * r));
  const Dropout call{s.p, order == Order::kContiguous ? RandomKey{random(), 7} : key_with_base(random(), 7)};
  expect_same_in_every_run({&y}, [&](Call& on) { drop(on, x, call, s.keys ? &keys : nullptr, y); });
  dropout(Stream{}, x.cview(), call, s.keys ? keys.cview() : ConstView(), cpu.view());
  EXPECT_EQ(y.values(), cpu.values()) << "not the CPU's bits";
  const uint64_t key = philox_key(call.key);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto row = static_cast<uint64_t>(s.keys ? (int64_t{1} << 40) + 3 * (i / s.cols) : i / s.cols);
    const bool kept = s.p < 1 && dropout_keeps(key, row, 0, static_cast<uint32_t>(i % s.cols), dropout_threshold(s.p));
    const double expected = kept ? x.at(i) / (1 - s.p) : 0;
    ASSERT_TRUE(near(y.at(i), expected, 1.01 * epsilon_of(dtype) + (dtype == float64 ? 0x1p-52 : 0x1p-23),
                     dtype == float16 ? 0x1p-25 : 0))
        << "at " << i;
  }
}

TEST_P(DropoutKernel, MaskIsTheDocumentedOne) {
  for (const DType dtype : kFloatTypes)
    for (const Order order : {Order::kContiguous, Order::kMisaligned})
      for (const Case& s :
           {Case{3, 1000, 0.1, false}, Case{70, 129, 0.5, true}, Case{23, 768, 0.3, true}, Case{1, 1, 0.9, false},
            Case{900, 8, 0.5, true}, Case{5, 13, 0.5, false}, Case{2, 7, 1, false}, Case{2, 300, 0, false},
            Case{0, 5, 0.5, true}, Case{5, 0, 0.5, false}})
        if (takes_case(s.rows * s.cols, random)) check(dtype, s, order, random);
}

TEST_P(DropoutKernel, InPlace) {
  for (const int64_t cols : {64, 61}) {
    Array x = random_array(random, bfloat16, {200, cols}, 1, 2), y(bfloat16, {200, cols});
    const Dropout call{0.5, {random(), 1}};
    run_kernel([&](Call& on) {
      drop(on, x, call, nullptr, y);
      drop(on, x, call, nullptr, x);
    });
    EXPECT_EQ(x.values(), y.values());
  }
}

TEST_P(DropoutKernel, PropagatesNan) {
  Array x(float32, {100, 1000}), y(float32, {100, 1000});
  x.fill(NAN);
  run_kernel([&](Call& on) { drop(on, x, {0.5, {random(), 0}}, nullptr, y); });
  for (int64_t i = 0; i < x.numel(); ++i) ASSERT_TRUE(std::isnan(y.at(i)));
}

class DropoutTraffic : public DropoutKernel {};
INSTANTIATE_TEST_SUITE_P(, DropoutTraffic, testing::ValuesIn(counting_targets()), name_of_target);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DropoutTraffic);

TEST_P(DropoutTraffic, MovesEachByteOnce) {
  for (const DType dtype : {float32, bfloat16}) {
    Array x = random_array(random, dtype, {150, 768}, 0, 1), y(dtype, {150, 768});
    const Traffic traffic = traffic_of([&](Call& on) { drop(on, x, {0.1, {random(), 0}}, nullptr, y); });
    EXPECT_EQ(traffic.launches, 1u);
    EXPECT_EQ(traffic.bytes, 2 * bytes_of(x));
  }
}

}  // namespace
}  // namespace tern::kernels
