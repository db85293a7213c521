#pragma once
// Code shared by the row kernels: the assignment of rows to threads, access to their elements 16 bytes at a time, and
// the choice of a kernel shape that keeps a whole row in registers.

#include <bit>
#include <limits>

#include "tern/kernels/cuda/support/convert.h"
#include "tern/kernels/cuda/support/reduce.h"
#include "tern/kernels/cuda/support/vector.h"
#include "tern/kernels/view.h"

namespace tern::kernels::cuda {

inline constexpr int kRowThreads = 256;  // threads per block where every warp has a row, and of most other blocks

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// kGroup threads work on one row: a warp, eight of which form a block, or a whole block. Rows are assigned to the
/// grid's groups in turn, so all threads of a group have the same rows and may call reduce() together.
template <int kGroup>
struct RowGroup {
  static constexpr int kSize = kGroup;
  static constexpr int kGroups = kGroup == kWarpSize ? kRowThreads / kWarpSize : 1;
  static constexpr int kThreads = kGroups * kGroup;  // per block

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kGroup; }
  __device__ static int group() { return static_cast<int>(threadIdx.x) / kGroup; }
  __device__ static int64_t first_row() { return static_cast<int64_t>(blockIdx.x) * kGroups + group(); }
  __device__ static int64_t row_step() { return static_cast<int64_t>(gridDim.x) * kGroups; }
  /// A grid with one group per row.
  static dim3 grid(int64_t rows) { return dim3(grid_blocks(ceil_div(rows, kGroups))); }

  template <class F, class Op>
  __device__ static F reduce(F value, Op op, F none, CallSite where = CallSite::current()) {
    if constexpr (kGroup == kWarpSize)
      return warp_reduce(value, op, where);
    else
      return block_reduce<kGroup>(value, op, none, where);
  }
  template <class F>
  __device__ static F sum(F value, CallSite where = CallSite::current()) {
    return reduce(value, Sum{}, F(0), where);
  }
  template <class F>
  __device__ static F max(F value, CallSite where = CallSite::current()) {
    return reduce(value, Maximum{}, -std::numeric_limits<F>::infinity(), where);
  }
};

/// Loads one element of global memory; the emulator counts the access.
template <class T>
__device__ T load_one(const T* from, CallSite where = CallSite::current()) {
  return load_vector<1>(from, where).v[0];
}
template <class T>
__device__ void store_one(T* to, std::type_identity_t<T> value, CallSite where = CallSite::current()) {
  store_vector(to, Vector<T, 1>{{value}}, where);
}

/// Minimum number of blocks of a light kernel per multiprocessor, which limits registers, by the bytes of a row that
/// each thread holds. One for double, whose functions need many registers.
template <class T>
constexpr int blocks_together(int threads, int bytes = 0) {
  return sizeof(T) == 8 ? 1 : (bytes <= 96 ? 768 : 512) / threads;
}

/// Number of elements from a 16-byte boundary to the row's start: vectors that start at columns k * width - shift are
/// aligned, and all of them except the first and the last are inside the row.
template <class T>
__device__ int row_shift(const T* row) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % vector_width<T>);
}

/// Loads elements [first, last) of a vector one by one and sets the others to `outside`. Not inlined, because the
/// copies in every access would take the registers that hold the row.
template <class T>
__device__ __attribute__((noinline)) Vector<uint32_t, 4> load_partial(const T* from, int first, int last, T outside) {
  Vector<T, vector_width<T>> result;
#pragma unroll
  for (int i = 0; i < vector_width<T>; ++i) result.v[i] = i >= first && i < last ? load_one(from + i) : outside;
  return std::bit_cast<Vector<uint32_t, 4>>(result);
}
template <class T>
__device__ __attribute__((noinline)) void store_partial(T* to, int first, int last, Vector<uint32_t, 4> words) {
  const auto value = std::bit_cast<Vector<T, vector_width<T>>>(words);
#pragma unroll
  for (int i = 0; i < vector_width<T>; ++i)
    if (i >= first && i < last) store_one(to + i, value.v[i]);
}

/// The elements of a vector starting at `column` that are inside the row.
template <class Index>
__device__ int first_inside(Index column) {
  return column < 0 ? static_cast<int>(-column) : 0;
}
template <class Index>
__device__ int last_inside(Index column, Index cols, int width) {
  return cols - column < width ? static_cast<int>(cols - column) : width;
}

/// Loads columns [column, column + width) of a row, by one access if all of them exist and are aligned. Columns outside
/// [0, cols) become `outside`.
template <class T, class Index>
__device__ Vector<T, vector_width<T>> load_columns(const T* row, Index column, Index cols, T outside = T()) {
  constexpr int kWidth = vector_width<T>;
  const T* from = row + column;
  if (column >= 0 && column + kWidth <= cols && aligned16(from)) return load_vector<kWidth>(from);
  return std::bit_cast<Vector<T, kWidth>>(
      load_partial(from, first_inside(column), last_inside(column, cols, kWidth), outside));
}

/// Stores the columns that exist.
template <class T, class Index>
__device__ void store_columns(T* row, Index column, Index cols, const Vector<T, vector_width<T>>& value) {
  constexpr int kWidth = vector_width<T>;
  T* to = row + column;
  if (column >= 0 && column + kWidth <= cols && aligned16(to)) return store_vector(to, value);
  store_partial(to, first_inside(column), last_inside(column, cols, kWidth), std::bit_cast<Vector<uint32_t, 4>>(value));
}

/// Calls body(first column, values) for this thread's vectors of a row, loading four at a time. Columns outside the row
/// are `outside`.
template <class Group, class T, class Body>
__device__ void for_each_vector(const T* row, int64_t cols, T outside, Body&& body) {
  constexpr int kWidth = vector_width<T>, kAhead = 4;
  constexpr int64_t kStep = static_cast<int64_t>(Group::kSize) * kWidth;
  for (int64_t column = Group::lane() * kWidth - row_shift(row); column < cols; column += kAhead * kStep) {
    Vector<T, kWidth> raw[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) raw[a] = load_columns(row, column + a * kStep, cols, outside);
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
      if (column + a * kStep < cols) body(column + a * kStep, to_compute(raw[a]));
  }
}

/// Calls f.template operator()<kGroup, kVectors>() with the smallest kernel shape in which kGroup threads hold
/// `columns` columns in registers, kVectors vectors each. Returns false without a call for a longer row. With these
/// shapes a thread needs at most about 100 registers up to 4096 columns.
template <class T, class F>
bool dispatch_row_shape(int64_t columns, F&& f) {
  constexpr int kWidth = vector_width<T>;
  const auto try_shape = [&]<int kGroup, int kElements>() {
    if (columns > kGroup * kElements) return false;
    f.template operator()<kGroup, kElements / kWidth>();
    return true;
  };
  if (try_shape.template operator()<kWarpSize, 8>() || try_shape.template operator()<kWarpSize, 16>()) return true;
  if constexpr (sizeof(T) == 2)
    if (try_shape.template operator()<kWarpSize, 24>()) return true;
  if (try_shape.template operator()<128, 8>() || try_shape.template operator()<128, 16>()) return true;
  if (try_shape.template operator()<kRowThreads, 16>()) return true;
  if constexpr (sizeof(T) <= 4) {  // more doubles would not fit
    if (try_shape.template operator()<kRowThreads, 24>()) return true;
    if (try_shape.template operator()<kRowThreads, 32>()) return true;
  }
  return false;
}

}  // namespace tern::kernels::cuda
