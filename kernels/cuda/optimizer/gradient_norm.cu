// Norm of all gradients and the check for infinities and NaN, in one pass over many tensors: each block writes a sum,
// and the last block to finish adds the sums.

#include "tern/kernels/cuda/support/last_block.h"
#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::cuda {
namespace {

constexpr int64_t kNormBlock = kGradientNormBlock;
constexpr int kTensors = 400;  // tensors per launch: their description fits into the arguments

struct Batch {
  const void* data[kTensors];
  int64_t numel[kTensors];
  int32_t first_block[kTensors];
  DType dtype[kTensors];
  int count = 0;
};
/// Data shared by the blocks of all launches.
struct Totals {
  GradientBlock* blocks;
  const int64_t* order;  // null: in the order of the blocks
  unsigned count;
  unsigned* ticket;
  GradientNorm* result;  // null: the sums are not added
};

/// Recomputes in fp64 a sum of squares that overflowed: only elements that are not finite make this sum not finite.
template <class Group, class T>
__device__ double scaled_square_sum(const T* x, int64_t n) {
  double sum = 0;
  for_each_vector<Group>(x, n, T(), [&](int64_t, const auto& values) {
#pragma unroll
    for (int k = 0; k < vector_width<T>; ++k) {
      const double value = static_cast<double>(values.v[k]), square = value * value;
      sum += math::isfinite(value) ? (square < 1e300 ? square : 1e300) : value - value;
    }
  });
  return sum;
}

template <class T>
__device__ double sum_of_squares(const void* data, int64_t begin, int64_t numel) {
  using F = ComputeType<T>;
  using Group = RowGroup<kRowThreads>;
  const T* x = static_cast<const T*>(data) + begin;
  const int64_t n = numel - begin < kNormBlock ? numel - begin : kNormBlock;
  F sum = 0;
  for_each_vector<Group>(x, n, T(), [&](int64_t, const auto& values) {
    F part = 0;
#pragma unroll
    for (int k = 0; k < vector_width<T>; ++k) part += values.v[k] * values.v[k];
    sum += part;
  });
  const double thread_sum = math::isfinite(sum) ? static_cast<double>(sum) : scaled_square_sum<Group>(x, n);
  return Group::sum(thread_sum);
}

using Words = Vector<uint32_t, 4>;  // a GradientBlock

/// Adds the results of all blocks; one block calls it.
__device__ void finish(const Totals& totals) {
  using Group = RowGroup<kRowThreads>;
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  double sum = 0;
  int64_t first_bad = kNone;
#pragma unroll 4
  for (unsigned b = threadIdx.x; b < totals.count; b += kRowThreads) {
    const GradientBlock* from = totals.blocks + (totals.order ? totals.order[b] : b);
    const auto block = std::bit_cast<GradientBlock>(load_vector<4>(reinterpret_cast<const uint32_t*>(from)));
    sum += block.sum;
    if (!math::isfinite(block.sum) && first_bad == kNone) first_bad = block.tensor;
  }
  sum = Group::sum(sum);
  first_bad = Group::reduce(first_bad, Minimum{}, kNone);
  if (threadIdx.x > 0) return;
  const bool bad = first_bad != kNone;
  *totals.result = {sum, bad ? 1 : 0, bad ? static_cast<int32_t>(first_bad) : -1};
}

/// first_tensor, first_block: the launch's first tensor and block, counted over all launches.
__global__ void __launch_bounds__(kRowThreads) block_norm_kernel(TERN_GRID_CONSTANT(Batch) batch, int64_t first_tensor,
                                                                 unsigned first_block, const Totals totals) {
  const int block = static_cast<int>(blockIdx.x);
  int low = 0, high = batch.count - 1;  // finds the last tensor that starts at or before this block
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (batch.first_block[middle] <= block)
      low = middle;
    else
      high = middle - 1;
  }
  const void* data = batch.data[low];
  const int64_t begin = (block - batch.first_block[low]) * kNormBlock, numel = batch.numel[low];
  double sum = 0;
  switch (batch.dtype[low]) {
    case DType::kFloat64:
      sum = sum_of_squares<double>(data, begin, numel);
      break;
    case DType::kBFloat16:
      sum = sum_of_squares<BFloat16>(data, begin, numel);
      break;
    case DType::kFloat16:
      sum = sum_of_squares<Float16>(data, begin, numel);
      break;
    default:
      sum = sum_of_squares<float>(data, begin, numel);
  }
  if (threadIdx.x == 0) {
    const GradientBlock thread_sum{sum, first_tensor + low};
    store_vector(reinterpret_cast<uint32_t*>(totals.blocks + first_block + block), std::bit_cast<Words>(thread_sum));
  }
  if (!totals.result || (totals.count > 1 && !is_last_block(totals.ticket, totals.count))) return;
  finish(totals);
}

