// Errors that only the emulator together with a sanitizer can find: races between CUDA threads whose results are
// nevertheless right (ThreadSanitizer), and accesses one byte out of bounds (AddressSanitizer).

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/support/mma.h"
#include "tern/kernels/cuda/support/vector.h"
#include "tern/tests/emulator/messages.h"
#include "tern/tests/emulator/simt/schedules.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace tern::kernels::cuda {
namespace {

// --- races ---

// Each kernel is correct with kOrdered; without it only when threads happen to run in the right order.

/// Half of the block writes values that the other half reads, without a block barrier.
template <bool kOrdered>
__global__ void halves_kernel(int* out) {
  TERN_SHARED(int, tile, [64]);
  const int t = static_cast<int>(threadIdx.x);
  if (t < 64) tile[t] = t;
  if constexpr (kOrdered) block_barrier();
  out[t] = t < 64 ? t : tile[t - 64] + 64;
}

/// A lane reads the previous lane's value without a warp barrier.
template <bool kOrdered>
__global__ void lanes_kernel(int* out) {
  TERN_SHARED(int, tile, [128]);
  const int t = static_cast<int>(threadIdx.x);
  tile[t] = t;
  if constexpr (kOrdered) __syncwarp();
  out[t] = t % 32 == 0 ? t : tile[t - 1] + 1;
}

/// One warp overwrites values that another reads, without a barrier between two uses of a tile.
template <bool kOrdered>
__global__ void reuse_kernel(int* out) {
  TERN_SHARED(int, tile, [32]);
  const int t = static_cast<int>(threadIdx.x);
  if (t < 32) tile[t] = t;
  __syncthreads();
  out[t] = t < 32 ? tile[t] : t;
  if constexpr (kOrdered) __syncthreads();
  if (t >= 64 && t < 96) tile[t - 64] = -1;
}

/// A thread reads another thread's asynchronous copy, which has completed, without a barrier.
template <bool kOrdered>
__global__ void copies_kernel(const int* in, int* out) {
  TERN_SHARED(int, tile, [128]);
  const int t = static_cast<int>(threadIdx.x);
  if (t % 4 == 0) cp_async16(&tile[t], in + t);
  cp_async_commit();
  cp_async_wait<0>();
  if constexpr (kOrdered) __syncthreads();
  out[t] = tile[t];
}

/// All threads write the same value, which is right under every schedule; with atomics it is not a race.
template <bool kOrdered>
__global__ void same_value_kernel(int* out, int* found) {
  const int t = static_cast<int>(threadIdx.x);
  out[t] = t;
  if constexpr (kOrdered)
    atomicOr(found, 1);
  else
    *found = 1;
}

/// The second block reads the first block's results from global memory.
template <bool kOrdered>
__global__ void blocks_kernel(int* out, int* left) {
  const int t = static_cast<int>(threadIdx.x);
  if (blockIdx.x == 0)
    left[t] = t;
  else
    out[t] = kOrdered ? t : left[t];
}

constexpr unsigned kThreads = 128;

struct Racer {
  const char* name;
  std::function<void(bool ordered, int* out)> run;
};

std::vector<Racer> racers() {
  const auto plain = [](const char* name, void (*ordered)(int*), void (*racy)(int*)) {
    return Racer{name, [=](bool in_order, int* out) { launch(in_order ? ordered : racy, 1, kThreads, 0, kCuda, out); }};
  };
  return {plain("halves", halves_kernel<true>, halves_kernel<false>),
          plain("lanes", lanes_kernel<true>, lanes_kernel<false>),
          plain("reuse", reuse_kernel<true>, reuse_kernel<false>),
          {"copies",
           [](bool in_order, int* out) {
             alignas(16) int in[kThreads];
             for (int t = 0; t < static_cast<int>(kThreads); ++t) in[t] = t;
             launch(in_order ? copies_kernel<true> : copies_kernel<false>, 1, kThreads, 0, kCuda, in, out);
           }},
          {"same value",
           [](bool in_order, int* out) {
             int found = 0;
             launch(in_order ? same_value_kernel<true> : same_value_kernel<false>, 1, kThreads, 0, kCuda, out, &found);
             EXPECT_EQ(found, 1);
           }},
          {"blocks", [](bool in_order, int* out) {
             std::vector<int> left(kThreads);
             launch(in_order ? blocks_kernel<true> : blocks_kernel<false>, 2, kThreads, 0, kCuda, out, left.data());
           }}};
}

int wrong(const Racer& racer, bool ordered) {
  std::vector<int> out(kThreads, -7);
  racer.run(ordered, out.data());
  int count = 0;
  for (int t = 0; t < static_cast<int>(kThreads); ++t) count += out[t] != t;
  return count;
}

TEST(Races, NoneWhereThreadsAreOrdered) {
  for (const Racer& racer : racers()) for_each_schedule([&] { EXPECT_EQ(wrong(racer, true), 0) << racer.name; });
}

TEST(Races, AreSeenAlsoWhereTheResultIsRight) {
  for (const Racer& racer : racers()) {
    EXPECT_EQ(simt::kSchedules[0].kind, simt::Order::kForward);
#ifdef __SANITIZE_THREAD__
    for_each_schedule([&] {
      EXPECT_EXIT((wrong(racer, false), std::exit(0)), [](int status) { return status != 0; }, "data race")
          << racer.name;
    });
#else
    EXPECT_EQ(wrong(racer, false), 0) << racer.name;  // right results: only a race detector can find the mistake
#endif
  }
}

// --- bounds of global memory ---

enum class Way { kLoad, kStore, kLoadVector, kStoreVector, kCopyAsync };

/// Accesses 1 or 16 bytes at `bytes + at`.
__global__ void touch_kernel(Way way, char* bytes, int64_t at, char* sink) {
  using Sixteen = Vector<char, 16>;
  TERN_SHARED(Sixteen, tile);
  switch (way) {
    case Way::kLoad:
      *sink = bytes[at];
      break;
    case Way::kStore:
      bytes[at] = 1;
      break;
    case Way::kLoadVector:
      *sink = load_vector<16>(bytes + at).v[15];
      break;
    case Way::kStoreVector:
      store_vector(bytes + at, Sixteen{});
      break;
    case Way::kCopyAsync:
      cp_async16(&tile, bytes + at);
      cp_async_commit();
      cp_async_wait<0>();
      break;
  }
}

TEST(Bounds, OneBytePastAnAllocationIsAnError) {
  for (const Way way : {Way::kLoad, Way::kStore, Way::kLoadVector, Way::kStoreVector, Way::kCopyAsync}) {
    const int64_t width = way == Way::kLoad || way == Way::kStore ? 1 : 16;
    // The last access that fits, then the same with one byte less of memory.
    for (const int64_t last : {int64_t{0}, int64_t{48}}) {
      char sink = 0;
      const auto touch = [&](int64_t size) {
        const std::unique_ptr<char, void (*)(void*)> memory(static_cast<char*>(std::malloc(size)), std::free);
        std::fill_n(memory.get(), size, 0);
        launch(touch_kernel, 1, 1, 0, kCuda, way, memory.get(), last, &sink);
      };
      touch(last + width);
#ifdef __SANITIZE_ADDRESS__
      if (last + width > 1) {
        EXPECT_DEATH(touch(last + width - 1), "heap-buffer-overflow");
      }
#endif
    }
  }
}

#ifdef __SANITIZE_ADDRESS__
/// The arrays of all kernel tests end at the end of their last element.
TEST(Bounds, AnAccessPastTheEndOfAnArrayIsAnError) {
  std::mt19937_64 random = fresh_random();
  for (const Order order : {Order::kContiguous, Order::kTransposed, Order::kSliced, Order::kMisaligned})
    for (const DType dtype : kAllTypes)
      for (const Shape& shape : {Shape{3, 5}, Shape{64}, Shape{0, 3}, Shape{}}) {
        Array array(dtype, shape, order);
        fill_with_random(array, random, 0, 2);
        char* const bytes = array.view().as<char>();
        const int64_t n = array.numel(), size = size_of(dtype);
        const int64_t end = n == 0 ? 0 : (Array::offset(array.cview(), n - 1) + 1) * size;
        char sink = 0;
        if (n > 0) launch(touch_kernel, 1, 1, 0, kCuda, Way::kLoad, bytes, end - 1, &sink);
        EXPECT_TRUE(__asan_address_is_poisoned(bytes + end)) << name_of(dtype) << " " << n;
      }
  Array array(float32, {33});
  char sink = 0;
  EXPECT_DEATH(launch(touch_kernel, 1, 1, 0, kCuda, Way::kStore, array.view().as<char>(), 33 * 4, &sink),
               "AddressSanitizer");
}
#endif

}  // namespace
}  // namespace tern::kernels::cuda
