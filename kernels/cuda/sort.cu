// Stable radix sort, least significant digit first, 8 bits a pass: count the digits of each block's part, then move
// every pair to its place. Ranks within a block follow the order of the input, so no order depends on timing.

#include "tern/kernels/cuda/sort.h"

#include <algorithm>

#include "tern/kernels/cuda/support/launch.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarpSize;
constexpr int kDigits = 256, kDigitBits = 8;  // one thread a digit where digits are gone through
static_assert(kDigits == kThreads);
constexpr int kItems = 8;                 // pairs of a thread in one tile
constexpr int kTile = kThreads * kItems;  // pairs of a block in one step
constexpr int kWarpTile = kWarpSize * kItems;
constexpr int64_t kMaxBlocks = 512;  // every block reads the counts of all

/// Pairs of one block: whole tiles.
int64_t part_size(int64_t n) {
  const int64_t tiles = (n + kTile - 1) / kTile;
  return (tiles + kMaxBlocks - 1) / kMaxBlocks * kTile;
}
int64_t block_count(int64_t n) { return n == 0 ? 0 : (n + part_size(n) - 1) / part_size(n); }

__device__ int digit_of(uint32_t key, int shift) { return static_cast<int>(key >> shift & (kDigits - 1)); }

/// counts[block][digit] of the block's part.
__global__ void __launch_bounds__(kThreads)
    count_digits_kernel(const uint32_t* keys, int64_t n, int shift, int64_t part, uint32_t* counts) {
  TERN_SHARED(uint32_t, count, [kDigits]);
  count[threadIdx.x] = 0;
  block_barrier();
  const int64_t begin = blockIdx.x * part, end = min(begin + part, n);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) atomicAdd(&count[digit_of(keys[i], shift)], 1u);
  block_barrier();
  counts[blockIdx.x * kDigits + threadIdx.x] = count[threadIdx.x];
}

/// The sum of the values of all threads before this one.
__device__ uint32_t sum_before(uint32_t value) {
  TERN_SHARED(uint32_t, totals, [kWarps]);
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  uint32_t sum = value;  // of this lane and those before it
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == kWarpSize - 1) totals[warp] = sum;
  block_barrier();
  for (int w = 0; w < warp; ++w) sum += totals[w];
  return sum - value;
}

/// The lanes among `valid` ones with the same digit as this one.
__device__ unsigned lanes_of_digit(int digit, bool valid) {
  unsigned lanes = __ballot_sync(kFullWarp, valid);
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const unsigned others = __ballot_sync(kFullWarp, set);
    lanes &= set ? others : ~others;
  }
  return lanes;
}

__global__ void __launch_bounds__(kThreads)
    move_pairs_kernel(const uint32_t* keys, const uint32_t* values, int64_t n, int shift, int64_t part,
                      const uint32_t* counts, uint32_t* sorted_keys, uint32_t* sorted_values) {
  TERN_SHARED(uint32_t, places, [kWarps][kDigits]);
  const int thread = threadIdx.x, lane = thread % kWarpSize, warp = thread / kWarpSize;
  uint32_t before = 0, total = 0;  // of digit `thread`: in the blocks before this one, in all
  for (unsigned block = 0; block < gridDim.x; ++block) {
    const uint32_t count = counts[block * kDigits + thread];
    if (block < blockIdx.x) before += count;
    total += count;
  }
  uint32_t next = sum_before(total) + before;  // where the next pair with digit `thread` goes
  const int64_t begin = blockIdx.x * part, end = min(begin + part, n);
  for (int64_t tile = begin; tile < end; tile += kTile) {
    for (int digit = lane; digit < kDigits; digit += kWarpSize) places[warp][digit] = 0;
    __syncwarp();
    uint32_t key[kItems], rank[kItems];
    for (int item = 0; item < kItems; ++item) {
      const int64_t i = tile + warp * kWarpTile + item * kWarpSize + lane;
      key[item] = i < end ? keys[i] : 0;
      const int digit = digit_of(key[item], shift);
      const unsigned same = lanes_of_digit(digit, i < end), earlier = same & ((1u << lane) - 1);
      rank[item] = places[warp][digit] + __popc(earlier);
      __syncwarp();
      if (i < end && earlier == 0) places[warp][digit] += __popc(same);
      __syncwarp();
    }
    block_barrier();
    for (int w = 0; w < kWarps; ++w) {  // counts become places, warp after warp
      const uint32_t count = places[w][thread];
      places[w][thread] = next;
      next += count;
    }
    block_barrier();
    for (int item = 0; item < kItems; ++item) {
      const int64_t i = tile + warp * kWarpTile + item * kWarpSize + lane;
      if (i >= end) continue;
      const uint32_t place = places[warp][digit_of(key[item], shift)] + rank[item];
      sorted_keys[place] = key[item];
      sorted_values[place] = values[i];
    }
    __syncwarp();  // the warp's own counters are zeroed next
  }
}

}  // namespace

int64_t sort_pairs_workspace(int64_t n) { return block_count(n) * kDigits * static_cast<int64_t>(sizeof(uint32_t)); }

int sort_pairs(Stream stream, const SortBuffers& buffers, int64_t n, int bits, void* workspace) {
  if (n == 0) return 0;
  const dim3 grid(static_cast<unsigned>(block_count(n)));
  auto* counts = static_cast<uint32_t*>(workspace);
  int from = 0;
  for (int shift = 0; shift < bits; shift += kDigitBits, from = 1 - from) {
    launch(count_digits_kernel, grid, dim3(kThreads), 0, stream, buffers.keys[from], n, shift, part_size(n), counts);
    launch(move_pairs_kernel, grid, dim3(kThreads), 0, stream, buffers.keys[from], buffers.values[from], n, shift,
           part_size(n), counts, buffers.keys[1 - from], buffers.values[1 - from]);
  }
  return from;
}

}  // namespace tern::kernels::cuda
