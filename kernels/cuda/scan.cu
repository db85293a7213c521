// Running sums of floats in a fixed order: a warp or a block iterates over a row and carries the sum; a few long rows
// are divided into parts, whose sums are scanned first. Sums of integers, whose order has no effect, use CUB.

#include "tern/kernels/scan.h"

#include <algorithm>

#include "tern/kernels/copy.h"
#include "tern/kernels/cuda/cub.h"
#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/cuda/support/scan.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kItems = 8;           // neighbouring elements per thread
constexpr int64_t kShortRow = 512;  // rows up to this length take one warp
constexpr int64_t kPart = 16384;
constexpr int64_t kManyRows = 256;  // this many rows occupy a device: they are not divided

/// The order in which the columns [begin, end) of a row are added: tile after tile of a group's threads, each with
/// neighbouring columns; in reverse, from the last column on.
template <class T, class Group>
struct Tiles {
  static constexpr int kWidth = vector_width<T>, kVectors = kItems / kWidth, kTile = Group::kSize * kItems;
  static_assert(kItems % kWidth == 0 && kPart % kTile == 0, "parts are whole tiles, and those whole vectors");
  int64_t begin, end;
  bool reverse;

  __device__ int64_t count() const { return (end - begin + kTile - 1) / kTile; }
  /// This thread's first column in a tile.
  __device__ int64_t column(int64_t tile) const {
    const int lane = reverse ? Group::kSize - 1 - Group::lane() : Group::lane();
    return begin + (reverse ? count() - 1 - tile : tile) * kTile + lane * kItems;
  }
  /// The values of kItems columns in the order of addition; columns after the end are 0.
  __device__ void load(const T* row, int64_t column, double (&values)[kItems]) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const auto part = to_compute(load_columns(row, column + v * kWidth, end));
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[v * kWidth + i] = part.v[i];
    }
    if (reverse) turn(values);
  }
  __device__ void store(T* row, int64_t column, double (&values)[kItems]) const {
    if (reverse) turn(values);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      Vector<ComputeType<T>, kWidth> part;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) part.v[i] = static_cast<ComputeType<T>>(values[v * kWidth + i]);
      store_columns(row, column + v * kWidth, end, from_compute<T>(part));
    }
  }
  __device__ static void turn(double (&values)[kItems]) {
#pragma unroll
    for (int i = 0; i < kItems / 2; ++i) {
      const double value = values[i];
      values[i] = values[kItems - 1 - i];
      values[kItems - 1 - i] = value;
    }
  }
};

/// The sum over the preceding threads of the group, and in `total` over all.
template <class Group>
__device__ double group_sum_before(double value, double& total) {
  if constexpr (Group::kSize == kWarpSize)
    return warp_sum_before(value, total);
  else
    return block_sum_before<Group::kSize>(value, total);
}

struct Call {
  int64_t rows, cols, parts;  // parts of a row
  bool reverse;

  int64_t total_parts() const { return rows * parts; }
  /// The tiles of part number `part`, counted over all rows.
  template <class T, class Group>
  __device__ Tiles<T, Group> tiles(int64_t part) const {
    if (parts == 1) return {0, cols, reverse};
    const int64_t begin = part % parts * kPart;
    return {begin, begin + kPart < cols ? begin + kPart : cols, reverse};
  }
  /// The sum of the parts before this one in its row, from the scanned sums of the parts.
  __device__ double sum_before(const double* sums, int64_t part) const {
    if (parts == 1) return 0;
    if (reverse) return part % parts + 1 < parts ? sums[part + 1] : 0;
    return part % parts > 0 ? sums[part - 1] : 0;
  }
};

template <class T>
__global__ void __launch_bounds__(kRowThreads)
    part_sums_kernel(const T* x, TERN_GRID_CONSTANT(Call) call, double* sums) {
  using Group = RowGroup<kRowThreads>;
  const int64_t part = Group::first_row();
  const auto tiles = call.tiles<T, Group>(part);
  const T* const row = x + part / call.parts * call.cols;
  double sum = 0;
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    double values[kItems];
    tiles.load(row, tiles.column(tile), values);
#pragma unroll
    for (int i = 0; i < kItems; ++i) sum += values[i];
  }
  sum = Group::sum(sum);
  if (Group::lane() == 0) store_one(sums + part, sum);
}

