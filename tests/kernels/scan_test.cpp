// Running sums and selections, against plain loops.

#include "tern/tests/kernels/scan_reference.h"

namespace tern::kernels {
namespace {

const ScanKernels kKernels = {[](auto... args) { return cumulative_sum_workspace({}, args...); },
                              [](auto... args) { cumulative_sum({}, args...); },
                              [](auto... args) { return select_positions_workspace({}, args...); },
                              [](auto... args) { select_positions({}, args...); },
                              [](auto... args) { unravel_positions({}, args...); }};

const std::vector<Shape> kShapes = {{0, 5}, {5, 0}, {1, 1}, {3, 7}, {70, 33}, {2, 70001}, {65, 3}};

TEST(CumulativeSum, Floats) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (const DType dtype : kFloatTypes)
      for (const Shape& shape : kShapes)
        for (const bool reverse : {false, true}) {
          Array x(dtype, shape, Order::kMisaligned), y(dtype, shape);
          fill_with_random(x, random, -1, 1);
          check_float_sums(kKernels, x, reverse);
          MarkedWorkspace workspace(cumulative_sum_workspace({}, shape[0], shape[1], dtype));
          expect_same_for_any_threads(y, [&] { cumulative_sum({}, x.cview(), reverse, workspace.data(), y.view()); });
        }
  });
}

TEST(CumulativeSum, Integers) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (const DType dtype : {int64, int32, uint8, boolean})
      for (const Shape& shape : kShapes) {
        Array x(dtype, shape);
        fill_with_bits(x, random);
        check_integer_sums(kKernels, x);
      }
  });
}

TEST(CumulativeSum, NanAndInfinityGoOnlyForward) {
  for_each_level([] {
    for (const bool reverse : {false, true}) {
      Array x(float32, {1, 70000});
      for (int64_t i = 0; i < 70000; ++i) x.set(i, 0.5);
      x.set(40000, INFINITY);
      check_float_sums(kKernels, x, reverse);
      x.set(45000, -INFINITY);
      check_float_sums(kKernels, x, reverse);
    }
  });
}

TEST(SelectPositions, EverySize) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (const int64_t n : {0, 1, 77, 100001})
      for (const unsigned one_in : {1u, 3u, 1000u, 1u << 30}) check_select(kKernels, n, one_in, random);
  });
}

TEST(UnravelPositions, EveryShape) {
  for_each_level([] {
    std::mt19937_64 random = fresh_random();
    for (const Shape& shape : std::vector<Shape>{{1}, {9}, {3, 5}, {2, 1, 7, 3}, {int64_t{1} << 40, 3}})
      for (const int64_t n : {0, 1, 300}) check_unravel(kKernels, shape, n, random);
  });
}

}  // namespace
}  // namespace tern::kernels
