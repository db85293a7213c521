// Distances of rows: a block of threads has a square of pairs, and each thread some rows and columns of it, whose
// states stay in registers. For a gradient a block has some elements of some rows and goes over all rows of the other
// matrix.

#include "tern/kernels/cdist.h"

#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/distance_orders.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreadsAcross = 16, kThreadsOfBlock = kThreadsAcross * kThreadsAcross;
constexpr int kOfThread = 4;                        // rows, and columns, of a thread
constexpr int kSide = kThreadsAcross * kOfThread;   // rows, and columns, of a block
constexpr int kDepth = 16;                          // elements of a row that are added up at a time
constexpr int kElements = 2;                        // of a row of the gradient, of a thread
constexpr int kWidth = kThreadsAcross * kElements;  // elements of a row of the gradient, of a block
constexpr int kOthers = 16;                         // rows of the other matrix that are added up at a time

/// x: [batch, rows, depth], z: [batch, cols, depth].
template <class T>
struct Matrices {
  const T *x, *z;
  int64_t rows, cols, depth;

  int64_t down() const { return ceil_div(rows, kSide); }
  int64_t across() const { return ceil_div(cols, kSide); }
};

/// Copies [rows, width) of a matrix with rows of `stride` elements to to[column][row], with 0 for what lies outside.
template <class T, class F, int kRows, int kColumns>
__device__ void load_columns_of(const T* from, int64_t stride, int64_t rows, int64_t width, F (&to)[kColumns][kRows]) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns; i += kThreadsOfBlock) {
    const int row = i / kColumns, column = i % kColumns;
    to[column][row] = row < rows && column < width ? to_compute(load_one(from + row * stride + column)) : F(0);
  }
}
/// The same to to[row][column].
template <class T, class F, int kRows, int kColumns>
__device__ void load_rows_of(const T* from, int64_t stride, int64_t rows, int64_t width, F (&to)[kRows][kColumns]) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns; i += kThreadsOfBlock) {
    const int row = i / kColumns, column = i % kColumns;
    to[row][column] = row < rows && column < width ? to_compute(load_one(from + row * stride + column)) : F(0);
  }
}

/// Calls store(index in the matrix of pairs, state) for all pairs of the block.
template <template <class> class State, class T, class Order, class Store>
__device__ void for_each_state(const Matrices<T>& of, const Order& order, const Store& store) {
  using F = ComputeType<T>;
  TERN_SHARED(F, x, [kDepth][kSide]);
  TERN_SHARED(F, z, [kDepth][kSide]);
  const int64_t across = ceil_div(of.cols, kSide), down = ceil_div(of.rows, kSide), block = blockIdx.x;
  const int64_t batch = block / (across * down);
  const int64_t first_row = block / across % down * kSide, first_column = block % across * kSide;
  const int row = static_cast<int>(threadIdx.x) / kThreadsAcross * kOfThread;
  const int column = static_cast<int>(threadIdx.x) % kThreadsAcross * kOfThread;
  State<F> states[kOfThread][kOfThread];
  for (int64_t begin = 0; begin < of.depth; begin += kDepth) {
    load_columns_of(of.x + (batch * of.rows + first_row) * of.depth + begin, of.depth, of.rows - first_row,
                    of.depth - begin, x);
    load_columns_of(of.z + (batch * of.cols + first_column) * of.depth + begin, of.depth, of.cols - first_column,
                    of.depth - begin, z);
    block_barrier();
    const int depth = of.depth - begin < kDepth ? static_cast<int>(of.depth - begin) : kDepth;
    State<F> sums[kOfThread][kOfThread];
    for (int m = 0; m < depth; ++m) {
#pragma unroll
      for (int r = 0; r < kOfThread; ++r)
#pragma unroll
        for (int c = 0; c < kOfThread; ++c) sums[r][c].add(x[m][row + r] - z[m][column + c], order);
    }
#pragma unroll
    for (int r = 0; r < kOfThread; ++r)
#pragma unroll
      for (int c = 0; c < kOfThread; ++c) states[r][c].join(sums[r][c]);
    block_barrier();
  }
#pragma unroll
  for (int r = 0; r < kOfThread; ++r)
#pragma unroll
    for (int c = 0; c < kOfThread; ++c) {
      const int64_t i = first_row + row + r, j = first_column + column + c;
      if (i < of.rows && j < of.cols) store((batch * of.rows + i) * of.cols + j, states[r][c]);
    }
}

