// Running products and linear recurrences: a warp or a block iterates over a row and carries the last value.

#include "tern/kernels/convert.h"
#include "tern/kernels/cuda/support/items.h"
#include "tern/kernels/cuda/support/scan.h"
#include "tern/kernels/scan.h"

namespace tern::kernels::cuda {
namespace {

constexpr int64_t kShortRow = 512;  // rows up to this length take one warp

/// The function x -> factor * x + term.
struct Affine {
  double factor, term;

  __device__ double operator()(double x) const { return factor * x + term; }
};
__device__ Affine shuffle_up(const Affine& f, int distance, CallSite where) {
  return {cuda::shuffle_up(f.factor, distance, where), cuda::shuffle_up(f.term, distance, where)};
}
__device__ Affine shuffle_from(const Affine& f, int from, CallSite where) {
  return {cuda::shuffle_from(f.factor, from, where), cuda::shuffle_from(f.term, from, where)};
}

struct Composition {
  __device__ Affine operator()(const Affine& earlier, const Affine& later) const {
    return {later.factor * earlier.factor, later(earlier.term)};
  }
};
struct Multiplication {
  template <class S>
  __device__ S operator()(S a, S b) const {
    return a * b;
  }
};

template <int kGroup, class S, class Op>
__device__ S scan_before(S value, S& total, Op op, S none) {
  if constexpr (kGroup == kWarpSize)
    return warp_scan_before(value, total, op, none);
  else
    return block_scan_before<kGroup>(value, total, op, none);
}

/// The type of products: integers wrap.
template <class T>
using ProductType = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
template <class T>
using ProductResult = std::conditional_t<std::is_integral_v<T>, int64_t, T>;

template <class T, bool kFlags, int kGroup>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads)
    cumulative_product_kernel(const T* x, int64_t rows, int64_t cols, ProductResult<T>* y) {
  using Group = RowGroup<kGroup>;
  using S = ProductType<T>;
  using Signed = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  const int64_t row = Group::first_row();
  if (row >= rows) return;
  S carry = 1;
  for (int64_t tile = 0; tile < cols; tile += kGroup * kItems) {
    const int64_t column = tile + Group::lane() * kItems;
    Signed values[kItems];
    load_items(x + row * cols, column, cols, values);
    S own = 1, total;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if constexpr (kFlags) values[i] = values[i] != 0;
      own *= static_cast<S>(values[i]);
    }
    S product = carry * scan_before<kGroup>(own, total, Multiplication{}, S(1));
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      product *= static_cast<S>(values[i]);
      values[i] = static_cast<Signed>(product);
    }
    store_items(y + row * cols, column, cols, values);
    carry *= total;
  }
}

/// Items of threads and tiles are numbered in the order of the recurrence; `column` is the first of this thread's in
/// the row's order. What is after the row's end is the identity.
template <class T, bool kReverse, int kGroup>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads)
    linear_recurrence_kernel(const T* a, const T* b, int64_t rows, int64_t cols, T* y) {
  using Group = RowGroup<kGroup>;
  constexpr int64_t kTile = Group::kSize * kItems;
  const int64_t row = Group::first_row(), tiles = (cols + kTile - 1) / kTile;
  if (row >= rows) return;
  const int lane = kReverse ? Group::kSize - 1 - Group::lane() : Group::lane();
  double carry = 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t column = (kReverse ? tiles - 1 - tile : tile) * kTile + lane * kItems;
    double factors[kItems], values[kItems];
    load_items(a + row * cols, column + (kReverse ? 1 : 0), cols, factors);
    load_items(b + row * cols, column, cols, values);
    Affine own{1, 0}, total;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = kReverse ? kItems - 1 - k : k;
      if (column + i == (kReverse ? cols - 1 : 0)) factors[i] = 0;
      if (column + i >= cols) factors[i] = 1;
      own = Composition{}(own, {factors[i], values[i]});
    }
    const Affine before = scan_before<kGroup>(own, total, Composition{}, Affine{1, 0});
    // Before the first tile there is no value: not even 0 times an infinite factor.
    double value = tile == 0 ? before.term : before(carry);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = kReverse ? kItems - 1 - k : k;
      value = Affine{factors[i], values[i]}(value);
      values[i] = value;
    }
    store_items(y + row * cols, column, cols, values);
    carry = tile == 0 ? total.term : total(carry);
  }
}

/// Calls run.operator()<threads of a row>().
template <class Run>
void for_row_length(int64_t cols, const Run& run) {
  if (cols <= kShortRow)
    run.template operator()<kWarpSize>();
  else
    run.template operator()<kRowThreads>();
}

}  // namespace

void cumulative_product(Stream stream, ConstView x, View y) {
  if (x.numel() == 0) return;
  const int64_t rows = x.rows(), cols = x.cols();
  dispatch_any(x.dtype, [&]<class Element>() {
    using T = Stored<Element>;
    constexpr bool kFlags = std::is_same_v<Element, bool>;
    for_row_length(cols, [&]<int kGroup>() {
      using Group = RowGroup<kGroup>;
      launch(cumulative_product_kernel<T, kFlags, kGroup>, Group::grid(rows), dim3(Group::kThreads), 0, stream,
             x.as<T>(), rows, cols, y.as<ProductResult<T>>());
    });
  });
}

void linear_recurrence(Stream stream, ConstView a, ConstView b, bool reverse, View y) {
  if (y.numel() == 0) return;
  const int64_t rows = y.rows(), cols = y.cols();
  dispatch_float(y.dtype, [&]<class T>() {
    for_row_length(cols, [&]<int kGroup>() {
      using Group = RowGroup<kGroup>;
      const auto kernel =
          reverse ? linear_recurrence_kernel<T, true, kGroup> : linear_recurrence_kernel<T, false, kGroup>;
      launch(kernel, Group::grid(rows), dim3(Group::kThreads), 0, stream, a.as<T>(), b.as<T>(), rows, cols, y.as<T>());
    });
  });
}

}  // namespace tern::kernels::cuda
