// All instances of CUB's algorithms that Tern uses, in one file because they compile slowly.

#include "tern/kernels/cuda/cub.h"

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "tern/kernels/cuda/support/check.h"

namespace tern::kernels::cuda {
namespace {

/// Each of these functions runs CUB's algorithm, or only sets `bytes` when `space` is null.
template <class Key>
cudaError_t run_sort(void* space, size_t& bytes, cub::DoubleBuffer<Key>& keys, cub::DoubleBuffer<uint32_t>& values,
                     int64_t n, int bits, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(space, bytes, keys, values, static_cast<uint32_t>(n), 0, bits, stream);
}

struct RowOf {
  int64_t cols;
  __device__ int64_t operator()(int64_t i) const { return i / cols; }
};
cudaError_t run_scan(void* space, size_t& bytes, int64_t* values, int64_t rows, int64_t cols, cudaStream_t stream) {
  const auto row = thrust::make_transform_iterator(thrust::counting_iterator<int64_t>(0), RowOf{cols});
  const auto wrapping = reinterpret_cast<uint64_t*>(values);
  return cub::DeviceScan::InclusiveSumByKey(space, bytes, row, wrapping, wrapping, rows * cols,
                                            ::cuda::std::equal_to<>{}, stream);
}

struct IsSet {
  __device__ bool operator()(uint8_t flag) const { return flag != 0; }
};
cudaError_t run_select(void* space, size_t& bytes, const uint8_t* flags, int64_t n, int64_t* positions, int64_t* count,
                       cudaStream_t stream) {
  return cub::DeviceSelect::Flagged(space, bytes, thrust::counting_iterator<int64_t>(0),
                                    thrust::make_transform_iterator(flags, IsSet{}), positions, count, n, stream);
}

cudaStream_t handle_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace

template <class Key>
int64_t sort_pairs_workspace(Stream stream, int64_t n) {
  size_t bytes = 0;
  cub::DoubleBuffer<Key> keys(nullptr, nullptr);
  cub::DoubleBuffer<uint32_t> values(nullptr, nullptr);
  TERN_CUDA_CHECK(run_sort(nullptr, bytes, keys, values, n, sizeof(Key) * 8, handle_of(stream)));
  return static_cast<int64_t>(bytes);
}
template int64_t sort_pairs_workspace<uint32_t>(Stream, int64_t);
template int64_t sort_pairs_workspace<uint64_t>(Stream, int64_t);

template <class Key>
int sort_pairs(Stream stream, const SortBuffers<Key>& buffers, int64_t n, int bits, void* workspace) {
  if (n == 0 || bits == 0) return 0;
  auto bytes = static_cast<size_t>(sort_pairs_workspace<Key>(stream, n));
  cub::DoubleBuffer<Key> keys(buffers.keys[0], buffers.keys[1]);
  cub::DoubleBuffer<uint32_t> values(buffers.values[0], buffers.values[1]);
  TERN_CUDA_CHECK(run_sort(workspace, bytes, keys, values, n, bits, handle_of(stream)));
  return values.selector;
}
template int sort_pairs(Stream, const SortBuffers<uint32_t>&, int64_t, int, void*);
template int sort_pairs(Stream, const SortBuffers<uint64_t>&, int64_t, int, void*);

int64_t scan_rows_workspace(Stream stream, int64_t rows, int64_t cols) {
  if (rows == 0 || cols == 0) return 0;
  size_t bytes = 0;
  TERN_CUDA_CHECK(run_scan(nullptr, bytes, nullptr, rows, cols, handle_of(stream)));
  return static_cast<int64_t>(bytes);
}

void scan_rows(Stream stream, int64_t* values, int64_t rows, int64_t cols, void* workspace) {
  if (rows == 0 || cols == 0) return;
  auto bytes = static_cast<size_t>(scan_rows_workspace(stream, rows, cols));
  TERN_CUDA_CHECK(run_scan(workspace, bytes, values, rows, cols, handle_of(stream)));
}

// The workspace begins with CUB's count of positions, which the caller already has.
int64_t select_flagged_workspace(Stream stream, int64_t n) {
  if (n == 0) return 0;
  size_t bytes = 0;
  TERN_CUDA_CHECK(run_select(nullptr, bytes, nullptr, n, nullptr, nullptr, handle_of(stream)));
  return static_cast<int64_t>(sizeof(int64_t) + bytes);
}

void select_flagged(Stream stream, const uint8_t* flags, int64_t n, int64_t* positions, void* workspace) {
  if (n == 0) return;
  const auto count = static_cast<int64_t*>(workspace);
  auto bytes = static_cast<size_t>(select_flagged_workspace(stream, n)) - sizeof(int64_t);
  TERN_CUDA_CHECK(run_select(count + 1, bytes, flags, n, positions, count, handle_of(stream)));
}

}  // namespace tern::kernels::cuda