template <class T, class Order>
__global__ void __launch_bounds__(kThreadsOfBlock)
    cdist_kernel(TERN_GRID_CONSTANT(Matrices<T>) of, TERN_GRID_CONSTANT(Order) order, T* y) {
  for_each_state<Order::template State>(
      of, order, [&](int64_t i, const auto& state) { store_one(y + i, from_compute<T>(order.finish(state.value()))); });
}

/// The weights and scales of all pairs, and the gradient of the distances.
template <class T>
struct Pairs {
  using F = ComputeType<T>;
  const T* dy;
  F *weights, *scales;

  template <class Order>
  __device__ void write(const Order& order, int64_t i, F value, F count) const {
    const distance::Pair<F> pair = order.pair(value, count, to_compute(load_one(dy + i)));
    store_one(weights + i, pair.weight);
    if constexpr (Order::kUsesScale) store_one(scales + i, pair.scale);
  }
};

template <class T, class Order>
__global__ void __launch_bounds__(kThreadsOfBlock)
    cdist_states_kernel(TERN_GRID_CONSTANT(Matrices<T>) of, TERN_GRID_CONSTANT(Order) order, Pairs<T> pairs) {
  for_each_state<Order::template Backward>(
      of, order, [&](int64_t i, const auto& state) { pairs.write(order, i, state.value(), state.count()); });
}
template <class T, class Order>
__global__ void __launch_bounds__(kRowThreads)
    cdist_pairs_kernel(TERN_GRID_CONSTANT(Order) order, const T* y, int64_t count, Pairs<T> pairs) {
  using F = ComputeType<T>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (i < count) pairs.write(order, i, to_compute(load_one(y + i)), F(0));
}

/// Minimum number of blocks per multiprocessor; 0: ptxas chooses two, and would spill a few registers of these.
template <class T, class Order>
constexpr int gradient_blocks() {
  const bool one = std::is_same_v<Order, distance::Chebyshev> || std::is_same_v<T, double>;
  return one ? 1 : 0;
}

/// The gradient of x, whose rows are the rows of the matrix of pairs, or its columns.
template <class T, class Order>
__global__ void __launch_bounds__(kThreadsOfBlock, gradient_blocks<T, Order>())
    cdist_gradient_kernel(TERN_GRID_CONSTANT(Matrices<T>) of, TERN_GRID_CONSTANT(Order) order, Pairs<T> pairs,
                          bool is_row_of_pairs, T* dx) {
  using F = ComputeType<T>;
  TERN_SHARED(F, others, [kOthers][kWidth]);
  TERN_SHARED(F, weights, [kOthers][kSide]);
  TERN_SHARED(F, scales, [kOthers][kSide]);
  const int64_t across = ceil_div(of.depth, kWidth), down = ceil_div(of.rows, kSide), block = blockIdx.x;
  const int64_t batch = block / (across * down);
  const int64_t first_row = block / across % down * kSide, first_column = block % across * kWidth;
  const int row = static_cast<int>(threadIdx.x) / kThreadsAcross * kOfThread;
  const int column = static_cast<int>(threadIdx.x) % kThreadsAcross * kElements;
  const int64_t height = of.rows - first_row, width = of.depth - first_column;
  F own[kOfThread][kElements], sums[kOfThread][kElements] = {};
#pragma unroll
  for (int r = 0; r < kOfThread; ++r)
#pragma unroll
    for (int m = 0; m < kElements; ++m)
      own[r][m] = row + r < height && column + m < width
                      ? to_compute(load_one(of.x + (batch * of.rows + first_row + row + r) * of.depth + first_column +
                                            column + m))
                      : F(0);
  for (int64_t begin = 0; begin < of.cols; begin += kOthers) {
    const int64_t count = of.cols - begin;
    load_rows_of(of.z + (batch * of.cols + begin) * of.depth + first_column, of.depth, count, width, others);
    const auto load = [&](const F* from, F(&to)[kOthers][kSide]) {
      from += batch * of.rows * of.cols;
      if (is_row_of_pairs)
        load_columns_of(from + first_row * of.cols + begin, of.cols, height, count, to);
      else
        load_rows_of(from + begin * of.rows + first_row, of.rows, count, height, to);
    };
    load(pairs.weights, weights);
    if constexpr (Order::kUsesScale) load(pairs.scales, scales);
    block_barrier();
    F part[kOfThread][kElements] = {};
    for (int o = 0; o < kOthers && o < count; ++o) {
#pragma unroll
      for (int r = 0; r < kOfThread; ++r) {
        const F weight = weights[o][row + r];
        F scale = 0;
        if constexpr (Order::kUsesScale) scale = scales[o][row + r];
#pragma unroll
        for (int m = 0; m < kElements; ++m)
          part[r][m] += order.gradient(own[r][m] - others[o][column + m], weight, scale);
      }
    }
#pragma unroll
    for (int r = 0; r < kOfThread; ++r)
#pragma unroll
      for (int m = 0; m < kElements; ++m) sums[r][m] += part[r][m];
    block_barrier();
  }
#pragma unroll
  for (int r = 0; r < kOfThread; ++r)
#pragma unroll
    for (int m = 0; m < kElements; ++m)
      if (row + r < height && column + m < width)
        store_one(dx + (batch * of.rows + first_row + row + r) * of.depth + first_column + column + m,
                  from_compute<T>(sums[r][m]));
}

