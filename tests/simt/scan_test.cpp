// Running sums and selections on the emulated device, against plain loops.

#include "tern/tests/kernels/scan_reference.h"
#include "tern/tests/simt/results.h"

namespace tern::kernels {
namespace {

const ScanKernels kKernels = {[](auto... args) { return cuda::cumulative_sum_workspace(kCuda, args...); },
                              [](auto... args) { cuda::cumulative_sum(kCuda, args...); },
                              [](auto... args) { return cuda::select_positions_workspace(kCuda, args...); },
                              [](auto... args) { cuda::select_positions(kCuda, args...); },
                              [](auto... args) { cuda::unravel_positions(kCuda, args...); }};

/// Rows for warps and for blocks, with whole and partial tiles, in parts, and too many of them to be divided.
const std::vector<Shape> kShapes = {{0, 5},   {5, 0},    {1, 1},     {9, 7},     {3, 256},   {3, 512}, {2, 513},
                                    {2, 515}, {2, 4096}, {1, 16384}, {2, 16385}, {1, 40003}, {300, 3}};

TEST(SimtCumulativeSum, Floats) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes)
    for (const Shape& shape : kShapes)
      for (const bool reverse : {false, true}) {
        const Order order = random() % 2 ? Order::kContiguous : Order::kMisaligned;
        Array x(dtype, shape, order), y(dtype, shape, order);
        fill_with_random(x, random, -1, 1);
        std::vector<double> workspace(cuda::cumulative_sum_workspace(kCuda, shape[0], shape[1], dtype) / 8 + 1);
        expect_same_for_all_schedules(
            {&y}, [&] { cuda::cumulative_sum(kCuda, x.cview(), reverse, workspace.data(), y.view()); });
        check_float_sums(kKernels, x, reverse);
      }
}

TEST(SimtCumulativeSum, ManyLongRowsAreNotCut) {
  std::mt19937_64 random = fresh_random();
  Array x(float32, {256, 700});
  fill_with_random(x, random, -1, 1);
  EXPECT_EQ(cuda::cumulative_sum_workspace(kCuda, 256, 20000, float32), 0);
  for (const bool reverse : {false, true}) check_float_sums(kKernels, x, reverse);
}

/// The alignment of rows changes the accesses but not the result.
TEST(SimtCumulativeSum, DoesNotDependOnTheAlignment) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : kFloatTypes)
    for (const bool reverse : {false, true}) {
      Array x(dtype, {3, 1000}), shifted(dtype, {3, 1000}, Order::kMisaligned);
      fill_with_random(x, random, -1, 1);
      for (int64_t i = 0; i < x.numel(); ++i) shifted.set(i, x.at(i));
      EXPECT_EQ(run_cumulative_sum(kKernels, x, reverse).values(),
                run_cumulative_sum(kKernels, shifted, reverse).values());
    }
}

TEST(SimtCumulativeSum, Integers) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    for (const DType dtype : {int64, int32, uint8, boolean})
      for (const Shape& shape : std::vector<Shape>{{0, 5}, {5, 0}, {1, 1}, {30, 7}, {2, 3000}}) {
        Array x(dtype, shape);
        fill_with_bits(x, random);
        check_integer_sums(kKernels, x);
      }
  });
}

TEST(SimtCumulativeSum, NanAndInfinityGoOnlyForward) {
  for_each_schedule([] {
    for (const bool reverse : {false, true})
      for (const int64_t cols : {300, 3000, 20000}) {
        Array x(float32, {1, cols});
        for (int64_t i = 0; i < cols; ++i) x.set(i, 0.5);
        x.set(cols / 2, INFINITY);
        check_float_sums(kKernels, x, reverse);
        x.set(cols / 2 + 5, -INFINITY);
        check_float_sums(kKernels, x, reverse);
      }
  });
}

TEST(SimtCumulativeSum, MovesEveryElementTwice) {
  Array x(bfloat16, {300, 1024}), y(bfloat16, {300, 1024});
  EXPECT_LE(moved_bytes([&] { cuda::cumulative_sum(kCuda, x.cview(), false, nullptr, y.view()); }),
            1.001 * (bytes_of(x) + bytes_of(y)));
}

TEST(SimtSelectPositions, EverySize) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    for (const int64_t n : {0, 1, 77, 3001})
      for (const unsigned one_in : {1u, 3u, 1000u, 1u << 30}) check_select(kKernels, n, one_in, random);
  });
}

TEST(SimtUnravelPositions, EveryShape) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    for (const Shape& shape : std::vector<Shape>{{1}, {9}, {3, 5}, {2, 1, 7, 3}, {int64_t{1} << 40, 3}})
      for (const int64_t n : {0, 1, 300}) check_unravel(kKernels, shape, n, random);
  });
}

}  // namespace
}  // namespace tern::kernels
