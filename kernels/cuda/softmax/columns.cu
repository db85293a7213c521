// Softmax and log-softmax over a dimension whose elements are not neighbours. A block computes 32 columns; each of its
// warps takes every n-th element of them, and the warps join through shared memory.

#include "tern/kernels/softmax.h"

#include <cmath>

#include "tern/kernels/cuda/support/softmax_rows.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kWarps = 8;

/// A thread's column of contiguous [outer, cols, inner], counted over outer and inner.
struct Column {
  int64_t offset, cols, inner;
  int lane, warp;
  bool exists;

  __device__ Column(int64_t columns, int64_t column_size, int64_t inner_size) : cols(column_size), inner(inner_size) {
    lane = static_cast<int>(threadIdx.x) % kWarpSize;
    warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
    exists = column < columns;
    offset = column / inner * cols * inner + column % inner;
  }
  /// Calls body(offset) for the elements of the thread's warp.
  template <class Body>
  __device__ void for_each(const Body& body) const {
    if (!exists) return;
    for (int64_t k = warp; k < cols; k += kWarps) body(offset + k * inner);
  }
};

/// Joins the warps' states of each column: the same result for all of them.
template <class State, class Join>
__device__ State join_warps(const Column& column, State state, State (*shared)[kWarpSize], const Join& join) {
  shared[column.warp][column.lane] = state;
  block_barrier();
  state = shared[0][column.lane];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) state = join(state, shared[w][column.lane]);
  return state;
}

template <class F>
struct ColumnState {
  F largest, sum;  // as RowExponentials
};

template <class T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    softmax_columns_kernel(bool log, const T* x, T* y, int64_t columns, int64_t cols, int64_t inner) {
  using F = ComputeType<T>;
  using State = ColumnState<F>;
  TERN_SHARED(State, shared, [kWarps][kWarpSize]);
  const Column column(columns, cols, inner);
  RowExponentials<F> own;
  column.for_each([&](int64_t at) {
    const Vector<F, 1> value = {static_cast<F>(load_one(x + at))};
    own.add(value);
  });
  const State all = join_warps(column, State{own.largest, own.sum}, shared, [](const State& a, const State& b) {
    const F top = a.largest > b.largest ? a.largest : b.largest;
    if (top == -kInfinity<F>) return State{top, a.sum + b.sum};
    const F first = a.largest == top ? a.sum : a.sum * std::exp(a.largest - top);
    return State{top, first + (b.largest == top ? b.sum : b.sum * std::exp(b.largest - top))};
  });
  // A column that contains only -infinity gives NaN.
  const F sum = all.largest == -kInfinity<F> ? std::numeric_limits<F>::quiet_NaN() : all.sum;
  const F factor = F(1) / sum, log_sum = std::log(sum);
  column.for_each([&](int64_t at) {
    const F value = static_cast<F>(load_one(x + at)) - all.largest;
    store_one(y + at, static_cast<T>(log ? value - log_sum : std::exp(value) * factor));
  });
}

template <class T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    softmax_columns_backward_kernel(bool log, const T* y, const T* dy, T* dx, int64_t columns, int64_t cols,
                                    int64_t inner) {
  using F = ComputeType<T>;
  TERN_SHARED(F, shared, [kWarps][kWarpSize]);
  const Column column(columns, cols, inner);
  F own = 0;
  column.for_each([&](int64_t at) {
    const F gradient = static_cast<F>(load_one(dy + at));
    own += log ? gradient : gradient * static_cast<F>(load_one(y + at));
  });
  const F total = join_warps(column, own, shared, [](F a, F b) { return a + b; });
  column.for_each([&](int64_t at) {
    const F output = static_cast<F>(load_one(y + at)), gradient = static_cast<F>(load_one(dy + at));
    store_one(dx + at, static_cast<T>(log ? gradient - std::exp(output) * total : output * (gradient - total)));
  });
}

dim3 column_grid(const ConstView& x) { return dim3(grid_blocks(ceil_div(x.shape[0] * x.shape[2], kWarpSize))); }

}  // namespace

void softmax_columns_forward(Stream stream, bool log, ConstView x, View y) {
  if (x.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    launch(softmax_columns_kernel<T>, column_grid(x), dim3(kWarps * kWarpSize), 0, stream, log, x.as<T>(), y.as<T>(),
           x.shape[0] * x.shape[2], x.shape[1], x.shape[2]);
  });
}

void softmax_columns_backward(Stream stream, bool log, ConstView y, ConstView dy, View dx) {
  if (y.numel() == 0) return;
  dispatch_float(y.dtype, [&]<class T>() {
    launch(softmax_columns_backward_kernel<T>, column_grid(y), dim3(kWarps * kWarpSize), 0, stream, log, y.as<T>(),
           dy.as<T>(), dx.as<T>(), y.shape[0] * y.shape[2], y.shape[1], y.shape[2]);
  });
}

}  // namespace tern::kernels::cuda