template <class T>
__global__ void __launch_bounds__(kRowThreads) cdist_no_gradient_kernel(T* dx, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (i < count) store_one(dx + i, from_compute<T>(ComputeType<T>(0)));
}

template <class T, class Order>
void find_pairs(Stream stream, const Order& order, const Matrices<T>& of, ConstView y, const Pairs<T>& pairs) {
  if constexpr (Order::kNeedsState)
    launch(cdist_states_kernel<T, Order>, dim3(grid_blocks(y.size(0) * of.down() * of.across())), kThreadsOfBlock, 0,
           stream, of, order, pairs);
  else
    launch(cdist_pairs_kernel<T, Order>, dim3(grid_blocks(ceil_div(y.numel(), kRowThreads))), kRowThreads, 0, stream,
           order, y.as<T>(), y.numel(), pairs);
}

template <class T, class Order>
void find_gradient(Stream stream, const Order& order, const Matrices<T>& of, const Pairs<T>& pairs,
                   bool is_row_of_pairs, View dx) {
  if (!dx || dx.numel() == 0) return;
  if constexpr (Order::kHasGradient)
    launch(cdist_gradient_kernel<T, Order>, dim3(grid_blocks(dx.size(0) * of.down() * ceil_div(of.depth, kWidth))),
           kThreadsOfBlock, 0, stream, of, order, pairs, is_row_of_pairs, dx.as<T>());
  else
    launch(cdist_no_gradient_kernel<T>, dim3(grid_blocks(ceil_div(dx.numel(), kRowThreads))), kRowThreads, 0, stream,
           dx.as<T>(), dx.numel());
}

template <class T>
Matrices<T> matrices_of(ConstView x, ConstView z) {
  return {x.as<T>(), z.as<T>(), x.size(1), z.size(1), x.size(2)};
}

}  // namespace

void cdist_forward(Stream stream, double order, ConstView x, ConstView z, View y) {
  if (y.numel() == 0) return;
  distance::with_order(order, [&]<class Order>(const Order& of) {
    dispatch_float(y.dtype, [&]<class T>() {
      const Matrices<T> matrices = matrices_of<T>(x, z);
      launch(cdist_kernel<T, Order>, dim3(grid_blocks(y.size(0) * matrices.down() * matrices.across())),
             kThreadsOfBlock, 0, stream, matrices, of, y.as<T>());
    });
  });
}

int64_t cdist_backward_workspace(Stream, double order, ConstView y) {
  const int64_t bytes = y.numel() * static_cast<int64_t>(y.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float));
  int64_t numbers = 0;
  distance::with_order(order, [&]<class Order>(const Order&) {
    numbers = !Order::kHasGradient ? 0 : Order::kUsesScale ? 2 : 1;
  });
  return numbers * bytes;
}

void cdist_backward(Stream stream, double order, ConstView x, ConstView z, ConstView y, ConstView dy, void* workspace,
                    View dx, View dz) {
  distance::with_order(order, [&]<class Order>(const Order& of) {
    dispatch_float(y.dtype, [&]<class T>() {
      using F = ComputeType<T>;
      const Pairs<T> pairs{dy.as<T>(), static_cast<F*>(workspace), static_cast<F*>(workspace) + y.numel()};
      if constexpr (Order::kHasGradient)
        if (y.numel() > 0) find_pairs<T>(stream, of, matrices_of<T>(x, z), y, pairs);
      find_gradient<T>(stream, of, matrices_of<T>(x, z), pairs, true, dx);
      find_gradient<T>(stream, of, matrices_of<T>(z, x), pairs, false, dz);
    });
  });
}

}  // namespace tern::kernels::cuda
