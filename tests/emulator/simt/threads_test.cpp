// The emulator against CUDA's definitions: indices, barriers, shared memory, schedules, counters, and errors.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/support/vector.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/simt/schedules.h"

namespace tern::kernels::cuda {
namespace {

// --- indices ---

__global__ void index_kernel(int* visits, int* wrong) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  if (thread % 32 != simt::lane()) atomicAdd(wrong, 1);
  atomicAdd(&visits[block * (blockDim.x * blockDim.y * blockDim.z) + thread], 1);
}

TEST(Emulator, EveryThreadRunsOnceWithItsIndex) {
  for_each_schedule([] {
    for (auto [grid, block] : {std::pair{dim3(3, 2, 4), dim3(5, 7, 2)},
                               {dim3(1), dim3(1)},
                               {dim3(2), dim3(1024)},
                               {dim3(1, 9), dim3(4, 4, 64)}}) {
      std::vector<int> visits(grid.x * grid.y * grid.z * block.x * block.y * block.z);
      int wrong = 0;
      launch(index_kernel, grid, block, 0, kCuda, visits.data(), &wrong);
      EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
      EXPECT_EQ(wrong, 0);
    }
  });
}

// --- barriers ---

template <bool kBarrier>
__global__ void reverse_kernel(const float* in, float* out, int n) {
  TERN_DYNAMIC_SHARED(float, tile);
  const int t = static_cast<int>(threadIdx.x);
  tile[t] = in[t];
  if constexpr (kBarrier) __syncthreads();
  out[t] = tile[n - 1 - t];
}

int reversed_wrongly(void (*kernel)(const float*, float*, int), int n) {
  std::vector<float> in(n), out(n);
  std::iota(in.begin(), in.end(), 1.0f);
  launch(kernel, 1, static_cast<unsigned>(n), n * sizeof(float), kCuda, in.data(), out.data(), n);
  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += !(out[i] == in[n - 1 - i]);
  return wrong;
}

TEST(Emulator, BarrierMakesWritesVisible) {
  for_each_schedule([] {
    for (int n : {1, 2, 31, 32, 33, 70, 1024}) EXPECT_EQ(reversed_wrongly(reverse_kernel<true>, n), 0);
  });
}

TEST(Emulator, MissingBarrierShows) {
  if (test::kThreadSanitized) GTEST_SKIP() << "sanitizer: ThreadSanitizer reports the race (sanitizer_test.cpp)";
  for_each_schedule([] { EXPECT_GT(reversed_wrongly(reverse_kernel<false>, 70), 0); });
}

__global__ void predicate_kernel(const int* predicate, int* count, int* all, int* any) {
  const int t = static_cast<int>(threadIdx.x), p = predicate[t];
  count[t] = __syncthreads_count(p);
  all[t] = __syncthreads_and(p);
  any[t] = __syncthreads_or(p);
}

TEST(Emulator, BarriersThatCount) {
  std::mt19937_64 random = fresh_random();
  for_each_schedule([&] {
    for (int n : {1, 45, 96})
      for (int kind = 0; kind < 3; ++kind) {
        std::vector<int> predicate(n), count(n), all(n), any(n);
        for (int& p : predicate) p = kind == 2 ? static_cast<int>(random() % 3) : kind * 5;
        launch(predicate_kernel, 1, static_cast<unsigned>(n), 0, kCuda, predicate.data(), count.data(), all.data(),
               any.data());
        const auto expected = std::ranges::count_if(predicate, [](int p) { return p != 0; });
        for (int t = 0; t < n; ++t) {
          EXPECT_EQ(count[t], expected);
          EXPECT_EQ(all[t] != 0, expected == n);
          EXPECT_EQ(any[t] != 0, expected > 0);
        }
      }
  });
}

// --- shared memory ---

__global__ void fresh_memory_kernel(int* numbers) {
  TERN_SHARED(float, fixed, [64]);
  TERN_SHARED(double, wide);
  TERN_DYNAMIC_SHARED(BFloat16, dynamic);
  const int t = static_cast<int>(threadIdx.x);
  if (!std::isnan(fixed[t]) || !std::isnan(static_cast<float>(dynamic[t]))) atomicAdd(numbers, 1);
  if (t == 0 && !std::isnan(wide)) atomicAdd(numbers, 1);
  __syncthreads();
  fixed[t] = 1;
  dynamic[t] = BFloat16(1.0f);
  if (t == 0) wide = 1;
}

TEST(Emulator, SharedMemoryStartsAsNaNInEveryBlock) {
  for_each_schedule([] {
    int numbers = 0;
    launch(fresh_memory_kernel, 5, 64, 64 * sizeof(BFloat16), kCuda, &numbers);
    EXPECT_EQ(numbers, 0);
  });
}

__global__ void overrun_kernel(int n) {
  TERN_SHARED(float, tile, [32]);
  float* p = tile;
  if (threadIdx.x == 0) p[n] = 1;
}
__global__ void dynamic_overrun_kernel(int n) {
  TERN_DYNAMIC_SHARED(float, tile);
  if (threadIdx.x == 0) tile[n] = 1;
}

TEST(Emulator, WritesPastSharedMemoryAreErrors) {
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH(launch(overrun_kernel, 1, 32, 0, kCuda, 32), "AddressSanitizer");
  EXPECT_DEATH(launch(dynamic_overrun_kernel, 1, 32, 100, kCuda, 25), "AddressSanitizer");
#else
  EXPECT_TRUE(has(error_of([] { launch(overrun_kernel, 1, 32, 0, kCuda, 32); }), "past the end"));
  EXPECT_TRUE(has(error_of([] { launch(dynamic_overrun_kernel, 1, 32, 100, kCuda, 25); }), "past the end"));
#endif
  launch(overrun_kernel, 1, 32, 0, kCuda, 31);
  launch(dynamic_overrun_kernel, 1, 32, 100, kCuda, 24);
}

template <int kBytes>
__global__ void big_memory_kernel() {
  TERN_SHARED(char, tile, [kBytes]);
  tile[threadIdx.x] = 0;
}

TEST(Emulator, TooMuchSharedMemoryIsAnError) {
  launch(big_memory_kernel<48 * 1024>, 1, 1, 179 * 1024, kCuda);
  EXPECT_TRUE(has(error_of([] { launch(big_memory_kernel<48 * 1024 + 1>, 1, 1, 0, kCuda); }), "48 KiB"));
  EXPECT_TRUE(has(error_of([] { launch(big_memory_kernel<48 * 1024>, 1, 1, 179 * 1024 + 1, kCuda); }), "227 KiB"));
  EXPECT_TRUE(has(error_of([] { launch(big_memory_kernel<1>, 1, 1, 227 * 1024 + 1, kCuda); }), "227 KiB"));
}

// --- errors ---

__global__ void nothing_kernel() {}

TEST(Emulator, InvalidLaunchesAreErrorsThatNameTheLaunch) {
  for (auto [grid, block] : {std::pair{dim3(0), dim3(32)},
                             {dim3(1, 0), dim3(32)},
                             {dim3(1), dim3(0)},
                             {dim3(1), dim3(1025)},
                             {dim3(1), dim3(32, 33)},
                             {dim3(1), dim3(1, 1, 65)},
                             {dim3(1, 65536), dim3(1)},
                             {dim3(1, 1, 65536), dim3(1)},
                             {dim3(0x80000000u), dim3(1)}}) {
    const int line = __LINE__ + 1;
    expect_error([&] { launch(nothing_kernel, grid, block, 0, kCuda); }, {"invalid launch configuration", place(line)});
  }
  launch(nothing_kernel, dim3(3, 2, 2), dim3(16, 1, 64), 0, kCuda);
}

constexpr int kDivergentLine = __LINE__ + 4;
__global__ void divergent_kernel(int* out) {
  if (threadIdx.x < 40) {
    out[threadIdx.x] = 1;
    __syncthreads();
  } else {
    __syncthreads();
  }
}
constexpr int kEarlyLine = __LINE__ + 4;
__global__ void early_return_kernel(int* out, unsigned n) {
  if (threadIdx.x >= n) return;
  out[threadIdx.x] = 1;
  __syncthreads();
}
constexpr int kKindLine = __LINE__ + 3;
__global__ void mixed_barrier_kernel() {
  const bool first = threadIdx.x == 0;
  const auto wait = [](bool plain) { plain ? __syncthreads() : static_cast<void>(__syncthreads_or(1)); };
  wait(first);
}

TEST(Emulator, DivergentBarriersAreErrorsThatNameThePlaces) {
  for_each_schedule([] {
    std::vector<int> out(64);
    expect_error([&] { launch(divergent_kernel, 1, 64, 0, kCuda, out.data()); },
                 {"different barriers", place(kDivergentLine), place(kDivergentLine + 2), "(block 0,0,0, thread "});
    for (int n : {1, 33, 63})
      expect_error([&] { launch(early_return_kernel, 1, 64, 0, kCuda, out.data(), n); },
                   {"left the kernel", place(kEarlyLine)});
    launch(early_return_kernel, 1, 64, 0, kCuda, out.data(), 64);
    expect_error([] { launch(mixed_barrier_kernel, 1, 64, 0, kCuda); }, {place(kKindLine)});
  });
}

constexpr int kMisalignedLine = __LINE__ + 2;
__global__ void vector_kernel(const float* in, float* out, int shift) {
  store_vector(out + 4 * threadIdx.x, load_vector<4>(in + 4 * threadIdx.x + shift));
}

TEST(Emulator, MisalignedVectorAccessIsAnError) {
  for_each_schedule([] {
    alignas(16) float in[68] = {}, out[68] = {};
    launch(vector_kernel, 1, 16, 0, kCuda, in, out, 0);
    const std::string misaligned = "misaligned access, " + place(kMisalignedLine);
    for (int shift : {1, 2, 3}) {
      expect_error([&] { launch(vector_kernel, 1, 16, 0, kCuda, in, out, shift); }, {misaligned});
      expect_error([&] { launch(vector_kernel, 1, 16, 0, kCuda, in, out + shift, 0); }, {misaligned});
    }
  });
}

__global__ void throwing_kernel(int thread) {
  if (static_cast<int>(threadIdx.x) == thread) fail("thrown by ", thread);
}
__global__ void launching_kernel() { launch(nothing_kernel, 1, 1, 0, kCuda); }

TEST(Emulator, ExceptionsEndTheLaunch) {
  for_each_schedule([] {
    expect_error([] { launch(throwing_kernel, 2, 64, 0, kCuda, 40); }, {"thrown by 40", "thread 40,0,0"});
    expect_error([] { launch(launching_kernel, 1, 1, 0, kCuda); }, {"cannot launch a kernel"});
    EXPECT_EQ(reversed_wrongly(reverse_kernel<true>, 64), 0);  // the emulator still works after the errors
  });
}

// --- schedules ---

__global__ void ticket_kernel(int* next, int* order) {
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  __syncthreads();
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

std::vector<int> order_of_threads(simt::Order order) {
  simt::set_order(order);
  std::vector<int> tickets(2 * 3 * 96);
  int next = 0;
  launch(ticket_kernel, 3, 96, 0, kCuda, &next, tickets.data());
  simt::set_order({});
  return tickets;
}

TEST(Emulator, SchedulesDifferAndRepeat) {
  std::set<std::vector<int>> seen;
  for (simt::Order order : simt::kSchedules) {
    const std::vector<int> once = order_of_threads(order);
    EXPECT_EQ(once, order_of_threads(order));
    EXPECT_TRUE(seen.insert(once).second);
    std::vector<int> visits(3 * 96);
    for (int thread : once) ++visits.at(thread);
    EXPECT_EQ(visits, std::vector<int>(3 * 96, 2));
  }
  EXPECT_EQ(order_of_threads({})[1], 1);
  EXPECT_EQ(order_of_threads({simt::Order::kReverse, 0})[0], 3 * 96 - 1);
}

/// The last block to finish adds the other blocks' sums.
__global__ void last_block_kernel(const float* in, float* partial, unsigned* done, float* out) {
  TERN_SHARED(unsigned, last);
  const unsigned t = threadIdx.x;
  partial[blockIdx.x * blockDim.x + t] = 2 * in[blockIdx.x * blockDim.x + t];
  __threadfence();
  __syncthreads();
  if (t == 0) last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (last == 0) return;
  __threadfence();
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += __ldcg(partial + b * blockDim.x + t);
  out[t] = sum;
}

TEST(Emulator, LastBlockSeesTheOthers) {
  std::mt19937_64 random = fresh_random();
  constexpr int kBlocks = 5, kThreads = 64;
  std::vector<float> in(kBlocks * kThreads);
  for (float& x : in) x = std::normal_distribution<float>()(random);
  unsigned done = 0;
  for_each_schedule([&] {
    std::vector<float> partial(in.size()), out(kThreads);
    launch(last_block_kernel, kBlocks, kThreads, 0, kCuda, in.data(), partial.data(), &done, out.data());
    EXPECT_EQ(done, 0u);
    for (int t = 0; t < kThreads; ++t) {
      float sum = 0;
      for (int b = 0; b < kBlocks; ++b) sum += 2 * in[b * kThreads + t];
      EXPECT_EQ(out[t], sum);
    }
  });
}

__global__ void lock_kernel(unsigned* lock, int* counter) {
  while (atomicCAS(lock, 0u, 1u) != 0) __nanosleep(20);
  const int seen = __ldcg(counter);
  __stcg(counter, seen + 1);
  atomicExch(lock, 0u);
}

TEST(Emulator, ThreadsMayWaitForEachOther) {
  for_each_schedule([] {
    unsigned lock = 0;
    int counter = 0;
    launch(lock_kernel, 2, 70, 0, kCuda, &lock, &counter);
    EXPECT_EQ(counter, 140);
  });
}

// --- counters and arguments ---

__global__ void copy_kernel(const float* in, float* out, BFloat16* half) {
  using Float4 = Vector<float, 4>;
  TERN_SHARED(Float4, tile, [32]);
  const unsigned t = threadIdx.x;
  store_vector(tile[t].v, load_readonly<4>(in + 4 * t));  // shared memory is not counted
  store_vector(out + 4 * t, load_vector<4>(tile[t].v));
  store_vector(half + 2 * t, Vector<BFloat16, 2>{});
}

TEST(Emulator, CountsGlobalBytes) {
  for_each_schedule([] {
    alignas(16) float in[128] = {}, out[128] = {};
    alignas(16) BFloat16 half[64];
    std::iota(in, in + 128, 0.0f);
    simt::reset_stats();
    launch(copy_kernel, 1, 32, 0, kCuda, in, out, half);
    const simt::Stats stats = simt::stats();
    EXPECT_EQ(stats.launches, 1u);
    EXPECT_EQ(stats.blocks, 1u);
    EXPECT_EQ(stats.threads, 32u);
    EXPECT_GT(stats.switches, 0u);
    EXPECT_EQ(stats.loaded_bytes, 512u);
    EXPECT_EQ(stats.stored_bytes, 512u + 128u);
    EXPECT_EQ(std::memcmp(out, in, sizeof in), 0);
    launch(copy_kernel, 1, 32, 0, kCuda, in, out, half);
    EXPECT_EQ(simt::stats().loaded_bytes, 2 * 512u);
    EXPECT_EQ(simt::stats().launches, 2u);
  });
}

struct Pair {
  int64_t first;
  float second;
};
__global__ void arguments_kernel(double* out, int64_t whole, float real, const int* absent, Pair pair) {
  out[0] = static_cast<double>(whole);
  out[1] = real;
  out[2] = absent == nullptr;
  out[3] = static_cast<double>(pair.first);
  out[4] = pair.second;
}

TEST(Emulator, ArgumentsConvertAsInACall) {
  std::vector<double> out(5);
  launch(arguments_kernel, 1, 1, 0, kCuda, out.data(), -3, 0.5, nullptr, Pair{int64_t{1} << 40, 2.5f});
  EXPECT_EQ(out, (std::vector<double>{-3, 0.5, 1, 0x1p40, 2.5}));
}

}  // namespace
}  // namespace tern::kernels::cuda
