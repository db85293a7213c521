#pragma once
// Second stage of column sums: adds the partial sums of fixed groups of rows in a fixed order.

#include "tern/kernels/cuda/strided.h"
#include "tern/kernels/cuda/support/last_block.h"
#include "tern/kernels/cuda/support/rows.h"

namespace tern::kernels::cuda {

/// Maximum number of partial sums from a first stage: two blocks for each multiprocessor of an H100. A constant,
/// because the number determines the order of summation and so the bits. Few on the emulator, where matrices are small
/// and a thread is to have several rows all the same.
#ifdef TERN_SIMT
inline constexpr int64_t kMaxParts = 6;
#else
inline constexpr int64_t kMaxParts = 264;
#endif
inline constexpr int kMaxPartWarps = 32;

/// The destination of the sums of one set of columns. data == nullptr: none.
template <class F>
struct ColumnResult {
  const F* parts = nullptr;
  void* data = nullptr;
  DType dtype = DType::kFloat32;
};

/// The partial sums of one or two results. blockIdx.y selects the result; a warp adds 32 columns of every n-th part, n
/// being the number of warps in the block, a power of two.
template <class F>
__global__ void __launch_bounds__(kMaxPartWarps* kWarpSize)
    add_parts_kernel(ColumnResult<F> first, ColumnResult<F> second, int64_t parts, int64_t stride, int64_t cols,
                     bool accumulate) {
  TERN_SHARED(F, sums, [kMaxPartWarps][kWarpSize]);
  const ColumnResult<F> result = blockIdx.y == 0 ? first : second;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, row = static_cast<int>(threadIdx.x) / kWarpSize;
  const int rows = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
  if (!result.data) return;
  F sum = 0;
  if (column < cols) {
#pragma unroll 4
    for (int64_t part = row; part < parts; part += rows) sum += load_one(result.parts + part * stride + column);
  }
  sums[row][lane] = sum;
  for (int half = rows / 2; half > 0; half /= 2) {
    block_barrier();
    if (row < half) sums[row][lane] += sums[row + half][lane];
  }
  if (row > 0 || column >= cols) return;
  elementwise::with_storage<F>(result.dtype, [&]<class T>() {
    auto* y = static_cast<Stored<T>*>(result.data) + column;
    F total = sums[0][lane];
    if (accumulate) total += convert<T, F>(load_one(y));
    store_one(y, convert<F, T>(total));
  });
}

/// result[c] (+)= sum of parts[p * stride + c] over the parts; 0 parts give 0.
template <class F>
void add_parts(Stream stream, const ColumnResult<F>& first, const ColumnResult<F>& second, int64_t parts,
               int64_t stride, int64_t cols, bool accumulate) {
  int warps = 1;  // a thread adds about eight parts
  while (warps < kMaxPartWarps && warps * 8 < parts) warps *= 2;
  const dim3 grid(grid_blocks(ceil_div(cols, kWarpSize)), second.data ? 2 : 1);
  launch(add_parts_kernel<F>, grid, warps * kWarpSize, 0, stream, first, second, parts, stride, cols, accumulate);
}

/// The second stage run by the blocks of the first, in groups: the last block of a group to finish adds its group's
/// parts, and the last of these blocks adds the groups' sums. Each reads about the square root of the number of parts,
/// at the speed of one multiprocessor: for few columns this takes less time than a launch.
template <class F>
struct PartGroups {
  F* sums = nullptr;  // [groups, columns]
  unsigned* tickets = nullptr;
  unsigned size = 1, groups = 1;  // blocks in every group except the last

  PartGroups() = default;
  /// `counters`: 1 + groups zeros; the first counts groups. `workspace`: space for the sums.
  PartGroups(int64_t parts, F* workspace, void* counters)
      : sums(workspace), tickets(static_cast<unsigned*>(counters)), size(size_for(parts)), groups(groups_for(parts)) {}

  static constexpr unsigned size_for(int64_t parts) {
    unsigned size = 1;
    while (int64_t{size} * size < parts) ++size;
    return size;
  }
  static constexpr unsigned groups_for(int64_t parts) {
    return static_cast<unsigned>(ceil_div(parts, size_for(parts)));
  }
};

/// Sums over rows [0, count), `columns` apart and aligned to 16 bytes: calls store(column, vector of sums).
template <int kWidth, class F, class Store>
__device__ void add_rows(const F* rows, unsigned count, int columns, const Store& store) {
  for (int c = static_cast<int>(threadIdx.x) * kWidth; c < columns; c += static_cast<int>(blockDim.x) * kWidth) {
    Vector<F, kWidth> sum = {};
#pragma unroll 8
    for (unsigned r = 0; r < count; ++r) {
      const Vector<F, kWidth> row = load_vector<kWidth>(rows + static_cast<int64_t>(r) * columns + c);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum.v[k] += row.v[k];
    }
    store(c, sum);
  }
}

/// All blocks call it after writing their row of parts[blocks, 2, cols]; computes the sums of the two sets of columns.
/// Not inlined, because that would take registers from the caller's loop over rows.
template <int kWidth, class F>
__device__ __attribute__((noinline)) void add_parts_last(const F* parts, const PartGroups<F>& groups,
                                                         const ColumnResult<F>& first, const ColumnResult<F>& second,
                                                         int cols) {
  const unsigned group = blockIdx.x / groups.size, begin = group * groups.size;
  const unsigned count = gridDim.x - begin < groups.size ? gridDim.x - begin : groups.size;
  if (!is_last_block(groups.tickets + 1 + group, count)) return;
  F* const sums = groups.sums + static_cast<int64_t>(group) * 2 * cols;
  add_rows<kWidth>(parts + static_cast<int64_t>(begin) * 2 * cols, count, 2 * cols,
                   [=](int column, const Vector<F, kWidth>& sum) { store_vector(sums + column, sum); });
  if (!is_last_block(groups.tickets, groups.groups)) return;
  add_rows<kWidth>(groups.sums, groups.groups, 2 * cols, [=](int column, const Vector<F, kWidth>& sum) {
    const ColumnResult<F>& result = column < cols ? first : second;
    if (!result.data) return;
    elementwise::with_storage<F>(result.dtype, [&]<class T>() {
      auto* y = static_cast<Stored<T>*>(result.data) + (column < cols ? column : column - cols);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) store_one(y + k, convert<F, T>(sum.v[k]));
    });
  });
}

}  // namespace tern::kernels::cuda
