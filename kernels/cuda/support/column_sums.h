#pragma once
// The second stage of sums over rows: partial sums of fixed groups of rows added up in a fixed order.

#include "tern/kernels/cuda/strided.h"
#include "tern/kernels/cuda/support/rows.h"

namespace tern::kernels::cuda {

/// Partial sums that a first stage leaves at most: two blocks for each multiprocessor of an H100. A constant, because
/// the number decides the order of summation and so the bits.
inline constexpr int64_t kMaxParts = 264;
inline constexpr int kMostPartWarps = 32;

/// Where the sums of one set of columns go. data == nullptr: nowhere.
template <class F>
struct ColumnResult {
  const F* parts = nullptr;
  void* data = nullptr;
  DType dtype = DType::kFloat32;
};

/// Parts of one or two results. blockIdx.y chooses the result; a warp adds up 32 columns of every n-th part, n being
/// the number of warps in the block, a power of two.
template <class F>
__global__ void __launch_bounds__(kMostPartWarps* kWarpSize)
    add_parts_kernel(ColumnResult<F> first, ColumnResult<F> second, int64_t parts, int64_t stride, int64_t cols,
                     bool accumulate) {
  TERN_SHARED(F, sums, [kMostPartWarps][kWarpSize]);
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

/// result[c] (+)= sum of parts[p * stride + c] over the parts; also with no parts, which gives 0.
template <class F>
void add_parts(Stream stream, const ColumnResult<F>& first, const ColumnResult<F>& second, int64_t parts,
               int64_t stride, int64_t cols, bool accumulate) {
  int warps = 1;  // a thread adds up eight parts or so
  while (warps < kMostPartWarps && warps * 8 < parts) warps *= 2;
  const dim3 grid(static_cast<unsigned>(ceil_div(cols, kWarpSize)), second.data ? 2 : 1);
  launch(add_parts_kernel<F>, grid, warps * kWarpSize, 0, stream, first, second, parts, stride, cols, accumulate);
}

}  // namespace tern::kernels::cuda
