// Streams, events and launches of the stand-in CUDA runtime, and the effects of missing waits.

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tern/tests/emulator/runtime/standin_test.h"

namespace tern::standin {
namespace {

using Runtime = StandIn;

TEST_F(Runtime, KernelsRunWhenTheHostWaits) {
  float* x = pinned_array(1);
  *x = 0;
  set(nullptr, x, 2.5f);
  EXPECT_EQ(*x, 0);
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(*x, 2.5f);
}

TEST_F(Runtime, AStreamKeepsItsOrder) {
  EXPECT_TRUE(in_every_order([] {
    float* x = device_array(1);
    const cudaStream_t s = new_stream();
    set(s, x, 1);
    for (int i = 0; i < 10; ++i) add(s, x, x, 2);
    return read_one(x, s) == 21;
  }));
}

/// y = x + 1 in one stream after x = 41 in another. `wait` makes the second stream wait for the first.
bool hand_over(const std::function<void(cudaStream_t, cudaStream_t)>& wait) {
  float *x = device_array(1), *y = device_array(1);
  const cudaStream_t first = new_stream(), second = new_stream();
  set(first, x, 41);
  wait(first, second);
  add(second, y, x, 1);
  const bool right = read_one(y, second) == 42;
  ok(cudaDeviceSynchronize());
  return right;
}

TEST_F(Runtime, AnEventOrdersTwoStreams) {
  EXPECT_TRUE(in_every_order([] { return hand_over(join); }));
}

TEST_F(Runtime, AMissingEventWaitShows) {
  EXPECT_FALSE(in_every_order([] { return hand_over([](cudaStream_t, cudaStream_t) {}); }));
}

TEST_F(Runtime, AnEventRecordedTooEarlyShows) {
  EXPECT_FALSE(in_every_order([] {
    float *x = device_array(1), *y = device_array(1);
    const cudaStream_t first = new_stream(), second = new_stream();
    const cudaEvent_t event = new_event();
    ok(cudaEventRecord(event, first));
    set(first, x, 41);
    ok(cudaStreamWaitEvent(second, event, 0));
    add(second, y, x, 1);
    return read_one(y, second) == 42;
  }));
}

TEST_F(Runtime, AMissingWaitBeforeOverwritingShows) {
  EXPECT_FALSE(in_every_order([] {  // the second stream writes before the first has read
    float *x = device_array(1), *y = device_array(1);
    const cudaStream_t first = new_stream(), second = new_stream();
    ok(cudaMemset(x, 0, 4));
    ok(cudaDeviceSynchronize());
    add(first, y, x, 1);
    set(second, x, 100);
    const bool right = read_one(y, first) == 1;
    ok(cudaDeviceSynchronize());
    return right;
  }));
}

TEST_F(Runtime, AWaitRefersToTheLatestRecordBeforeIt) {
  EXPECT_TRUE(in_every_order([] {
    float *x = device_array(1), *y = device_array(1), *z = device_array(1);
    const cudaStream_t first = new_stream(), second = new_stream(), third = new_stream();
    const cudaEvent_t event = new_event();
    set(first, x, 1);
    ok(cudaEventRecord(event, first));
    ok(cudaStreamWaitEvent(second, event, 0));
    add(second, y, x, 10);
    // A later record after work that waits for the second stream: waiting for it would be a deadlock.
    join(second, first);
    set(first, x, 2);
    ok(cudaEventRecord(event, first));
    ok(cudaStreamWaitEvent(third, event, 0));
    add(third, z, x, 100);
    return read_one(z, third) == 102 && read_one(y, second) == 11;
  }));
}

TEST_F(Runtime, TheLegacyStreamWaitsForBlockingStreamsAlone) {
  const auto value = [](unsigned flags) {
    return [flags] {
      float *x = device_array(1), *y = device_array(1), *z = device_array(1);
      const cudaStream_t s = new_stream(flags);
      set(s, x, 1);
      add(nullptr, y, x, 1);
      add(s, z, y, 1);
      return read_one(z, s) == 3;
    };
  };
  EXPECT_TRUE(in_every_order(value(cudaStreamDefault)));
  EXPECT_FALSE(in_every_order(value(cudaStreamNonBlocking)));
}

TEST_F(Runtime, QueriesAnswerNotReadyFirst) {
  const cudaStream_t s = new_stream();
  const cudaEvent_t event = new_event();
  EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  set(s, device_array(1), 1);
  ok(cudaEventRecord(event, s));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  int polls = 0;
  while (cudaStreamQuery(s) == cudaErrorNotReady) ++polls;
  EXPECT_LE(polls, 5);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST_F(Runtime, EventsMeasureTime) {
  const cudaStream_t s = new_stream();
  const cudaEvent_t start = new_event(cudaEventDefault), end = new_event(cudaEventDefault), untimed = new_event();
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
  ok(cudaEventRecord(start, s));
  set(s, device_array(1), 1);
  ok(cudaEventRecord(end, s));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  ok(cudaEventSynchronize(end));
  ok(cudaEventElapsedTime(&milliseconds, start, end));
  EXPECT_TRUE(milliseconds >= 0 && milliseconds < 60'000) << milliseconds;
  ok(cudaEventRecord(untimed, s));
  ok(cudaStreamSynchronize(s));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
}

TEST_F(Runtime, ADestroyedStreamFinishesItsWork) {
  float* x = device_array(1);
  const cudaStream_t s = new_stream();
  set(s, x, 3);
  ok(cudaStreamDestroy(s));
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(read_one(x, nullptr), 3);
}

// --- launches ---

__global__ void shared_kernel(float* y) {
  TERN_DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  kernels::cuda::block_barrier();
  y[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}
void shared(size_t bytes, float* y) { launch(shared_kernel, 1, 32, bytes, on(nullptr), y); }

TEST_F(Runtime, LaunchesAreCheckedWhenTheyAreMade) {
  float* y = device_array(32);
  const auto with = [&](dim3 grid, dim3 block) {
    return error_of([&] { launch(set_kernel, grid, block, 0, on(nullptr), y, 1.0f); });
  };
  expect_contains(with(1, 1025), {"runtime_test.cpp:", "block 1025x1x1", "invalid configuration argument"});
  EXPECT_TRUE(has(with(0, 32), "invalid configuration"));
  EXPECT_TRUE(has(with(dim3(1, 65536), 32), "invalid configuration"));
  EXPECT_TRUE(has(with(1, dim3(1, 1, 65)), "invalid configuration"));
  expect_error([&] { shared(228 * 1024, y); }, {"invalid argument"});
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(counters().kernel_launches, 0u);
  EXPECT_EQ(counters().calls.at("cudaFuncSetAttribute"), 1u);

  shared(227 * 1024, y);
  EXPECT_EQ(counters().calls.at("cudaFuncSetAttribute"), 2u);
  shared(48 * 1024, y);
  EXPECT_EQ(counters().calls.at("cudaFuncSetAttribute"), 2u);
  EXPECT_EQ(host_copy(y, 32, nullptr)[0], 31);
}

TEST_F(Runtime, LaunchesRefuseStreamsThatAreNone) {
  const cudaStream_t s = new_stream();
  ok(cudaStreamDestroy(s));
  expect_error([&] { set(s, device_array(1), 1); }, {"invalid resource handle"});
}

TEST_F(Runtime, LaunchesAreCountedByName) {
  float* x = device_array(32);
  set(nullptr, x, 1);
  set(nullptr, x, 2);
  shared(1024, x);
  EXPECT_EQ(counters().kernel_launches, 3u);
  EXPECT_EQ(counters().kernels_by_name.at("set"), 2u);
  EXPECT_EQ(counters().kernels_by_name.at("shared"), 1u);
  reset_counters();
  EXPECT_EQ(counters().kernel_launches, 0u);
  EXPECT_TRUE(counters().kernels_by_name.empty());
}

TEST_F(Runtime, HostWaitsAreCounted) {
  const cudaStream_t s = new_stream();
  const cudaEvent_t event = new_event();
  float *x = device_array(4), *pinned = pinned_array(4), pageable[4] = {};
  reset_counters();
  ok(cudaMemcpyAsync(x, pinned, 16, cudaMemcpyHostToDevice, s));
  ok(cudaMemcpyAsync(x, pageable, 16, cudaMemcpyHostToDevice, s));
  ok(cudaMemcpyAsync(pinned, x, 8, cudaMemcpyDeviceToHost, s));
  ok(cudaMemsetAsync(x, 0, 16, s));
  ok(cudaEventRecord(event, s));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(counters().host_synchronizations, 0u);
  ok(cudaMemcpyAsync(pageable, x, 16, cudaMemcpyDeviceToHost, s));
  EXPECT_EQ(counters().host_synchronizations, 1u);
  ok(cudaStreamSynchronize(s));
  ok(cudaEventSynchronize(event));
  ok(cudaDeviceSynchronize());
  ok(cudaMemcpy(x, pageable, 16, cudaMemcpyHostToDevice));
  EXPECT_EQ(counters().host_synchronizations, 5u);
  ok(cudaFree(x));
  EXPECT_EQ(counters().host_synchronizations, 6u);
  EXPECT_EQ(counters().memory_calls, 1u);
  EXPECT_EQ(counters().copies_to_device, 3u);
  EXPECT_EQ(counters().bytes_to_device, 48u);
  EXPECT_EQ(counters().copies_to_host, 2u);
  EXPECT_EQ(counters().bytes_to_host, 24u);
}

// --- the interface for other libraries ---

TEST_F(Runtime, OtherLibrariesQueueTheirWork) {
  const cudaStream_t s = new_stream();
  float* x = pinned_array(1);
  *x = 1;
  ok(enqueue(s, "double", [x] { *x *= 2; }));
  EXPECT_EQ(*x, 1);
  bool may_start = false;
  ok(enqueue_when(
      s, "meet", [&] { return may_start; }, [x] { *x += 1; }, false));
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_EQ(*x, 2);
  may_start = true;
  ok(cudaStreamSynchronize(s));
  EXPECT_EQ(*x, 3);
  EXPECT_EQ(counters().kernels_by_name.at("double"), 1u);
  EXPECT_EQ(counters().kernel_launches, 1u);

  cudaError_t inside = cudaSuccess;
  ok(enqueue(s, "caller", [&] { inside = cudaStreamSynchronize(nullptr); }));
  ok(cudaStreamSynchronize(s));
  EXPECT_EQ(inside, cudaErrorNotPermitted);

  ok(enqueue(s, "reader", [&s] { require_device_memory(&s, sizeof s, "operand A"); }));
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
  EXPECT_TRUE(has(device_error(), "reader: operand A"));
  EXPECT_EQ(enqueue(s, "late", [] {}), cudaErrorIllegalAddress);
}

TEST_F(Runtime, WorkThatCannotBeginEndsInAnError) {
  configure({.patience_ms = 20});
  ok(enqueue_when(
      nullptr, "meet", [] { return false; }, [] {}));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchTimeout);
  EXPECT_TRUE(has(device_error(), "waited 20 ms"));
}

TEST_F(Runtime, IsFoundByTheNamesOfNvidiasLibraries) {
  if (!std::getenv("LD_LIBRARY_PATH"))
    GTEST_SKIP() << "other: LD_LIBRARY_PATH must name lib/standin of the build folder";
  for (const char* name : {"libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"}) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
    EXPECT_EQ(dlsym(library, "cudaMalloc"),
              reinterpret_cast<void*>(static_cast<cudaError_t (*)(void**, size_t)>(cudaMalloc)))
        << name;
    dlclose(library);
  }
}

// --- several host threads ---

TEST_F(Runtime, HostThreadsUseSeparateStreams) {
  constexpr int kThreads = 4, kRounds = 50;
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      float* x = device_array(1);
      const cudaStream_t s = new_stream();
      set(s, x, 0);
      for (int i = 0; i < kRounds; ++i) {
        add(s, x, x, 1);
        if (i % 7 == 0) ok(cudaStreamSynchronize(s));
      }
      if (read_one(x, s) == kRounds) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads);
}

using RuntimeDeathTest = Runtime;

TEST_F(RuntimeDeathTest, KernelsRunForDestructorsAtTheEndOfTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  struct AtEnd {
    float* x = nullptr;
    ~AtEnd() {
      if (!x) return;
      set(nullptr, x, 3);
      ok(cudaDeviceSynchronize());
      std::fprintf(stderr, "the value is %g\n", *x);
    }
  };
  EXPECT_EXIT(
      {
        static AtEnd at_end;
        at_end.x = pinned_array(1);
        set(nullptr, at_end.x, 1);
        ok(cudaDeviceSynchronize());
        std::exit(0);
      },
      testing::ExitedWithCode(0), "the value is 3");
}

TEST_F(Runtime, ErrorsOfCallsStayWithTheirThread) {
  EXPECT_EQ(cudaSetDevice(5), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

}  // namespace
}  // namespace tern::standin
