#pragma once
// The contract of sorting and selecting within rows: the standard library is the reference.

#include <numeric>

#include "tern/kernels/convert.h"
#include "tern/kernels/sort.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

/// Random bits, which give every kind of NaN and infinity, and many equal values including zeros of both signs.
inline void fill_for_sort(Array& x, std::mt19937_64& random) {
  const double often[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 3, 3, 3};
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (is_floating(x.dtype()))
      x.set(i, often[random() % 10]);
    else
      x.set(i, static_cast<double>(random() % 3));
    if (random() % 2 == 0) continue;
    const uint64_t bits = random();
    std::memcpy(x.view().as<char>() + Array::offset(x.cview(), i) * size_of(x.dtype()), &bits, size_of(x.dtype()));
  }
}

/// The columns of a row in sorted order; equal elements keep their order.
inline std::vector<int64_t> sorted_columns(const Array& x, int64_t row, bool descending) {
  const int64_t cols = x.cview().cols();
  std::vector<int64_t> order(cols);
  std::iota(order.begin(), order.end(), int64_t{0});
  dispatch_any(x.dtype(), [&]<class T>() {
    const Stored<T>* const values = x.cview().as<Stored<T>>() + row * cols;
    const auto less = [](Stored<T> a, Stored<T> b) {
      if constexpr (std::is_same_v<T, bool>) {
        return a == 0 && b != 0;
      } else {
        using F = ComputeType<T>;
        const F u = static_cast<F>(a), v = static_cast<F>(b);
        return u < v || (u == u && v != v);
      }
    };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? less(values[b], values[a]) : less(values[a], values[b]);
    });
  });
  return order;
}

/// The bits of element `index`.
inline uint64_t bits_at(const Array& x, int64_t index) {
  uint64_t bits = 0;
  const int64_t size = size_of(x.dtype());
  std::memcpy(&bits, x.cview().as<char>() + Array::offset(x.cview(), index) * size, size);
  return bits;
}

/// Expects that values and index contain `columns` of the row.
inline void expect_columns(const Array& x, const Array& values, const Array& index, int64_t row,
                           const std::vector<int64_t>& columns) {
  const int64_t cols = x.cview().cols(), k = index.cview().cols();
  ASSERT_EQ(k, static_cast<int64_t>(columns.size()));
  for (int64_t j = 0; j < k; ++j) {
    ASSERT_EQ(index.cview().as<int64_t>()[row * k + j], columns[j]) << "row " << row << ", place " << j;
    ASSERT_EQ(bits_at(values, row * k + j), bits_at(x, row * cols + columns[j])) << "row " << row << ", place " << j;
  }
}

inline void check_sort(Array& x) {
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  SCOPED_TRACE(testing::Message() << name_of(x.dtype()) << " " << rows << " x " << cols);
  for (const bool descending : {false, true}) {
    Array values(x.dtype(), x.shape()), index(int64, x.shape());
    run_kernel([&](Call& on) {
      void* const workspace = on.workspace(sort_rows_workspace(on.stream(), rows, cols, x.dtype()));
      sort_rows(on.stream(), on(x), descending, workspace, on(values), on(index));
    });
    for (int64_t r = 0; r < rows; ++r) expect_columns(x, values, index, r, sorted_columns(x, r, descending));
  }
}

inline void check_top_k(Array& x, int64_t k) {
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  SCOPED_TRACE(testing::Message() << name_of(x.dtype()) << " " << rows << " x " << cols << ", k " << k);
  for (const bool largest : {false, true})
    for (const bool sorted : {false, true}) {
      Array values(x.dtype(), {rows, k}), index(int64, {rows, k});
      run_kernel([&](Call& on) {
        void* const workspace = on.workspace(top_k_rows_workspace(on.stream(), rows, cols, k, x.dtype()));
        top_k_rows(on.stream(), on(x), largest, sorted, workspace, on(values), on(index));
      });
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<int64_t> columns = sorted_columns(x, r, largest);
        columns.resize(k);
        if (!sorted) std::sort(columns.begin(), columns.end());
        expect_columns(x, values, index, r, columns);
      }
    }
}

/// One element of each row, as a definition over the sorted columns.
inline void check_select(Array& x, Selection which, int64_t place) {
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  SCOPED_TRACE(testing::Message() << name_of(x.dtype()) << " " << rows << " x " << cols << ", selection "
                                  << static_cast<int>(which) << ", place " << place);
  Array values(x.dtype(), {rows, 1}), index(int64, {rows, 1});
  run_kernel([&](Call& on) {
    void* const workspace = on.workspace(select_rows_workspace(on.stream(), rows, cols, x.dtype()));
    select_rows(on.stream(), on(x), which, place, workspace, on(values), on(index));
  });
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<int64_t> columns = sorted_columns(x, r, false);
    std::vector<int64_t> numbers;  // NaN comes last
    for (const int64_t c : columns)
      if (!std::isnan(x.at(r * cols + c))) numbers.push_back(c);
    const bool has_nan = numbers.size() < columns.size();
    const auto middle = [](const std::vector<int64_t>& of) { return of[(of.size() - 1) / 2]; };
    const int64_t expected = which == Selection::kPlace    ? columns[static_cast<size_t>(place)]
                             : which == Selection::kMedian ? (has_nan ? columns[numbers.size()] : middle(columns))
                                                           : (numbers.empty() ? columns[0] : middle(numbers));
    expect_columns(x, values, index, r, {expected});
  }
}

/// Uses k different columns of each row, and one outside.
inline void check_scatter(DType dtype, int64_t rows, int64_t cols, int64_t k, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << rows << " x " << cols << ", k " << k);
  Array y(dtype, {rows, k}), index(int64, {rows, k}), x(dtype, {rows, cols});
  fill_for_sort(y, random);
  fill_for_sort(x, random);  // must be overwritten
  std::vector<uint64_t> expected(rows * cols, 0);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int64_t> columns(cols);
    std::iota(columns.begin(), columns.end(), int64_t{0});
    std::shuffle(columns.begin(), columns.end(), random);
    for (int64_t j = 0; j < k; ++j) {
      const bool outside = random() % 9 == 0;
      index.set(r * k + j, static_cast<double>(outside ? (j % 2 ? cols + j : -1 - j) : columns[j]));
      if (!outside) expected[r * cols + columns[j]] = bits_at(y, r * k + j);
    }
  }
  run_kernel([&](Call& on) { scatter_rows(on.stream(), on(y), on(index), on(x)); });
  for (int64_t i = 0; i < rows * cols; ++i) ASSERT_EQ(bits_at(x, i), expected[i]) << i;
}

}  // namespace tern::kernels
