#pragma once
// Reductions as plain fp64 loops: the reference for the tests of both devices.

#include "tern/kernels/reduce.h"
#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

inline Shape reduced_shape(const Shape& shape, uint32_t dims) {
  Shape result = shape;
  for (size_t d = 0; d < shape.size(); ++d)
    if (dims >> d & 1) result[d] = 1;
  return result;
}

/// The element of the result that includes an element of x.
inline int64_t target_of(const Shape& shape, uint32_t dims, int64_t index) {
  int64_t position[kMaxDims] = {}, target = 0;
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    position[d] = index % shape[d];
    index /= shape[d];
  }
  for (size_t d = 0; d < shape.size(); ++d) target = dims >> d & 1 ? target : target * shape[d] + position[d];
  return target;
}

inline double start_of(Reduction r) {
  switch (r) {
    case Reduction::kMax:
      return -INFINITY;
    case Reduction::kMin:
      return INFINITY;
    case Reduction::kProduct:
    case Reduction::kAll:
      return 1;
    default:
      return 0;
  }
}
inline double combine(Reduction r, double a, double x) {
  switch (r) {
    case Reduction::kSum:
    case Reduction::kMean:
      return a + x;
    case Reduction::kMax:
      return std::isnan(a) || std::isnan(x) ? NAN : std::max(a, x);
    case Reduction::kMin:
      return std::isnan(a) || std::isnan(x) ? NAN : std::min(a, x);
    case Reduction::kProduct:
      return a * x;
    case Reduction::kSumOfSquares:
      return a + x * x;
    case Reduction::kAll:
      return a != 0 && x != 0;
    case Reduction::kAny:
      return a != 0 || x != 0;
  }
  return NAN;
}

/// Expects that y is the reduction of x over dims. product_floor: an absolute error allowed for products.
inline void expect_reduced(Reduction r, Array& x, uint32_t dims, Array& y, double product_floor = 0) {
  const DType out = y.dtype();
  std::vector<double> expected(y.numel(), start_of(r)), magnitude(y.numel(), 0);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t t = target_of(x.shape(), dims, i);
    expected[t] = combine(r, expected[t], x.at(i));
    magnitude[t] += r == Reduction::kSumOfSquares ? x.at(i) * x.at(i) : std::fabs(x.at(i));
  }
  int64_t count = 1;
  for (size_t d = 0; d < x.shape().size(); ++d) count *= dims >> d & 1 ? x.shape()[d] : 1;
  const double unit = x.dtype() == float64 ? 1e-13 : is_floating(x.dtype()) ? 6e-7 : 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    double scale = magnitude[i];
    if (r == Reduction::kMean) {
      expected[i] /= static_cast<double>(count);
      scale /= static_cast<double>(count);
    }
    if (r == Reduction::kProduct) scale = 10 * std::fabs(expected[i]);
    const double floor = r == Reduction::kProduct ? product_floor : 0;
    const bool exact = r == Reduction::kMax || r == Reduction::kMin || out == boolean;
    ASSERT_TRUE(
        near(y.at(i), round_to(out, expected[i]), exact ? 0 : 2 * epsilon_of(out), exact ? 0 : unit * scale + floor))
        << "reduction " << static_cast<int>(r) << " of " << name_of(x.dtype()) << " dims " << dims << " element " << i
        << ": got " << y.at(i) << ", expected " << expected[i];
  }
}

inline const std::vector<Reduction> kAllReductions = {Reduction::kSum, Reduction::kMean,    Reduction::kMax,
                                                      Reduction::kMin, Reduction::kProduct, Reduction::kSumOfSquares,
                                                      Reduction::kAll, Reduction::kAny};

inline DType result_type(Reduction r, DType x) {
  if (r == Reduction::kAll || r == Reduction::kAny) return boolean;
  if (is_floating(x) || r == Reduction::kMax || r == Reduction::kMin) return x;
  return r == Reduction::kMean ? float32 : int64;
}

/// Gradients are split between blocks and distributed to two processes, of which the second has the end of `a` and all
/// of `c`. The norm folded from their blocks must have the bits of the whole one, with and without a NaN in `c`. The
/// functions are the device's gradient_norm_blocks, gradient_norm_fold and gradient_norm.
template <class Blocks, class Fold, class Norm>
void expect_norm_of_parts(const Array& a, const Array& b, Array& c, int64_t block, Blocks&& find_blocks, Fold&& fold,
                          Norm&& norm) {
  const auto blocks_of = [&](const Array& x) { return (x.numel() + block - 1) / block; };
  const auto part = [](const ConstView& x, int64_t begin, int64_t end) {
    ConstView result = x;
    result.data = static_cast<const char*>(x.data) + begin * size_of(x.dtype);
    result.shape[0] = end - begin;
    return result;
  };
  const int64_t cut = 2 * block, first = blocks_of(a), middle = blocks_of(b), last = blocks_of(c);
  for (const bool bad : {true, false}) {
    c.set(7, bad ? NAN : 0);
    const ConstView whole[] = {a.cview(), b.cview(), c.cview()};
    const ConstView one[] = {part(whole[0], 0, cut), whole[1], part(whole[2], 0, 0)};
    const ConstView two[] = {part(whole[0], cut, a.numel()), part(whole[1], 0, 0), whole[2]};
    std::vector<GradientBlock> blocks(static_cast<size_t>(first + middle + last));
    find_blocks(one, 3, blocks.data());
    find_blocks(two, 3, blocks.data() + 2 + middle);
    std::vector<int64_t> order{0, 1};
    for (int64_t i = 2; i < first; ++i) order.push_back(middle + i);
    for (int64_t i = 0; i < middle; ++i) order.push_back(2 + i);
    for (int64_t i = 0; i < last; ++i) order.push_back(first + middle + i);
    GradientNorm folded{-1, -1, -1}, plain{-1, -1, -1};
    fold(blocks.data(), order.data(), static_cast<int64_t>(order.size()), &folded);
    norm(whole, 3, blocks.data(), &plain);
    EXPECT_EQ(std::memcmp(&folded, &plain, sizeof plain), 0);
    EXPECT_EQ(folded.first_bad, bad ? 2 : -1);
    fold(blocks.data(), order.data(), 0, &folded);
    EXPECT_EQ(folded.sum_of_squares, 0);
    EXPECT_EQ(folded.first_bad, -1);
  }
}

}  // namespace tern::kernels
