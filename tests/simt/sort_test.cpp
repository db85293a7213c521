// Sorting and selecting within rows on the emulated device, against the standard library.

#include "tern/tests/kernels/sort_reference.h"
#include "tern/tests/simt/results.h"

namespace tern::kernels {
namespace {

const SortKernels kKernels = {[](auto... args) { return cuda::sort_rows_workspace(kCuda, args...); },
                              [](auto... args) { cuda::sort_rows(kCuda, args...); },
                              [](auto... args) { return cuda::top_k_rows_workspace(kCuda, args...); },
                              [](auto... args) { cuda::top_k_rows(kCuda, args...); },
                              [](auto... args) { cuda::scatter_rows(kCuda, args...); }};

TEST(SimtSort, RowsOfEveryDTypeAndSize) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    for (const DType dtype : kAllTypes)
      for (const Shape& shape : std::vector<Shape>{{0, 5}, {5, 0}, {1, 1}, {3, 2}, {300, 7}, {2, 257}, {1, 3001}}) {
        Array x(dtype, shape, Order::kMisaligned);
        fill_for_sort(x, random);
        check_sort(kKernels, x);
      }
  });
}

/// More elements than are sorted together: several rows at a time, or one long row.
TEST(SimtSort, SeveralChunks) {
  std::mt19937_64 random = fresh_random();
  for (const DType dtype : {float32, float64, bfloat16})
    for (const Shape& shape : std::vector<Shape>{{13, 700}, {3, 5000}}) {
      if (kFewCases && (dtype == bfloat16) == (shape[0] == 3)) continue;
      Array x(dtype, shape);
      fill_for_sort(x, random);
      check_sort(kKernels, x);
      check_top_k(kKernels, x, shape[1] - 3);
    }
}

TEST(SimtTopK, EveryDTypeAndSize) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    for (const DType dtype : kAllTypes)
      for (const auto& [shape, k] : std::vector<std::pair<Shape, int64_t>>{{{0, 5}, 2},
                                                                           {{3, 5}, 0},
                                                                           {{3, 0}, 0},
                                                                           {{1, 1}, 1},
                                                                           {{9, 7}, 3},
                                                                           {{2, 300}, 300},
                                                                           {{1, 513}, 9},
                                                                           {{1, 4500}, 17}}) {
        if (kFewCases && random() % 3 != 0) continue;
        Array x(dtype, shape, Order::kMisaligned);
        fill_for_sort(x, random);
        check_top_k(kKernels, x, k);
      }
  });
}

/// The selection among many equal elements spans several tiles.
TEST(SimtTopK, TiesAcrossTiles) {
  for (const int64_t k : {1, 2047, 2049, 4200}) {
    Array x(float16, {1, 4321});
    for (int64_t i = 0; i < 4321; ++i) x.set(i, i % 1000 == 7 ? 2 : 1);
    check_top_k(kKernels, x, k);
  }
}

TEST(SimtScatterRows, EveryDTypeAndSize) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    for (const DType dtype : kAllTypes) {
      check_scatter(kKernels, dtype, 0, 3, 2, random);
      check_scatter(kKernels, dtype, 4, 3, 0, random);
      check_scatter(kKernels, dtype, 1, 1, 1, random);
      check_scatter(kKernels, dtype, 5, 130, 117, random);
    }
  });
}

}  // namespace
}  // namespace tern::kernels
