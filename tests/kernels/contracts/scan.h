#pragma once
// The contract of running sums and selections: cases, and plain loops as the reference.

#include "tern/kernels/convert.h"
#include "tern/kernels/scan.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

/// Rows for warps and for blocks of CUDA's kernels and for the CPU's parts, whole and partial tiles, and too many rows
/// to be divided.
inline const std::vector<Shape> kScanShapes = {{0, 5},     {5, 0},     {1, 1},   {3, 7},    {9, 7},     {3, 256},
                                               {3, 512},   {2, 513},   {2, 515}, {2, 4096}, {1, 16384}, {2, 16385},
                                               {1, 40003}, {2, 70001}, {300, 3}, {70, 33},  {65, 3}};

inline void run_cumulative_sum(Call& on, const Array& x, bool reverse, Array& y) {
  const int64_t bytes = cumulative_sum_workspace(on.stream(), x.shape()[0], x.shape()[1], x.dtype());
  cumulative_sum(on.stream(), on(x), reverse, on.workspace(bytes), on(y));
}
inline Array cumulative_sum_of(const Array& x, bool reverse) {
  Array y(is_floating(x.dtype()) ? x.dtype() : int64, x.shape(), Order::kMisaligned);
  expect_same_in_every_run({&y}, [&](Call& on) { run_cumulative_sum(on, x, reverse, y); });
  return y;
}

/// Floats must agree to the rounding of the result and a margin for the order of the fp64 additions.
inline void check_float_sums(const Array& x, bool reverse) {
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  SCOPED_TRACE(testing::Message() << name_of(x.dtype()) << " " << rows << " x " << cols << ", reverse " << reverse);
  const Array y = cumulative_sum_of(x, reverse);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0, size = 0;
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t i = r * cols + (reverse ? cols - 1 - j : j);
      sum += x.at(i);
      size += std::fabs(x.at(i));
      const double slack = x.dtype() == float16 ? 3.1e-8 : 0;  // subnormal results
      ASSERT_TRUE(near(y.at(i), sum, 1.01 * epsilon_of(x.dtype()), std::isnan(sum) ? 0 : slack + 1e-14 * size))
          << "row " << r << ", column " << i % cols << ": " << y.at(i) << " and " << sum;
    }
  }
}

/// Integers wrap; every nonzero byte of a bool counts as one.
inline void check_integer_sums(const Array& x) {
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  SCOPED_TRACE(testing::Message() << name_of(x.dtype()) << " " << rows << " x " << cols);
  const Array y = cumulative_sum_of(x, false);
  dispatch_any(x.dtype(), [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      for (int64_t r = 0; r < rows; ++r) {
        uint64_t sum = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
          const Stored<T> value = x.cview().as<Stored<T>>()[i];
          sum += std::is_same_v<T, bool> ? value != 0 : static_cast<uint64_t>(static_cast<int64_t>(value));
          ASSERT_EQ(static_cast<uint64_t>(y.cview().as<int64_t>()[i]), sum) << i;
        }
      }
    }
  });
}

/// Products of floats agree to the rounding of the result and of the fp64 products; integers wrap.
inline void check_products(const Array& x) {
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  SCOPED_TRACE(testing::Message() << name_of(x.dtype()) << " " << rows << " x " << cols);
  Array y(is_floating(x.dtype()) ? x.dtype() : int64, x.shape(), Order::kMisaligned);
  expect_same_in_every_run({&y}, [&](Call& on) { cumulative_product(on.stream(), on(x), on(y)); });
  const double slack = x.dtype() == float16 ? 6e-8 : x.dtype() == float64 ? 0 : 1e-44;  // subnormal results
  dispatch_any(x.dtype(), [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      std::conditional_t<std::is_integral_v<T>, uint64_t, double> product = 1;
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        const Stored<T> value = x.cview().as<Stored<T>>()[i];
        if constexpr (std::is_integral_v<T>) {
          product *= static_cast<uint64_t>(convert<T, int64_t>(value));
          ASSERT_EQ(static_cast<uint64_t>(y.cview().as<int64_t>()[i]), product) << i;
        } else {
          product *= convert<T, double>(value);
          const double bound = 1.01 * epsilon_of(x.dtype()) + 2.3e-16 * static_cast<double>(cols);
          ASSERT_TRUE(near(y.at(i), product, bound, slack)) << i << ": " << y.at(i) << " and " << product;
        }
      }
    }
  });
}

