#pragma once
// The contract of reductions: cases, and plain fp64 loops as the reference.

#include "tern/kernels/reduce.h"
#include "tern/tests/kernels/contracts/target.h"

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

/// A value, and what rounding errors are relative to.
struct Reduced {
  double value, scale;
};
inline Reduced reduced(Reduction r, const std::vector<double>& x) {
  const auto sum = [&](auto&& f) {
    return std::accumulate(x.begin(), x.end(), 0.0, [&](double s, double v) { return s + f(v); });
  };
  const double n = static_cast<double>(x.size()), total = sum([](double v) { return v; });
  const double magnitudes = sum([](double v) { return std::fabs(v); }), squares = sum([](double v) { return v * v; });
  const auto is_nan = [](double v) { return std::isnan(v); };
  switch (r) {
    case Reduction::kSum:
      return {total, magnitudes};
    case Reduction::kMean:
      return {total / n, magnitudes / n};
    case Reduction::kMax:
      return {std::any_of(x.begin(), x.end(), is_nan) ? NAN : *std::max_element(x.begin(), x.end()), 0};
    case Reduction::kMin:
      return {std::any_of(x.begin(), x.end(), is_nan) ? NAN : *std::min_element(x.begin(), x.end()), 0};
    case Reduction::kProduct: {
      const double product = std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>());
      return {product, 10 * std::fabs(product)};
    }
    case Reduction::kSumOfSquares:
      return {squares, squares};
    case Reduction::kAll:
      return {std::all_of(x.begin(), x.end(), [](double v) { return v != 0; }) ? 1.0 : 0.0, 0};
    case Reduction::kAny:
      return {std::any_of(x.begin(), x.end(), [](double v) { return v != 0; }) ? 1.0 : 0.0, 0};
    case Reduction::kSumOfMagnitudes:
      return {magnitudes, magnitudes};
    case Reduction::kDeviations: {
      const double mean = total / n;
      // Each difference has the rounding error of its operands.
      const double error = sum([&](double v) { return std::fabs(v - mean) * (std::fabs(v) + std::fabs(mean)); });
      return {sum([&](double v) { return (v - mean) * (v - mean); }), error};
    }
    case Reduction::kLogSumExp: {
      const double largest = *std::max_element(x.begin(), x.end());
      return {largest + std::log(sum([&](double v) { return std::exp(v - largest); })), std::fabs(largest) + 3};
    }
  }
  return {};
}

/// Expects that y is the reduction of x over dims. product_floor: an absolute error allowed for products.
inline void expect_reduced(Reduction r, Array& x, uint32_t dims, Array& y, double product_floor = 0) {
  const DType out = y.dtype();
  std::vector<std::vector<double>> elements(y.numel());
  for (int64_t i = 0; i < x.numel(); ++i) elements[target_of(x.shape(), dims, i)].push_back(x.at(i));
  const double unit = x.dtype() == float64 ? 1e-13 : is_floating(x.dtype()) ? 6e-7 : 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const Reduced expected = reduced(r, elements[i]);
    const double floor = r == Reduction::kProduct ? product_floor : 0;
    const bool exact = r == Reduction::kMax || r == Reduction::kMin || out == boolean;
    ASSERT_TRUE(near(y.at(i), round_to(out, expected.value), exact ? 0 : 2 * epsilon_of(out),
                     exact ? 0 : unit * expected.scale + floor))
        << "reduction " << static_cast<int>(r) << " of " << name_of(x.dtype()) << " dims " << dims << " element " << i
        << ": got " << y.at(i) << ", expected " << expected.value;
  }
}

inline std::vector<Reduction> reductions_of(DType dtype) {
  const Reduction last = is_floating(dtype) ? Reduction::kLogSumExp : Reduction::kAny;
  std::vector<Reduction> all;
  for (int r = 0; r <= static_cast<int>(last); ++r) all.push_back(static_cast<Reduction>(r));
  return all;
}