/// x and y may be the same. `sums`: the scanned sums of the parts; unused when rows are not divided.
template <class T, int kGroup>
__global__ void __launch_bounds__(RowGroup<kGroup>::kThreads)
    cumulative_sum_kernel(const T* x, TERN_GRID_CONSTANT(Call) call, const double* sums, T* y) {
  using Group = RowGroup<kGroup>;
  const int64_t part = Group::first_row();
  if (part >= call.rows * call.parts) return;
  const auto tiles = call.tiles<T, Group>(part);
  const int64_t start = part / call.parts * call.cols;
  double carry = call.sum_before(sums, part);
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    const int64_t column = tiles.column(tile);
    double values[kItems], total;
    tiles.load(x + start, column, values);
#pragma unroll
    for (int i = 1; i < kItems; ++i) values[i] += values[i - 1];
    const double before = carry + group_sum_before<Group>(values[kItems - 1], total);
#pragma unroll
    for (int i = 0; i < kItems; ++i) values[i] += before;
    tiles.store(y + start, column, values);
    carry += total;
  }
}

/// Number of parts per row.
int64_t part_count(int64_t rows, int64_t cols) { return rows >= kManyRows ? 1 : ceil_div(cols, kPart); }

template <class T>
void scan_parts(Stream stream, const T* x, const Call& call, const double* sums, T* y) {
  const auto run = [&]<int kGroup>() {
    using Group = RowGroup<kGroup>;
    launch(cumulative_sum_kernel<T, kGroup>, Group::grid(call.total_parts()), dim3(Group::kThreads), 0, stream, x, call,
           sums, y);
  };
  if (call.cols <= kShortRow)
    run.template operator()<kWarpSize>();
  else
    run.template operator()<kRowThreads>();
}

struct Shape {
  int dims;
  int64_t sizes[kMaxDims];
};

__global__ void __launch_bounds__(kRowThreads)
    unravel_positions_kernel(const int64_t* positions, int64_t n, TERN_GRID_CONSTANT(Shape) shape, int64_t* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (i >= n) return;
  int64_t rest = load_one(positions + i);
  for (int d = shape.dims - 1; d >= 0; --d) {
    const int64_t next = rest / shape.sizes[d];
    store_one(y + i * shape.dims + d, rest - next * shape.sizes[d]);
    rest = next;
  }
}

}  // namespace

int64_t cumulative_sum_workspace(Stream stream, int64_t rows, int64_t cols, DType dtype) {
  if (!is_floating(dtype)) return scan_rows_workspace(stream, rows, cols);
  const int64_t parts = part_count(rows, cols);
  return parts <= 1 ? 0 : rows * parts * static_cast<int64_t>(sizeof(double));
}

void cumulative_sum(Stream stream, ConstView x, bool reverse, void* workspace, View y) {
  if (x.numel() == 0) return;
  const Call call{x.rows(), x.cols(), part_count(x.rows(), x.cols()), reverse};
  if (!is_floating(x.dtype)) {
    copy(stream, x, y);
    return scan_rows(stream, y.as<int64_t>(), call.rows, call.cols, workspace);
  }
  auto* const sums = static_cast<double*>(workspace);
  dispatch_float(x.dtype, [&]<class T>() {
    if (call.parts > 1) {
      launch(part_sums_kernel<T>, dim3(grid_blocks(call.total_parts())), dim3(kRowThreads), 0, stream, x.as<T>(), call,
             sums);
      // Scanned as rows of one part, since they are short.
      scan_parts<double>(stream, sums, Call{call.rows, call.parts, 1, reverse}, nullptr, sums);
    }
    scan_parts<T>(stream, x.as<T>(), call, sums, y.as<T>());
  });
}

int64_t select_positions_workspace(Stream stream, int64_t n) { return select_flagged_workspace(stream, n); }

void select_positions(Stream stream, ConstView mask, void* workspace, View positions) {
  if (positions.numel() == 0) return;
  select_flagged(stream, mask.as<uint8_t>(), mask.numel(), positions.as<int64_t>(), workspace);
}

void unravel_positions(Stream stream, ConstView positions, int dims, const int64_t* shape, View y) {
  const int64_t n = positions.numel();
  if (n == 0 || dims == 0) return;
  Shape sizes{dims, {}};
  std::copy_n(shape, dims, sizes.sizes);
  launch(unravel_positions_kernel, dim3(grid_blocks(ceil_div(n, kRowThreads))), dim3(kRowThreads), 0, stream,
         positions.as<int64_t>(), n, sizes, y.as<int64_t>());
}

}  // namespace tern::kernels::cuda
