// Norm of all gradients and the check for infinities and NaN, in one pass over many tensors.

#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::cuda {
namespace {

constexpr int64_t kNormBlock = 16384;  // elements of a block
constexpr int kTensors = 160;          // tensors of a launch: their description fits into its arguments
constexpr int kFinishThreads = 1024;

/// What a block leaves: finite exactly when all its elements are.
struct BlockNorm {
  double sum;
  int64_t tensor;
};

struct Batch {
  const void* data[kTensors];
  int64_t numel[kTensors];
  int32_t first_block[kTensors];
  DType dtype[kTensors];
  int count = 0;
};
static_assert(sizeof(Batch) <= 4000, "kernel arguments are limited to 4 KB");

/// A sum of squares that overflowed: once more in fp64, in which only the elements themselves can do harm.
template <class Group, class T>
__device__ double careful_sum(const T* x, int64_t n) {
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
  const double own = math::isfinite(sum) ? static_cast<double>(sum) : careful_sum<Group>(x, n);
  return Group::sum(own);
}

__global__ void __launch_bounds__(kRowThreads)
    block_norm_kernel(const __grid_constant__ Batch batch, int64_t first_tensor, BlockNorm* results) {
  const int block = static_cast<int>(blockIdx.x);
  int low = 0, high = batch.count - 1;  // the last tensor that starts at this block or before
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
  if (threadIdx.x == 0) results[block] = {sum, first_tensor + low};
}

__global__ void __launch_bounds__(kFinishThreads)
    finish_norm_kernel(const BlockNorm* blocks, int64_t count, GradientNorm* result) {
  using Group = RowGroup<kFinishThreads>;
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  double sum = 0;
  int64_t first_bad = kNone;
  for (int64_t b = threadIdx.x; b < count; b += kFinishThreads) {
    const BlockNorm block = blocks[b];
    sum += block.sum;
    if (!math::isfinite(block.sum) && first_bad == kNone) first_bad = block.tensor;
  }
  sum = Group::sum(sum);
  first_bad = Group::reduce(first_bad, Minimum{}, kNone);
  if (threadIdx.x > 0) return;
  const bool bad = first_bad != kNone;
  *result = {sum, bad ? 1 : 0, bad ? static_cast<int32_t>(first_bad) : -1};
}

}  // namespace

int64_t gradient_norm_workspace(Stream, int64_t elements, int64_t count) {
  return (elements / kNormBlock + count) * static_cast<int64_t>(sizeof(BlockNorm));
}

void gradient_norm(Stream stream, const ConstView* tensors, int64_t count, void* workspace, GradientNorm* result) {
  BlockNorm* const results = static_cast<BlockNorm*>(workspace);
  int64_t done = 0;  // blocks of earlier launches
  for (int64_t first = 0; first < count; first += kTensors) {
    Batch batch;
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
    if (blocks > 0)
      launch(block_norm_kernel, static_cast<unsigned>(blocks), kRowThreads, 0, stream, batch, first, results + done);
    done += blocks;
  }
  launch(finish_norm_kernel, 1, kFinishThreads, 0, stream, results, done, result);
}

}  // namespace tern::kernels::cuda