/// Against a loop in fp64. Errors grow with the sum of magnitudes, which obeys the recurrence of magnitudes.
inline void check_recurrence(const Array& a, const Array& b, bool reverse) {
  const int64_t rows = b.shape()[0], cols = b.shape()[1];
  SCOPED_TRACE(testing::Message() << name_of(b.dtype()) << " " << rows << " x " << cols << ", reverse " << reverse);
  Array y(b.dtype(), b.shape(), Order::kMisaligned);
  expect_same_in_every_run({&y}, [&](Call& on) { linear_recurrence(on.stream(), on(a), on(b), reverse, on(y)); });
  const double slack = b.dtype() == float16 ? 6e-8 : 0;
  for (int64_t r = 0; r < rows; ++r) {
    double value = 0, size = 0;
    for (int64_t k = 0; k < cols; ++k) {
      const int64_t i = r * cols + (reverse ? cols - 1 - k : k);
      const double factor = k == 0 ? 0 : a.at(reverse ? i + 1 : i);
      value = k == 0 ? b.at(i) : factor * value + b.at(i);
      size = std::fabs(factor) * size + std::fabs(b.at(i));
      ASSERT_TRUE(near(y.at(i), value, 1.01 * epsilon_of(b.dtype()), slack + 4e-16 * static_cast<double>(k + 1) * size))
          << "row " << r << ", column " << i % cols << ": " << y.at(i) << " and " << value;
    }
  }
}

inline void run_cumulative_extreme(Call& on, const Array& x, bool largest, Array& y, Array& index) {
  const int64_t bytes = cumulative_extreme_workspace(on.stream(), x.shape()[0], x.shape()[1], x.dtype());
  cumulative_extreme(on.stream(), largest, on(x), on.workspace(bytes), on(y), on(index));
}

/// Against a loop over the raw elements. Misaligned arrays have their own accesses at both ends.
inline void check_extremes(const Array& x, bool largest, Order order = Order::kContiguous) {
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  SCOPED_TRACE(testing::Message() << name_of(x.dtype()) << " " << rows << " x " << cols << ", largest " << largest);
  Array y(x.dtype(), x.shape(), order), index(int64, x.shape(), order);
  expect_same_in_every_run({&y, &index}, [&](Call& on) { run_cumulative_extreme(on, x, largest, y, index); });
  dispatch_any(x.dtype(), [&]<class T>() {
    using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    const auto value = [](const Array& from, int64_t i) {
      return convert<T, Wide>(from.cview().as<Stored<T>>()[i]);  // a bool is 0 or 1
    };
    for (int64_t r = 0; r < rows; ++r) {
      int64_t best = r * cols;
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        const Wide now = value(x, i), old = value(x, best);
        const bool now_is_nan = now != now, old_is_nan = old != old;
        if (now_is_nan || (!old_is_nan && (largest ? now >= old : now <= old))) best = i;
        ASSERT_EQ(index.cview().as<int64_t>()[i], best - r * cols) << "row " << r << ", column " << i - r * cols;
        const Wide expected = value(x, best), got = value(y, i);
        ASSERT_TRUE(got == expected || (got != got && expected != expected)) << got << " and " << expected;
        if constexpr (std::is_same_v<T, bool>) {
          ASSERT_EQ(y.cview().as<uint8_t>()[i], expected);
        }
      }
    }
  });
}

inline void fill_with_bits(Array& x, std::mt19937_64& random) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    const uint64_t bits = random();
    std::memcpy(x.view().as<char>() + i * size_of(x.dtype()), &bits, size_of(x.dtype()));
  }
}

/// One in `one_in` bytes is nonzero.
inline void check_select(int64_t n, unsigned one_in, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << n << " flags, one in " << one_in);
  Array mask(boolean, {n});
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < n; ++i) {
    const bool set = random() % one_in == 0;
    mask.view().as<uint8_t>()[i] = set ? static_cast<uint8_t>(1 + random() % 255) : 0;
    if (set) expected.push_back(i);
  }
  const auto count = static_cast<int64_t>(expected.size());
  std::vector<int64_t> positions(count + 1, -7);
  run_kernel([&](Call& on) {
    void* const workspace = on.workspace(select_positions_workspace(on.stream(), n));
    select_positions(on.stream(), on(mask), workspace, make_view(on.memory(positions.data(), count + 1), count));
  });
  expected.push_back(-7);
  EXPECT_EQ(positions, expected);
}

inline void check_unravel(const Shape& shape, int64_t n, std::mt19937_64& random) {
  const auto dims = static_cast<int64_t>(shape.size());
  const int64_t all = ConstView(nullptr, int64, static_cast<int>(dims), shape.data(), shape.data()).numel();
  std::vector<int64_t> positions(n), indices(n * dims + 1, -7), back(n, 0);
  for (int64_t& p : positions) p = static_cast<int64_t>(random() % all);
  run_kernel([&](Call& on) {
    const int64_t* const from = on.memory(positions.data(), n);
    unravel_positions(on.stream(), make_view(from, n), static_cast<int>(dims), shape.data(),
                      make_view(on.memory(indices.data(), n * dims + 1), n, dims));
  });
  for (int64_t i = 0; i < n; ++i)
    for (int64_t d = 0; d < dims; ++d) {
      ASSERT_LT(static_cast<uint64_t>(indices[i * dims + d]), static_cast<uint64_t>(shape[d]));
      back[i] = back[i] * shape[d] + indices[i * dims + d];
    }
  EXPECT_EQ(back, positions);
  EXPECT_EQ(indices.back(), -7);
}

}  // namespace tern::kernels
