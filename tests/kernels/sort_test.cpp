// Sorting and selecting within rows, against the standard library.

#include "tern/tests/kernels/sort_reference.h"

namespace tern::kernels {
namespace {

const SortKernels kKernels = {
    [](auto... args) { return sort_rows_workspace({}, args...); }, [](auto... args) { sort_rows({}, args...); },
    [](auto... args) { return top_k_rows_workspace({}, args...); }, [](auto... args) { top_k_rows({}, args...); },
    [](auto... args) { scatter_rows({}, args...); }};

/// Runs body at every level, with one thread and with two.
void for_each_way(const std::function<void(std::mt19937_64&)>& body) {
  std::mt19937_64 random = fresh_random();
  const int before = num_threads();
  for_each_level([&] {
    for (const int threads : {1, 2}) {
      set_num_threads(threads);
      body(random);
    }
  });
  set_num_threads(before);
}

TEST(SortRows, EveryDTypeAndSize) {
  for_each_way([](std::mt19937_64& random) {
    for (const DType dtype : kAllTypes)
      for (const Shape& shape :
           std::vector<Shape>{{0, 5}, {5, 0}, {1, 1}, {3, 2}, {40, 7}, {3, 256}, {3, 257}, {2, 3001}, {1, 70000}}) {
        Array x(dtype, shape, Order::kMisaligned);
        fill_for_sort(x, random);
        check_sort(kKernels, x);
      }
  });
}

TEST(SortRows, MoreRowsThanAreUnderWayTogether) {
  std::mt19937_64 random = fresh_random();
  Array x(uint8, {3, 700001});
  fill_for_sort(x, random);
  check_sort(kKernels, x);
  check_top_k(kKernels, x, 5);
}

TEST(SortRows, SortedReversedAndEqual) {
  for_each_way([](std::mt19937_64&) {
    for (const int64_t cols : {200, 2000})
      for (const double step : {1.0, 0.0, -1.0}) {
        Array x(float32, {1, cols});
        for (int64_t i = 0; i < cols; ++i) x.set(i, step * static_cast<double>(i));
        check_sort(kKernels, x);
        check_top_k(kKernels, x, cols / 2);
      }
  });
}

TEST(TopKRows, EveryDTypeAndSize) {
  for_each_way([](std::mt19937_64& random) {
    for (const DType dtype : kAllTypes)
      for (const auto& [shape, k] : std::vector<std::pair<Shape, int64_t>>{
               {{0, 5}, 2}, {{3, 5}, 0}, {{3, 0}, 0}, {{1, 1}, 1}, {{40, 7}, 3}, {{3, 300}, 300}, {{2, 3001}, 17}}) {
        Array x(dtype, shape, Order::kMisaligned);
        fill_for_sort(x, random);
        check_top_k(kKernels, x, k);
      }
  });
}

TEST(ScatterRows, EveryDTypeAndSize) {
  for_each_way([](std::mt19937_64& random) {
    for (const DType dtype : kAllTypes) {
      check_scatter(kKernels, dtype, 0, 3, 2, random);
      check_scatter(kKernels, dtype, 4, 3, 0, random);
      check_scatter(kKernels, dtype, 1, 1, 1, random);
      check_scatter(kKernels, dtype, 5, 30, 17, random);
      check_scatter(kKernels, dtype, 2, 40000, 39000, random);
    }
  });
}

}  // namespace
}  // namespace tern::kernels