inline DType result_type(Reduction r, DType x) {
  if (r == Reduction::kAll || r == Reduction::kAny) return boolean;
  if (is_floating(x) || r == Reduction::kMax || r == Reduction::kMin) return x;
  return r == Reduction::kMean ? float32 : int64;
}

struct ReduceCase {
  Shape shape;
  uint32_t dims;
};
/// Rows and columns, in parts and whole, for warps and for blocks, aligned or not; short rows, which the CPU
/// transposes.
inline const std::vector<ReduceCase> kReduceCases = {
    {{1}, 1},         {{}, 0},          {{70001}, 1},       {{200001}, 1},       {{2, 33001}, 2},
    {{2, 70001}, 2},  {{5, 5001}, 2},   {{20, 2048}, 2},    {{100, 131}, 2},     {{100, 1031}, 2},
    {{9, 127}, 2},    {{20001, 2}, 1},  {{70001, 2}, 1},    {{3001, 130}, 1},    {{4097, 40}, 1},
    {{257, 500}, 1},  {{257, 1500}, 1}, {{9, 4, 50, 3}, 5}, {{9, 4, 50, 3}, 10}, {{20, 1, 300}, 2},
    {{1003, 1}, 2},   {{1003, 2}, 2},   {{517, 3}, 2},      {{1030, 4}, 2},      {{131, 9}, 2},
    {{2, 75, 16}, 4}, {{77, 29}, 2},    {{130, 64}, 2},     {{40, 5, 3, 7}, 10}, {{2, 2, 2, 2, 2, 2, 2, 3}, 0xa5}};
/// Runs of elements: one result in parts, several runs per result, unaligned runs. Runs of results: whole, with a
/// ragged end, in parts.
inline const std::vector<ReduceCase> kVectorCases = {{{140001}, 1},  {{3, 7, 144}, 5}, {{3, 7, 131}, 5}, {{3, 131}, 2},
                                                     {{300, 64}, 1}, {{5, 70, 48}, 2}, {{9000, 32}, 1}};

inline void run_reduce(Call& on, Reduction r, ConstView x, uint32_t dims, View y) {
  reduce(on.stream(), r, x, dims, on.workspace(reduce_workspace(on.stream(), x, dims, y)), y);
}
inline void run_reduce(Reduction r, Array& x, uint32_t dims, Array& y) {
  run_kernel([&](Call& on) { run_reduce(on, r, on(x), dims, on(y)); });
}
inline void run_arg_extreme(Call& on, bool largest, ConstView x, int dim, View index) {
  arg_extreme(on.stream(), largest, x, dim, on.workspace(arg_extreme_workspace(on.stream(), x, dim, index)), index);
}
inline void check_reduce(Reduction r, Array& x, uint32_t dims, DType out, Order out_order = Order::kContiguous) {
  Array y(out, reduced_shape(x.shape(), dims), out_order);
  expect_same_in_every_run({&y}, [&](Call& on) { run_reduce(on, r, on(x), dims, on(y)); });
  expect_reduced(r, x, dims, y, out == float16 ? 6.1e-8 : 1e-37);  // products may be subnormal
}

/// Few distinct values, so that there are ties, of which the first must be selected. Some are NaN.
inline void fill_with_ties(Array& x, std::mt19937_64& random) {
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, static_cast<double>(random() % 40) - 20);
  if (is_floating(x.dtype()))
    for (int64_t i = random() % 101; i < x.numel(); i += 101) x.set(i, NAN);
}