__global__ void __launch_bounds__(kRowThreads) fold_kernel(const Totals totals) { finish(totals); }

int64_t count_blocks(const ConstView* tensors, int64_t count) {
  int64_t blocks = 0;
  for (int64_t t = 0; t < count; ++t) blocks += ceil_div(tensors[t].numel(), kNormBlock);
  return blocks;
}

/// Launches `total` blocks, or one empty block when total is 0.
void launch_blocks(Stream stream, const ConstView* tensors, int64_t count, int64_t total, const Totals& totals) {
  int64_t first = 0;
  unsigned done = 0;  // blocks of earlier launches
  do {
    Batch batch = {};
    batch.count = static_cast<int>(std::min<int64_t>(kTensors, count - first));
    int64_t blocks = 0;
    for (int t = 0; t < batch.count; ++t) {
      const ConstView& x = tensors[first + t];
      batch.data[t] = x.data;
      batch.numel[t] = x.numel();
      batch.dtype[t] = x.dtype;
      batch.first_block[t] = static_cast<int32_t>(blocks);
      blocks += ceil_div(batch.numel[t], kNormBlock);
    }
    if (total == 0) blocks = 1;  // the empty block
    if (blocks > 0) launch(block_norm_kernel, grid_blocks(blocks), kRowThreads, 0, stream, batch, first, done, totals);
    if (total > 0) done += static_cast<unsigned>(blocks);
    first += kTensors;
  } while (first < count);
}

}  // namespace

int64_t gradient_norm_workspace(Stream, int64_t elements, int64_t count) {
  return std::max<int64_t>(1, elements / kNormBlock + count) * static_cast<int64_t>(sizeof(GradientBlock));
}

void gradient_norm(Stream stream, const ConstView* tensors, int64_t count, void* workspace, void* ticket,
                   GradientNorm* result) {
  const int64_t total = count_blocks(tensors, count);
  const Totals totals{static_cast<GradientBlock*>(workspace), nullptr, grid_blocks(std::max<int64_t>(1, total)),
                      static_cast<unsigned*>(ticket), result};
  TERN_CHECK(ticket || totals.count == 1, "gradient_norm: a ticket is needed for ", total, " blocks");
  launch_blocks(stream, tensors, count, total, totals);
}

void gradient_norm_blocks(Stream stream, const ConstView* tensors, int64_t count, GradientBlock* blocks) {
  const int64_t total = count_blocks(tensors, count);
  if (total > 0) launch_blocks(stream, tensors, count, total, {blocks, nullptr, grid_blocks(total), nullptr, nullptr});
}

void gradient_norm_fold(Stream stream, const GradientBlock* blocks, const int64_t* order, int64_t count,
                        GradientNorm* result) {
  // finish() does not write to the blocks.
  const Totals totals{const_cast<GradientBlock*>(blocks), order, static_cast<unsigned>(count), nullptr, result};
  launch(fold_kernel, dim3(1), dim3(kRowThreads), 0, stream, totals);
}

}  // namespace tern::kernels::cuda
