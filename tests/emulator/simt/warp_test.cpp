// Warp operations and atomics of the emulator against CUDA's definitions.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "tern/kernels/cuda/support/launch.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels::cuda {
namespace {

std::mt19937_64 random_bits = fresh_random();

template <class T>
std::vector<T> random_values(int n) {
  std::vector<T> values(n);
  for (T& v : values) {
    if constexpr (std::is_floating_point_v<T>)
      v = static_cast<T>(static_cast<int64_t>(random_bits())) / T(3);
    else
      v = static_cast<T>(random_bits());
  }
  return values;
}

// --- shuffles ---

template <class T>
__global__ void shuffle_kernel(const T* in, T* out, int argument, int width) {
  const unsigned t = threadIdx.x, n = blockDim.x;
  out[t] = __shfl_sync(kFullWarp, in[t], argument, width);
  out[n + t] = __shfl_up_sync(kFullWarp, in[t], static_cast<unsigned>(argument), width);
  out[2 * n + t] = __shfl_down_sync(kFullWarp, in[t], static_cast<unsigned>(argument), width);
  out[3 * n + t] = __shfl_xor_sync(kFullWarp, in[t], argument, width);
}

/// The lanes that the four shuffles read according to the programming guide.
std::vector<int> shuffle_sources(int lane, int argument, int width) {
  const int start = lane / width * width, in_group = lane % width;
  return {start + argument % width, in_group >= argument ? lane - argument : lane,
          in_group + argument < width ? lane + argument : lane,
          (lane ^ argument) < start + width ? lane ^ argument : lane};
}

template <class T>
void test_shuffles() {
  constexpr int kThreads = 96;
  const std::vector<T> in = random_values<T>(kThreads);
  for (int width : {1, 2, 4, 8, 16, 32})
    for (int argument : {0, 1, 3, 5, 16, 31}) {
      std::vector<T> out(4 * kThreads);
      launch(shuffle_kernel<T>, 1, kThreads, 0, kCuda, in.data(), out.data(), argument, width);
      for (int t = 0; t < kThreads; ++t) {
        const std::vector<int> sources = shuffle_sources(t % 32, argument, width);
        for (int kind = 0; kind < 4; ++kind)
          ASSERT_EQ(out[kind * kThreads + t], in[t / 32 * 32 + sources[kind]])
              << "shuffle " << kind << ", thread " << t << ", argument " << argument << ", width " << width;
      }
    }
}

TEST(EmulatorWarp, Shuffles) {
  for_each_schedule([] {
    test_shuffles<int>();
    test_shuffles<uint32_t>();
    test_shuffles<float>();
    test_shuffles<double>();
    test_shuffles<int64_t>();
  });
}

/// Each quarter of a warp shuffles separately, a different number of times.
__global__ void partial_kernel(const float* in, float* out) {
  const unsigned quarter = threadIdx.x / 8, mask = 0xffu << 8 * quarter;
  float value = in[threadIdx.x];
  for (unsigned round = 0; round <= quarter; ++round) value = __shfl_sync(mask, value, (threadIdx.x + 1) % 8, 8);
  out[threadIdx.x] = value;
}

TEST(EmulatorWarp, PartialMasks) {
  const std::vector<float> in = random_values<float>(32);
  for_each_schedule([&] {
    std::vector<float> out(32);
    launch(partial_kernel, 1, 32, 0, kCuda, in.data(), out.data());
    for (int t = 0; t < 32; ++t) EXPECT_EQ(out[t], in[t / 8 * 8 + (t + t / 8 + 1) % 8]);
  });
}

__global__ void leaving_kernel(int* out, unsigned stay) {
  if (threadIdx.x >= stay) return;
  out[threadIdx.x] = static_cast<int>(__ballot_sync(kFullWarp, 1));
  __syncwarp();
}

TEST(EmulatorWarp, LanesThatLeftAreNotWaitedFor) {
  for_each_schedule([] {
    for (int stay : {1, 13, 31}) {
      std::vector<int> out(32);
      launch(leaving_kernel, 1, 32, 0, kCuda, out.data(), stay);
      for (int t = 0; t < 32; ++t) EXPECT_EQ(static_cast<unsigned>(out[t]), t < stay ? (1u << stay) - 1 : 0u);
    }
  });
}

__global__ void absent_source_kernel(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, 20);
}

TEST(EmulatorWarp, ValueOfAnAbsentLaneIsNaN) {
  for_each_schedule([] {
    std::vector<float> out(16);
    launch(absent_source_kernel, 1, 32, 0, kCuda, out.data());
    for (float value : out) EXPECT_TRUE(value != value);
  });
}

__global__ void exchange_kernel(int* out) {
  TERN_SHARED(int, slot, [64]);
  const unsigned t = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    slot[t] = static_cast<int>(t) * (round + 1);
    __syncwarp();
    out[64 * round + t] = slot[t ^ 5];
    __syncwarp();
  }
}