inline void check_arg_extreme(bool largest, Array& x, int dim, Order order = Order::kContiguous) {
  const Shape& shape = x.shape();
  Array index(int64, reduced_shape(shape, 1u << dim), order);
  expect_same_in_every_run({&index}, [&](Call& on) { run_arg_extreme(on, largest, on(x), dim, on(index)); });
  int64_t below = 1;
  for (size_t d = dim + 1; d < shape.size(); ++d) below *= shape[d];
  for (int64_t o = 0; o < index.numel(); ++o) {
    const int64_t first = o / below * below * shape[dim] + o % below;
    int64_t best = 0;
    for (int64_t k = 1; k < shape[dim]; ++k) {
      const double a = x.at(first + k * below), b = x.at(first + best * below);
      if ((largest ? a > b : a < b) || (std::isnan(a) && !std::isnan(b))) best = k;
    }
    ASSERT_EQ(index.at(o), best) << name_of(x.dtype()) << " dim " << dim << " largest " << largest;
  }
}

/// The norm of all arrays; CUDA's kernels leave the ticket 0.
inline GradientNorm gradient_norm_of(const std::vector<Array>& arrays) {
  const auto count = static_cast<int64_t>(arrays.size());
  GradientNorm norm{-1, -1, -1};
  uint32_t ticket = 0;
  run_kernel([&](Call& on) {
    int64_t elements = 0;
    std::vector<ConstView> views;
    for (const Array& a : arrays) elements += views.emplace_back(on(a)).numel();
    void* const workspace = on.workspace(gradient_norm_workspace(on.stream(), elements, count));
    gradient_norm(on.stream(), views.data(), count, workspace, on.memory(&ticket), on.memory(&norm));
  });
  EXPECT_EQ(ticket, 0u);
  return norm;
}
inline double sum_of_squares(const std::vector<Array>& arrays) {
  double sum = 0;
  for (const Array& a : arrays)
    for (const double v : a.values()) sum += v * v;
  return sum;
}

/// Gradients are split between blocks and distributed to two processes, of which the second has the end of `a` and all
/// of `c`. The norm folded from their blocks must have the bits of the whole one, with and without a NaN in `c`.
inline void expect_norm_of_parts(const Array& a, const Array& b, Array& c) {
  const int64_t block = target().is_cpu() ? kGradientNormBlockOnCpu : kGradientNormBlock;
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
    std::vector<int64_t> order{0, 1};
    for (int64_t i = 2; i < first; ++i) order.push_back(middle + i);
    for (int64_t i = 0; i < middle; ++i) order.push_back(2 + i);
    for (int64_t i = 0; i < last; ++i) order.push_back(first + middle + i);
    std::vector<GradientBlock> blocks(order.size());
    GradientNorm folded{-1, -1, -1}, plain{-1, -1, -1}, none{-1, -1, -1};
    uint32_t ticket = 0;
    run_kernel([&](Call& on) {
      const Stream stream = on.stream();
      const auto count = static_cast<int64_t>(order.size());
      const ConstView whole[] = {on(a), on(b), on(c)};
      const ConstView one[] = {part(whole[0], 0, cut), whole[1], part(whole[2], 0, 0)};
      const ConstView two[] = {part(whole[0], cut, a.numel()), part(whole[1], 0, 0), whole[2]};
      GradientBlock* const found = on.memory(blocks.data(), count);
      const int64_t* const places = on.memory(order.data(), count);
      gradient_norm_blocks(stream, one, 3, found);
      gradient_norm_blocks(stream, two, 3, found + 2 + middle);
      gradient_norm_fold(stream, found, places, count, on.memory(&folded));
      gradient_norm_fold(stream, found, places, 0, on.memory(&none));
      void* const workspace = on.workspace(gradient_norm_workspace(stream, a.numel() + b.numel() + c.numel(), 3));
      gradient_norm(stream, whole, 3, workspace, on.memory(&ticket), on.memory(&plain));
    });
    EXPECT_EQ(std::memcmp(&folded, &plain, sizeof plain), 0);
    EXPECT_EQ(folded.first_bad, bad ? 2 : -1);
    EXPECT_EQ(none.sum_of_squares, 0);
    EXPECT_EQ(none.first_bad, -1);
  }
}

}  // namespace tern::kernels
