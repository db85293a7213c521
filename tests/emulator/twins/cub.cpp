// kernels/cuda/cub.h for the emulated build: plain loops in a kernel of one thread, which is queued, captured, counted
// and checked like other kernels. Values that CUB leaves undefined are overwritten, so that no caller can use them.

#include "tern/kernels/cuda/cub.h"

#include <algorithm>

#include "tern/kernels/cuda/support/rows.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kDigits = 256, kDigitBits = 8;
constexpr unsigned char kGarbage = 0xa5;

__device__ void spoil(void* memory, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) store_one(static_cast<unsigned char*>(memory) + i, kGarbage);
}

/// Sorts the pairs by one digit of their keys.
template <class Key>
__device__ void sort_digit(const SortBuffers<Key>& buffers, int from, int64_t n, int shift, Key mask) {
  const Key* const keys = buffers.keys[from];
  const auto digit_of = [&](Key key) { return static_cast<int>((key & mask) >> shift & (kDigits - 1)); };
  int64_t next[kDigits + 1] = {};
  for (int64_t i = 0; i < n; ++i) ++next[digit_of(load_one(keys + i)) + 1];
  for (int d = 0; d < kDigits; ++d) next[d + 1] += next[d];
  for (int64_t i = 0; i < n; ++i) {
    const Key key = load_one(keys + i);
    const int64_t to = next[digit_of(key)]++;
    store_one(buffers.keys[1 - from] + to, key);
    store_one(buffers.values[1 - from] + to, load_one(buffers.values[from] + i));
  }
}

template <class Key>
__global__ void sort_pairs_kernel(SortBuffers<Key> buffers, int64_t n, int bits, void* workspace, int64_t bytes) {
  spoil(workspace, bytes);
  const Key mask = ~Key(0) >> (sizeof(Key) * 8 - bits);
  int from = 0;
  for (int shift = 0; shift < bits; shift += kDigitBits, from = 1 - from) sort_digit(buffers, from, n, shift, mask);
  spoil(buffers.keys[1 - from], n * static_cast<int64_t>(sizeof(Key)));
  spoil(buffers.values[1 - from], n * static_cast<int64_t>(sizeof(uint32_t)));
}

__global__ void scan_rows_kernel(int64_t* values, int64_t rows, int64_t cols, void* workspace, int64_t bytes) {
  spoil(workspace, bytes);
  for (int64_t r = 0; r < rows; ++r) {
    uint64_t sum = 0;
    for (int64_t c = 0; c < cols; ++c) {
      sum += static_cast<uint64_t>(load_one(values + r * cols + c));
      store_one(values + r * cols + c, static_cast<int64_t>(sum));
    }
  }
}

__global__ void select_flagged_kernel(const uint8_t* flags, int64_t n, int64_t* positions, void* workspace,
                                      int64_t bytes) {
  spoil(workspace, bytes);
  for (int64_t i = 0; i < n; ++i)
    if (load_one(flags + i) != 0) store_one(positions++, i);
}

/// A size that grows with n, like CUB's.
int64_t workspace_for(int64_t n) { return n == 0 ? 0 : 777 + n / 16; }

}  // namespace

template <class Key>
int64_t sort_pairs_workspace(Stream, int64_t n) {
  return workspace_for(n);
}
template int64_t sort_pairs_workspace<uint32_t>(Stream, int64_t);
template int64_t sort_pairs_workspace<uint64_t>(Stream, int64_t);

template <class Key>
int sort_pairs(Stream stream, const SortBuffers<Key>& buffers, int64_t n, int bits, void* workspace) {
  if (n == 0 || bits == 0) return 0;
  launch(sort_pairs_kernel<Key>, dim3(1), dim3(1), 0, stream, buffers, n, bits, workspace, workspace_for(n));
  return (bits + kDigitBits - 1) / kDigitBits % 2;
}
template int sort_pairs(Stream, const SortBuffers<uint32_t>&, int64_t, int, void*);
template int sort_pairs(Stream, const SortBuffers<uint64_t>&, int64_t, int, void*);

int64_t scan_rows_workspace(Stream, int64_t rows, int64_t cols) { return workspace_for(rows * cols); }

void scan_rows(Stream stream, int64_t* values, int64_t rows, int64_t cols, void* workspace) {
  if (rows == 0 || cols == 0) return;
  launch(scan_rows_kernel, dim3(1), dim3(1), 0, stream, values, rows, cols, workspace, workspace_for(rows * cols));
}

int64_t select_flagged_workspace(Stream, int64_t n) { return workspace_for(n); }

void select_flagged(Stream stream, const uint8_t* flags, int64_t n, int64_t* positions, void* workspace) {
  if (n == 0) return;
  launch(select_flagged_kernel, dim3(1), dim3(1), 0, stream, flags, n, positions, workspace, workspace_for(n));
}

}  // namespace tern::kernels::cuda
