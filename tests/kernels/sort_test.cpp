// Sorting and selecting within rows, against the standard library.

#include "tern/tests/kernels/contracts/sort.h"

namespace tern::kernels {
namespace {

class Sort : public OnTarget {
 protected:
  /// Calls check(x) with every dtype and shape, in every run.
  void for_each_array(const std::vector<Shape>& shapes, const std::function<void(Array&)>& check) {
    for_each_run([&] {
      for (const DType dtype : kAllTypes)
        for (const Shape& shape : shapes) {
          if (!takes_case(shape[0] * shape[1], random)) continue;
          Array x(dtype, shape, Order::kMisaligned);
          fill_for_sort(x, random);
          check(x);
        }
    });
  }
};
INSTANTIATE_TEST_SUITE_P(, Sort, testing::ValuesIn(all_targets()), name_of_target);

TEST_P(Sort, EveryDTypeAndSize) {
  std::vector<Shape> shapes = {{0, 5},   {5, 0},   {1, 1},   {3, 2},   {40, 7},
                               {300, 7}, {3, 256}, {3, 257}, {2, 257}, {1, 3001}};
  if (target().is_cpu()) shapes.insert(shapes.end(), {{2, 3001}, {1, 70000}});
  for_each_array(shapes, [](Array& x) { check_sort(x); });
}

/// On the CPU more rows than are under way together; on CUDA more elements than are sorted together, of several rows or
/// of one long row.
TEST_P(Sort, SeveralChunks) {
  if (target().is_cpu()) {
    Array x(uint8, {kFewCases ? 1 : 3, 700001});
    fill_for_sort(x, random);
    check_sort(x);
    check_top_k(x, 5);
  }
  for (const DType dtype : {float32, float64, bfloat16})
    for (const Shape& shape : std::vector<Shape>{{13, 700}, {3, 5000}}) {
      if (!takes_case(shape[0] * shape[1], random)) continue;
      Array x(dtype, shape);
      fill_for_sort(x, random);
      check_sort(x);
      check_top_k(x, shape[1] - 3);
    }
}

TEST_P(Sort, SortedReversedAndEqual) {
  for_each_run([&] {
    for (const int64_t cols : {200, 2000})
      for (const double step : {1.0, 0.0, -1.0}) {
        if (!takes_case(cols, random)) continue;
        Array x(float32, {1, cols});
        for (int64_t i = 0; i < cols; ++i) x.set(i, step * static_cast<double>(i));
        check_sort(x);
        for (const int64_t k : {int64_t{9}, cols / 4, cols / 2}) check_top_k(x, k);
      }
  });
}

TEST_P(Sort, TopKOfEveryDTypeAndSize) {
  for (const auto& [shape, k] : std::vector<std::pair<Shape, int64_t>>{{{0, 5}, 2},
                                                                       {{3, 5}, 0},
                                                                       {{3, 0}, 0},
                                                                       {{1, 1}, 1},
                                                                       {{9, 7}, 3},
                                                                       {{40, 7}, 3},
                                                                       {{2, 300}, 300},
                                                                       {{2, 700}, 16},
                                                                       {{40, 16}, 16},
                                                                       {{3, 300}, 300},
                                                                       {{1, 513}, 9},
                                                                       {{2, 3001}, 17},
                                                                       {{3, 68}, 17},
                                                                       {{2, 801}, 200},
                                                                       {{2, 1500}, 600},
                                                                       {{1, 4500}, 17}})
    for_each_array({shape}, [k = k](Array& x) { check_top_k(x, k); });
}

TEST_P(Sort, SelectedElements) {
  for (const Shape& shape : {Shape{0, 5}, {1, 1}, {40, 2}, {9, 7}, {20, 8}, {20, 9}, {3, 300}, {2, 3001}})
    for_each_array({shape}, [&](Array& x) {
      for (const bool of_numbers : {false, true}) {
        for (int64_t i = 0; of_numbers && is_floating(x.dtype()) && i < x.numel(); ++i) {
          if (i < shape[1])  // the first row has nothing but NaN, the others none
            x.set(i, NAN);
          else if (std::isnan(x.at(i)))
            x.set(i, 2);
        }
        check_select(x, Selection::kMedian, 0);
        check_select(x, Selection::kMedianOfNumbers, 0);
      }
      check_select(x, Selection::kPlace, static_cast<int64_t>(random() % static_cast<uint64_t>(shape[1])));
    });
}

/// The selection among many equal elements spans several tiles.
TEST_P(Sort, TopKTiesAcrossTiles) {
  for (const int64_t k : {1, 3, 16, 30, 1080, 2047, 2049, 4200}) {
    Array x(float16, {1, 4321});
    for (int64_t i = 0; i < 4321; ++i) x.set(i, i % 1000 == 7 ? 2 : 1);
    check_top_k(x, k);
  }
}

TEST_P(Sort, SearchSortedCountsWhatPrecedes) {
  for (const DType dtype : kAllTypes)
    for (const int64_t rows : {1, 3})
      for (const int64_t cols : {0, 1, 40}) {
        Array x(dtype, {rows, cols}), sorted(dtype, {rows, cols}), values(dtype, {3, 17}), index(int64, {3, 17});
        fill_for_sort(x, random);
        fill_for_sort(values, random);
        for (int64_t r = 0; r < rows; ++r) {
          const std::vector<int64_t> order = sorted_columns(x, r, false);
          for (int64_t j = 0; j < cols; ++j) sorted.set(r * cols + j, x.at(r * cols + order[j]));
        }
        for (const bool right : {false, true}) {
          run_kernel([&](Call& on) { search_sorted(on.stream(), on(sorted), on(values), right, on(index)); });
          for (int64_t i = 0; i < values.numel(); ++i) {
            const auto value_of = [&](double v) { return dtype == boolean ? v != 0 : v; };
            const double v = value_of(values.at(i));
            int64_t count = 0;
            for (int64_t j = 0; j < cols; ++j) {
              const double s = value_of(sorted.at((rows == 1 ? 0 : i / 17) * cols + j));
              count += std::isnan(s) ? right && std::isnan(v) : std::isnan(v) || s < v || (right && s == v);
            }
            ASSERT_EQ(static_cast<int64_t>(index.at(i)), count) << name_of(dtype) << ", value " << v;
          }
        }
      }
}

TEST_P(Sort, ScatterOfEveryDTypeAndSize) {
  for_each_run([&] {
    for (const DType dtype : kAllTypes) {
      check_scatter(dtype, 0, 3, 2, random);
      check_scatter(dtype, 4, 3, 0, random);
      check_scatter(dtype, 1, 1, 1, random);
      check_scatter(dtype, 5, 30, 17, random);
      check_scatter(dtype, 5, 130, 117, random);
      if (target().is_cpu()) check_scatter(dtype, 2, 40000, 39000, random);
    }
  });
}

}  // namespace
}  // namespace tern::kernels
