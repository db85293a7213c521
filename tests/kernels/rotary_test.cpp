// Rotary embeddings against rotations in double precision, at positions up to 131072 and beyond.

#include "tern/kernels/rotary.h"

#include <numbers>

#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {
namespace {

class RotaryKernel : public OnTarget {};
INSTANTIATE_TEST_SUITE_P(, RotaryKernel, testing::ValuesIn(all_targets()), name_of_target);

struct RotaryCase {
  int64_t tokens, heads, head_dim, rotary_dim;
  bool interleaved, inverse;
  int64_t largest = 131072;
};

double frequency(const RotaryCase& s, int64_t pair) {
  return std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(s.rotary_dim));
}

void check(DType dtype, DType position_type, const RotaryCase& s, Order order, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " [" << s.tokens << ", " << s.heads << ", " << s.head_dim
                                  << "], " << s.rotary_dim << (s.interleaved ? " interleaved" : " in halves")
                                  << (s.inverse ? " back" : "") << " order " << static_cast<int>(order));
  // A query of a fused projection: tokens are further apart than heads are.
  const Shape shape = {s.tokens, s.heads, s.head_dim};
  const Array fused = random_array(random, dtype, {s.tokens, s.heads + 4, s.head_dim}, -2, 2, order);
  Array y(dtype, shape), positions(position_type, {s.tokens});
  const ConstView x(fused.cview().data, dtype, 3, shape.data(), fused.cview().strides);
  for (int64_t t = 0; t < s.tokens; ++t)
    positions.set(t, static_cast<double>(t == 0 ? s.largest : static_cast<int64_t>(random() % 131073)));
  RotaryParams params{.pairs = s.rotary_dim / 2, .interleaved = s.interleaved, .inverse = s.inverse};
  for (int64_t i = 0; i < params.pairs; ++i) params.turns[i] = frequency(s, i) / (2 * std::numbers::pi);
  IndexFault fault;
  expect_same_in_every_run(
      {&y}, [&](Call& on) { rotary(on.stream(), params, on(fused, x), on(positions), on(y), on.memory(&fault)); });
  EXPECT_EQ(fault.count, 0);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t c = i % s.head_dim, row = i - c, half = params.pairs;
    const auto element = [&](int64_t column) { return Array::read(x, row + column); };
    if (c >= s.rotary_dim) {
      ASSERT_EQ(y.at(i), element(c)) << "at " << i;
      continue;
    }
    const int64_t pair = s.interleaved ? c / 2 : c % half;
    const bool second = s.interleaved ? c % 2 == 1 : c >= half;
    const double x0 = element(s.interleaved ? 2 * pair : pair), x1 = element(s.interleaved ? c | 1 : pair + half);
    const double position = positions.at(i / (s.heads * s.head_dim)), angle = position * frequency(s, pair);
    const double cosine = std::cos(angle), sine = s.inverse ? -std::sin(angle) : std::sin(angle);
    const double expected = second ? x0 * sine + x1 * cosine : x0 * cosine - x1 * sine;
    // The angle's product in fp64 here and there; its rounding to the type of the computation; sine, products and sum.
    const double unit = dtype == float64 ? 0x1p-53 : 0x1p-24, bound = 4 * (angle * 0x1p-51 + 10 * unit);
    ASSERT_TRUE(near(y.at(i), expected, epsilon_of(dtype), bound)) << "at " << i << ": " << y.at(i) << ", " << expected;
  }
}

TEST_P(RotaryKernel, RotatesPairsByThePosition) {
  for (const DType dtype : kFloatTypes)
    for (const Order order : {Order::kContiguous, Order::kPitched, Order::kMisaligned})
      for (const bool interleaved : {false, true})
        for (const RotaryCase& s : {RotaryCase{5, 3, 64, 64, interleaved, false},
                                    {7, 9, 32, 16, interleaved, true},
                                    {3, 4, 10, 6, interleaved, false},
                                    {2, 1, 2, 2, interleaved, true},
                                    {40, 4, 128, 128, interleaved, false},
                                    {1, 2, 256, 256, interleaved, false},
                                    {3, 2, 7, 0, interleaved, false},
                                    {0, 2, 8, 8, interleaved, false},
                                    {4, 6, 24, 24, interleaved, false, 2147483647}})
          if (takes_case(s.tokens * s.heads * s.head_dim, random))
            check(dtype, random() % 2 ? int64 : int32, s, order, random);
}

TEST_P(RotaryKernel, NegativePositionsAreReported) {
  const Array x = random_array(random, float32, {6, 5, 4}, 1, 2);
  Array y(float32, {6, 5, 4}), positions(int64, {6});
  positions.set({0, 1, -1, 3, -9e15, 0});
  for_each_run([&] {
    IndexFault fault;
    run_kernel([&](Call& on) { rotary(on.stream(), {.pairs = 1}, on(x), on(positions), on(y), on.memory(&fault)); });
    EXPECT_EQ(fault.count, 2);
    EXPECT_EQ(fault.first, 2);
    for (int64_t i = 0; i < y.numel(); ++i) EXPECT_EQ(y.at(i), i / 20 == 2 || i / 20 == 4 ? 0 : x.at(i)) << i;
  });
}

}  // namespace
}  // namespace tern::kernels