TEST(EmulatorWarp, WarpBarrierMakesWritesVisible) {
  for_each_schedule([] {
    std::vector<int> out(192);
    launch(exchange_kernel, 1, 64, 0, kCuda, out.data());
    for (int i = 0; i < 192; ++i) EXPECT_EQ(out[i], (i % 64 ^ 5) * (i / 64 + 1));
  });
}

// --- votes ---

/// One lane's results, in the order of the kernel's calls.
using Votes = std::array<int64_t, 14>;
__global__ void vote_kernel(const unsigned* mask, const int* value, Votes* out) {
  const unsigned t = threadIdx.x, m = mask[t / 32];
  if ((m >> t % 32 & 1u) == 0) return;
  const int v = value[t];
  const unsigned u = static_cast<unsigned>(v);
  out[t] = {__ballot_sync(m, v & 1),   __match_any_sync(m, v),          __match_any_sync(m, int64_t{v} << 33),
            __reduce_add_sync(m, u),   __reduce_min_sync(m, u),         __reduce_max_sync(m, u),
            __reduce_and_sync(m, u),   __reduce_or_sync(m, u),          __reduce_xor_sync(m, u),
            __any_sync(m, v & 2) != 0, __all_sync(m, (v & 4) + 4) != 0, __reduce_add_sync(m, v),
            __reduce_min_sync(m, v),   __reduce_max_sync(m, v)};
}

/// The votes of lane `own` among `lanes` of a warp whose values start at `value`.
Votes expected_votes(const std::vector<int>& lanes, const int* value, int own) {
  unsigned ballot = 0, match = 0, add = 0, min = ~0u, max = 0, bits_and = ~0u, bits_or = 0, bits_xor = 0;
  int signed_min = std::numeric_limits<int>::max(), signed_max = std::numeric_limits<int>::min();
  for (int lane : lanes) {
    const int v = value[lane];
    const unsigned u = static_cast<unsigned>(v);
    if (v & 1) ballot |= 1u << lane;
    if (v == value[own]) match |= 1u << lane;
    add += u;
    min = std::min(min, u);
    max = std::max(max, u);
    bits_and &= u;
    bits_or |= u;
    bits_xor ^= u;
    signed_min = std::min(signed_min, v);
    signed_max = std::max(signed_max, v);
  }
  return {ballot,     match,
          match,      add,
          min,        max,
          bits_and,   bits_or,
          bits_xor,   (bits_or & 2) != 0,
          true,       static_cast<int>(add),
          signed_min, signed_max};
}

TEST(EmulatorWarp, VotesAndReductions) {
  for_each_schedule([] {
    std::vector<unsigned> mask = {~0u, static_cast<unsigned>(random_bits()) | 1u, 1u << 31, 0xffu};
    std::vector<int> value = random_values<int>(4 * 32);
    for (int t = 0; t < 32; t += 3) value[t] = value[0];
    for (int t = 96; t < 128; ++t) value[t] = -7;
    std::vector<Votes> out(value.size());
    launch(vote_kernel, 1, 128, 0, kCuda, mask.data(), value.data(), out.data());
    for (int warp = 0; warp < 4; ++warp) {
      std::vector<int> lanes;
      for (int lane = 0; lane < 32; ++lane)
        if (mask[warp] >> lane & 1u) lanes.push_back(lane);
      for (int lane : lanes)
        EXPECT_EQ(out[32 * warp + lane], expected_votes(lanes, &value[32 * warp], lane)) << "lane " << lane;
    }
  });
}

__global__ void any_all_kernel(int set, int* out) {
  const int p = static_cast<int>(threadIdx.x) < set;
  out[threadIdx.x] = 2 * (__all_sync(kFullWarp, p) != 0) + (__any_sync(kFullWarp, p) != 0);
}

TEST(EmulatorWarp, AnyAndAll) {
  for_each_schedule([] {
    for (int set : {0, 1, 31, 32}) {
      std::vector<int> out(32);
      launch(any_all_kernel, 1, 32, 0, kCuda, set, out.data());
      EXPECT_EQ(out, std::vector<int>(32, 2 * (set == 32) + (set > 0)));
    }
  });
}

// --- misuse ---

