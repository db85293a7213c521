// Running extremes and their positions: a warp or a block iterates over a row and carries the best element; a few long
// rows are divided into parts, whose best elements are found first.

#include "tern/kernels/convert.h"
#include "tern/kernels/cuda/support/items.h"
#include "tern/kernels/cuda/support/scan.h"
#include "tern/kernels/scan.h"

namespace tern::kernels::cuda {
namespace {

constexpr int64_t kShortRow = 512;  // rows up to this length take one warp
constexpr int64_t kPart = 16384;
constexpr int64_t kManyRows = 256;  // this many rows occupy a device: they are not divided

/// The best element so far; column -1: none.
template <class F>
struct Best {
  F value;
  int64_t column;
};
template <class F>
__device__ Best<F> shuffle_up(const Best<F>& best, int distance, CallSite where) {
  return {cuda::shuffle_up(best.value, distance, where), cuda::shuffle_up(best.column, distance, where)};
}
template <class F>
__device__ Best<F> shuffle_from(const Best<F>& best, int from, CallSite where) {
  return {cuda::shuffle_from(best.value, from, where), cuda::shuffle_from(best.column, from, where)};
}

/// The better of two elements, of equals the one with the larger column. A NaN exceeds all other values.
template <class F>
struct Better {
  bool largest;

  __device__ Best<F> operator()(const Best<F>& a, const Best<F>& b) const {
    const bool b_is_last = b.column > a.column;
    const bool later_is_better = b_is_last ? replaces(b.value, a.value) : replaces(a.value, b.value);
    const bool takes_b = b.column >= 0 && (a.column < 0 || later_is_better == b_is_last);
    return {takes_b ? b.value : a.value, takes_b ? b.column : a.column};
  }
  __device__ bool replaces(F later, F earlier) const {
    return later != later || (largest ? later >= earlier : later <= earlier);
  }
};

struct Call {
  int64_t rows, cols, parts;  // parts of a row
  bool largest;

  __device__ int64_t begin(int64_t part) const { return part % parts * kPart; }
  __device__ int64_t end(int64_t part) const {
    return parts == 1 || begin(part) + kPart > cols ? cols : begin(part) + kPart;
  }
};

/// The type in which elements are compared.
template <class T>
using Compared = std::conditional_t<std::is_integral_v<T> && sizeof(T) <= 4, int32_t, ComputeType<T>>;

/// parts[i] = the best element of part i, counted over all rows. Those of a row's last part, which may have columns
/// after the row's end, are not used.
template <class T, bool kFlags>
__global__ void __launch_bounds__(kRowThreads)
    part_extremes_kernel(const T* x, TERN_GRID_CONSTANT(Call) call, Best<Compared<T>>* parts) {
  using F = Compared<T>;
  const int64_t part = blockIdx.x, end = call.end(part);
  const T* const row = x + part / call.parts * call.cols;
  const Better<F> better{call.largest};
  Best<F> best{F(0), -1};
  for (int64_t column = call.begin(part) + threadIdx.x * kItems; column < end; column += kRowThreads * kItems) {
    F values[kItems];
    load_items(row, column, end, values);
#pragma unroll
    for (int i = 0; i < kItems; ++i) best = better(best, {kFlags ? F(values[i] != F(0)) : values[i], column + i});
  }
  Best<F> all;
  block_scan_before<kRowThreads>(best, all, better, Best<F>{F(0), -1});
  if (threadIdx.x == 0) {
    store_one(&parts[part].value, all.value);
    store_one(&parts[part].column, all.column);
  }
}

/// `parts`: the best element of each part; unused when rows are not divided.
template <class T, bool kFlags, int kGroup>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads)
    cumulative_extreme_kernel(const T* x, TERN_GRID_CONSTANT(Call) call, const Best<Compared<T>>* parts, T* y,
                              int64_t* index) {
  using Group = RowGroup<kGroup>;
  using F = Compared<T>;
  const int64_t part = Group::first_row();
  if (part >= call.rows * call.parts) return;
  const Better<F> better{call.largest};
  const Best<F> none{F(0), -1};
  const auto scan_before = [&](const Best<F>& best, Best<F>& total) {
    if constexpr (kGroup == kWarpSize)
      return warp_scan_before(best, total, better, none);
    else
      return block_scan_before<kGroup>(best, total, better, none);
  };
  Best<F> carry = none;
  if (call.parts > 1) {
    const int64_t first = part - part % call.parts;
    Best<F> before = none;
    for (int64_t p = first + Group::lane(); p < part; p += kGroup)
      before = better(before, {load_one(&parts[p].value), load_one(&parts[p].column)});
    scan_before(before, carry);
  }
  const int64_t start = part / call.parts * call.cols, end = call.end(part);
  for (int64_t tile = call.begin(part); tile < end; tile += kGroup * kItems) {
    const int64_t column = tile + Group::lane() * kItems;
    F values[kItems];
    int64_t columns[kItems];
    load_items(x + start, column, end, values);
    Best<F> own = none, total;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if constexpr (kFlags) values[i] = values[i] != F(0);
      own = better(own, {values[i], column + i});  // what is after the end changes nothing before it
    }
    Best<F> best = better(carry, scan_before(own, total));
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      best = better(best, {values[i], column + i});
      values[i] = best.value;
      columns[i] = best.column;
    }
    store_items(y + start, column, end, values);
    store_items(index + start, column, end, columns);
    carry = better(carry, total);
  }
}

/// Number of parts per row.
int64_t part_count(int64_t rows, int64_t cols) { return rows >= kManyRows ? 1 : ceil_div(cols, kPart); }

}  // namespace

int64_t cumulative_extreme_workspace(Stream, int64_t rows, int64_t cols, DType) {
  const int64_t parts = part_count(rows, cols);
  return parts <= 1 ? 0 : rows * parts * static_cast<int64_t>(sizeof(Best<double>));
}

void cumulative_extreme(Stream stream, bool largest, ConstView x, void* workspace, View y, View index) {
  if (x.numel() == 0) return;
  const Call call{x.rows(), x.cols(), part_count(x.rows(), x.cols()), largest};
  const int64_t parts = call.rows * call.parts;
  dispatch_any(x.dtype, [&]<class Element>() {
    using T = Stored<Element>;
    constexpr bool kFlags = std::is_same_v<Element, bool>;
    auto* const extremes = static_cast<Best<Compared<T>>*>(workspace);
    if (call.parts > 1)
      launch(part_extremes_kernel<T, kFlags>, dim3(grid_blocks(parts)), dim3(kRowThreads), 0, stream, x.as<T>(), call,
             extremes);
    const auto run = [&]<int kGroup>() {
      using Group = RowGroup<kGroup>;
      launch(cumulative_extreme_kernel<T, kFlags, kGroup>, Group::grid(parts), dim3(Group::kThreads), 0, stream,
             x.as<T>(), call, extremes, y.as<T>(), index.as<int64_t>());
    };
    if (call.cols <= kShortRow)
      run.template operator()<kWarpSize>();
    else
      run.template operator()<kRowThreads>();
  });
}

}  // namespace tern::kernels::cuda
