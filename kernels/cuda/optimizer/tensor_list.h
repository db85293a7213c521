#pragma once
// Kernels that do many tensors in one launch. The list of tensors is in the kernel's parameters, so a captured step
// needs no copy. A block works on kListChunk elements of one tensor; the blocks of all tensors are numbered through.

#include <algorithm>
#include <limits>

#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/values.h"

namespace tern::kernels::cuda {

inline constexpr int kListThreads = 256;
inline constexpr int kListChunk = 16384;
// CUDA takes 32,764 bytes of kernel parameters (12.1 and later, sm_70 and later).
inline constexpr int kListTensors = 400;

TERN_HD inline int64_t list_blocks(int64_t size) { return (size + kListChunk - 1) / kListChunk; }

/// True when a list of `tensors` tensors and `blocks` blocks has no room for a tensor of `size` elements.
inline bool is_list_full(int tensors, int64_t blocks, int64_t size) {
  return tensors == kListTensors || blocks > std::numeric_limits<int32_t>::max() - list_blocks(size);
}

/// The tensor that a block works on: the last whose first_block is not after it.
template <class Entry>
__device__ const Entry& find_tensor(const Entry* tensors, int count, int block) {
  int low = 0, high = count;  // tensors[low].first_block <= block < tensors[high].first_block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (tensors[middle].first_block <= block ? low : high) = middle;
  }
  return tensors[low];
}

/// Elements of one step of a thread: 16 bytes of the narrower type, but no more than 32 of the wider, or registers
/// spill.
template <class A, class B>
inline constexpr int kListElements = std::min<int>(std::max(vector_width<A>, vector_width<B>),
                                                   32 / std::max(sizeof(A), sizeof(B)));

/// Calls body.operator()<kCount>(at) over the elements of this block's chunk of a tensor, kVector at a time where it is
/// aligned.
template <int kVector, class Entry, class Body>
__device__ void for_each_element(const Entry& tensor, const Body& body) {
  int64_t begin = (static_cast<int64_t>(blockIdx.x) - tensor.first_block) * kListChunk;
  const int64_t end = min(begin + kListChunk, tensor.size);
  if (tensor.aligned) {
    for (int64_t at = begin + threadIdx.x * kVector; at + kVector <= end; at += kListThreads * kVector)
      body.template operator()<kVector>(at);
    begin += (end - begin) / kVector * kVector;
  }
  for (int64_t at = begin + threadIdx.x; at < end; at += kListThreads) body.template operator()<1>(at);
}

/// Adds 1 to the count of a step, before the kernels that read it.
template <class Step>
__global__ void count_kernel(Step step) {
  if (!step.is_skipped()) ++step.count();
}

}  // namespace tern::kernels::cuda