constexpr int kTwoPlacesLine = __LINE__ + 4;
__global__ void two_places_kernel(float* out) {
  float value;
  if (threadIdx.x % 2 != 0)
    value = __shfl_xor_sync(kFullWarp, 1.0f, 2);
  else
    value = __shfl_xor_sync(kFullWarp, 2.0f, 2);
  out[threadIdx.x] = value;
}
constexpr int kHalfLine = __LINE__ + 2;
__global__ void half_warp_kernel(float* out) {
  if (threadIdx.x % 2 != 0) out[threadIdx.x] = __shfl_xor_sync(kFullWarp, 1.0f, 2);
  __syncthreads();
}
constexpr int kOutsideLine = __LINE__ + 1;
__global__ void outside_mask_kernel(float* out) { out[threadIdx.x] = __shfl_sync(0xffu, 1.0f, 0); }
constexpr int kMasksLine = __LINE__ + 2;
__global__ void two_masks_kernel(int* out) {
  out[threadIdx.x] = static_cast<int>(__ballot_sync(threadIdx.x < 3 ? 0xffu : 0xffffu, 1));
}
__global__ void width_kernel(float* out, int width) { out[threadIdx.x] = __shfl_sync(kFullWarp, 1.0f, 0, width); }

TEST(EmulatorWarp, MisuseIsAnErrorThatNamesThePlace) {
  for_each_schedule([] {
    std::vector<float> out(32);
    expect_error([&] { launch(two_places_kernel, 1, 32, 0, kCuda, out.data()); },
                 {"different warp operations", place(kTwoPlacesLine), place(kTwoPlacesLine + 2)});
    expect_error([&] { launch(half_warp_kernel, 1, 32, 0, kCuda, out.data()); },
                 {"deadlock", "16 threads wait at the warp operation, " + place(kHalfLine),
                  "16 threads wait at the barrier, " + place(kHalfLine + 1)});
    expect_error([&] { launch(outside_mask_kernel, 1, 32, 0, kCuda, out.data()); },
                 {"not in its mask, " + place(kOutsideLine)});

    std::vector<int> votes(16);
    const std::string message = error_of([&] { launch(two_masks_kernel, 1, 16, 0, kCuda, votes.data()); });
    EXPECT_TRUE(has(message, "different warp operations") || has(message, "not in its mask"));
    EXPECT_TRUE(has(message, place(kMasksLine)));

    for (int width : {0, 3, 64})
      expect_error([&] { launch(width_kernel, 1, 32, 0, kCuda, out.data(), width); }, {"power of two"});
  });
}

// --- atomics ---

template <class T>
__global__ void atomic_kernel(const T* in, T* out, T* old) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&out[0], in[i]);
  atomicSub(&out[1], in[i]);
  atomicMax(&out[2], in[i]);
  atomicMin(&out[3], in[i]);
  atomicAnd(&out[4], in[i]);
  atomicOr(&out[5], in[i]);
  atomicXor(&out[6], in[i]);
  old[i] = atomicExch(&out[7], in[i]);
}

template <class T>
void test_atomics() {
  using U = std::make_unsigned_t<T>;
  constexpr int kCount = 2 * 70;
  const std::vector<T> in = random_values<T>(kCount);
  const std::vector<T> start = random_values<T>(8);
  std::vector<T> out = start, want = start, old(kCount);
  launch(atomic_kernel<T>, 2, 70, 0, kCuda, in.data(), out.data(), old.data());
  for (T v : in) {
    want[0] = static_cast<T>(static_cast<U>(want[0]) + static_cast<U>(v));
    want[1] = static_cast<T>(static_cast<U>(want[1]) - static_cast<U>(v));
    want[2] = std::max(want[2], v);
    want[3] = std::min(want[3], v);
    want[4] &= v;
    want[5] |= v;
    want[6] ^= v;
  }
  // Each value except the last was returned as an old value.
  old.push_back(out[7]);
  std::vector<T> exchanged = in;
  exchanged.push_back(start[7]);
  std::sort(old.begin(), old.end());
  std::sort(exchanged.begin(), exchanged.end());
  EXPECT_EQ(old, exchanged);
  out.pop_back();
  want.pop_back();
  EXPECT_EQ(out, want);
}

TEST(EmulatorWarp, Atomics) {
  for_each_schedule([] {
    test_atomics<int>();
    test_atomics<unsigned>();
    test_atomics<int64_t>();
    test_atomics<unsigned long long>();
  });
}

__global__ void increment_kernel(unsigned* counter, unsigned* old) {
  old[threadIdx.x] = atomicInc(counter, 9);
  atomicCAS(&counter[1], threadIdx.x == 5 ? 0u : 100u, 7u);
}

TEST(EmulatorWarp, AtomicIncrementWrapsAndCompareAndSwapCompares) {
  for_each_schedule([] {
    unsigned counter[2] = {8, 0};
    std::vector<unsigned> old(70), count(10);
    launch(increment_kernel, 1, 70, 0, kCuda, &counter[0], old.data());
    EXPECT_EQ(counter[0], 8u);
    EXPECT_EQ(counter[1], 7u);
    for (unsigned value : old) ++count.at(value);
    EXPECT_EQ(count, std::vector<unsigned>(10, 7));
  });
}

}  // namespace
}  // namespace tern::kernels::cuda
