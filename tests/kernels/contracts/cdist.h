#pragma once
// The contract of distances between rows: cases, and loops in double precision.

#include "tern/kernels/cdist.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels::cdist_test {

/// Rows of which some are equal, their distances and the gradients.
struct Rows {
  double order;
  int64_t batch, rows, cols, depth;
  Array x, z, dy, y, dx, dz;

  /// `steps`: elements are multiples of 1/steps, so that many differences are equal; 0: any.
  Rows(DType dtype, double p, const Shape& sizes, double steps, std::mt19937_64& random)
      : order(p),
        batch(sizes[0]),
        rows(sizes[1]),
        cols(sizes[2]),
        depth(sizes[3]),
        x(random_array(random, dtype, {batch, rows, depth}, -1, 1, Order::kMisaligned)),
        z(random_array(random, dtype, {batch, cols, depth}, -1, 1)),
        dy(random_array(random, dtype, {batch, rows, cols}, -1, 1, Order::kMisaligned)),
        y(dtype, {batch, rows, cols}),
        dx(dtype, {batch, rows, depth}),
        dz(dtype, {batch, cols, depth}, Order::kMisaligned) {
    for (Array* from : {&x, &z})
      for (int64_t i = 0; steps > 0 && i < from->numel(); ++i) from->set(i, std::round(from->at(i) * steps) / steps);
    if (rows > 0 && cols > 1)
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t m = 0; m < depth; ++m) z.set((b * cols + 1) * depth + m, x.at(b * rows * depth + m));
  }
  DType dtype() const { return x.dtype(); }
  std::vector<double> from, to;  // the elements of x and z

  void run() {
    from = x.values();
    to = z.values();
    expect_same_in_every_run({&y, &dx, &dz}, [&](Call& on) {
      cdist_forward(on.stream(), order, on(x), on(z), on(y));
      void* const workspace = on.workspace(cdist_backward_workspace(on.stream(), order, on(y)));
      cdist_backward(on.stream(), order, on(x), on(z), on(y), on(dy), workspace, on(dx), on(dz));
    });
  }
  /// x - z as the kernel rounds it, which decides what the largest differences are.
  std::vector<double> differences(int64_t b, int64_t i, int64_t j) const {
    std::vector<double> d(depth);
    for (int64_t m = 0; m < depth; ++m) {
      const double a = from[(b * rows + i) * depth + m], c = to[(b * cols + j) * depth + m];
      d[m] = dtype() == float64 ? a - c : static_cast<double>(static_cast<float>(a) - static_cast<float>(c));
    }
    return d;
  }
};

inline double largest_of(const std::vector<double>& d) {
  double largest = 0;
  for (const double value : d) largest = std::max(largest, std::fabs(value));
  return largest;
}

inline double distance_of(const std::vector<double>& d, double order) {
  if (std::isinf(order)) return largest_of(d);
  double sum = 0;
  for (const double value : d)
    sum += order == 0 ? value != 0 : order == 2 ? value * value : std::pow(std::fabs(value), order);
  return order == 0 ? sum : std::pow(sum, 1 / order);
}

/// The derivative of the distance y by difference m.
inline double slope_of(const std::vector<double>& d, int64_t m, double y, double order) {
  const double value = d[m];
  if (value == 0 || order == 0) return 0;
  if (order == 1) return std::copysign(1.0, value);
  if (order == 2) return value / y;
  if (std::isinf(order)) {
    const double largest = largest_of(d);
    int64_t ties = 0;
    for (const double other : d) ties += std::fabs(other) == largest;
    return std::fabs(value) == largest ? std::copysign(1.0, value) / static_cast<double>(ties) : 0;
  }
  return std::copysign(std::pow(std::fabs(value) / y, order - 1), value);
}

/// Errors in units of the rounding of the compute type: of a difference, of its power, and of sums in blocks.
inline double error_of_sums(const Rows& of, int64_t terms) {
  const double power = of.order > 0 && !std::isinf(of.order) ? std::max(of.order, 1 / of.order) : 1;
  return (100 + static_cast<double>(terms) / 16) * power * epsilon_of(of.dtype() == float64 ? float64 : float32);
}

inline void check_distances(const Rows& of) {
  const double relative = 1.01 * epsilon_of(of.dtype()) + error_of_sums(of, of.depth);
  const double absolute = of.dtype() == float16 ? 6e-8 : 1e-12;  // of powers that are subnormal
  for (int64_t b = 0; b < of.batch; ++b)
    for (int64_t i = 0; i < of.rows; ++i)
      for (int64_t j = 0; j < of.cols; ++j) {
        const double got = of.y.at((b * of.rows + i) * of.cols + j),
                     expected = distance_of(of.differences(b, i, j), of.order);
        ASSERT_TRUE(near(got, expected, relative, absolute))
            << "batch " << b << ", rows " << i << " and " << j << ": " << got << " and " << expected;
      }
}

/// From the distances that the kernel got, which are rounded.
inline void check_gradients(const Rows& of) {
  std::vector<double> dx(of.x.numel()), dz(of.z.numel()), size_x(dx), size_z(dz);
  for (int64_t b = 0; b < of.batch; ++b)
    for (int64_t i = 0; i < of.rows; ++i)
      for (int64_t j = 0; j < of.cols; ++j) {
        const std::vector<double> d = of.differences(b, i, j);
        const int64_t pair = (b * of.rows + i) * of.cols + j;
        const double dy = of.dy.at(pair), y = of.y.at(pair);
        for (int64_t m = 0; m < of.depth; ++m) {
          const double term = dy * slope_of(d, m, y, of.order);
          const int64_t at_x = (b * of.rows + i) * of.depth + m, at_z = (b * of.cols + j) * of.depth + m;
          dx[at_x] += term;
          dz[at_z] -= term;
          size_x[at_x] += std::fabs(term);
          size_z[at_z] += std::fabs(term);
        }
      }
  const auto check = [&](const char* name, const Array& got, const std::vector<double>& expected,
                         const std::vector<double>& size, int64_t terms) {
    const double slack = of.dtype() == float16 ? 6e-8 : 1e-300;
    for (int64_t e = 0; e < got.numel(); ++e)
      ASSERT_TRUE(
          near(got.at(e), expected[e], 1.01 * epsilon_of(of.dtype()), slack + error_of_sums(of, terms) * size[e]))
          << name << ", element " << e << ": " << got.at(e) << " and " << expected[e];
  };
  check("dx", of.dx, dx, size_x, of.cols);
  check("dz", of.dz, dz, size_z, of.rows);
}

inline void check(Rows& of) {
  SCOPED_TRACE(testing::Message() << name_of(of.dtype()) << ", order " << of.order << ", " << of.batch << " x ("
                                  << of.rows << ", " << of.cols << ") rows of " << of.depth);
  of.run();
  check_distances(of);
  check_gradients(of);
}

}  // namespace tern::kernels::cdist_test
