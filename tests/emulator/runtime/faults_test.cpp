// Errors of the stand-in CUDA runtime: injected, sticky, and of machines without a working device.

#include <cstdlib>
#include <set>
#include <thread>

#include "tern/tests/emulator/runtime/standin_test.h"

namespace tern::standin {
namespace {

using Faults = StandIn;

TEST_F(Faults, TheNthCallFails) {
  void* x = nullptr;
  fail_call("cudaMalloc", 3, cudaErrorMemoryAllocation);
  ok(cudaMalloc(&x, 8));
  ok(cudaMalloc(&x, 8));
  EXPECT_EQ(cudaMalloc(&x, 8), cudaErrorMemoryAllocation);
  EXPECT_EQ(used_memory(), 1024u);  // the failed call had no effect
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ok(cudaMalloc(&x, 8));
  EXPECT_EQ(counters().calls.at("cudaMalloc"), 4u);

  fail_call("cudaStreamCreateWithFlags", 1, cudaErrorUnknown);
  clear_faults();
  new_stream();
}

TEST_F(Faults, SeveralFaultsOfOneFunction) {
  fail_call("cudaDeviceSynchronize", 1, cudaErrorUnknown);
  fail_call("cudaDeviceSynchronize", 3, cudaErrorNotSupported);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorUnknown);
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNotSupported);
  ok(cudaDeviceSynchronize());
}

TEST_F(Faults, LaunchesFailWithTheirPlace) {
  float* x = device_array(1);
  fail_call("cudaLaunchKernel", 2, cudaErrorLaunchOutOfResources);
  set(nullptr, x, 1);
  expect_error([&] { set(nullptr, x, 2); },
               {"standin_test.h:", "grid 1x1x1, block 32x1x1", "too many resources requested for launch"});
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(read_one(x, nullptr), 1);
}

TEST_F(Faults, OtherLibrariesAskForTheirFaults) {
  fail_call("cublasLtMatmul", 2, 13);
  EXPECT_EQ(injected_fault("cublasLtMatmul"), 0);
  EXPECT_EQ(injected_fault("cublasLtMatmul"), 13);
  EXPECT_EQ(injected_fault("cublasLtMatmul"), 0);
  EXPECT_EQ(counters().calls.at("cublasLtMatmul"), 3u);
}

__global__ void diverging_kernel(float* y) {
  if (threadIdx.x < 16) kernels::cuda::block_barrier();
  y[threadIdx.x] = 1;
}
void diverging(float* y) { launch(diverging_kernel, 1, 32, 0, on(nullptr), y); }

TEST_F(Faults, AKernelThatBreaksARuleGivesAStickyError) {
  float* x = device_array(32);
  const cudaStream_t s = new_stream();
  diverging(x);
  EXPECT_EQ(device_error(), "");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  expect_contains(device_error(), {"kernel diverging (faults_test.cpp:", "left the kernel"});
  // All later calls fail, including launches.
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  expect_error([&] { set(s, x, 1); }, {"unspecified launch failure"});

  ok(cudaDeviceReset());
  EXPECT_EQ(device_error(), "");
  EXPECT_EQ(used_memory(), 0u);
  float* y = device_array(1);
  set(nullptr, y, 1);
  EXPECT_EQ(read_one(y, nullptr), 1);
}

TEST_F(Faults, WorkAfterAnErrorDoesNotRun) {
  float *x = pinned_array(1), *y = device_array(32);
  *x = 1;
  diverging(y);
  set(nullptr, x, 2);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(*x, 1);
}

TEST_F(Faults, StickyErrorsCanBeSet) {
  fail_call("cudaStreamSynchronize", 1, cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(device_error(), "injected into cudaStreamSynchronize");
  reset();
  ok(cudaDeviceSynchronize());
  set_device_error(cudaErrorECCUncorrectable, "a memory cell broke");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorECCUncorrectable);
  EXPECT_EQ(device_error(), "a memory cell broke");
}

// --- machines ---

TEST_F(Faults, NoDriver) {
  configure({.driver = DriverState::kNone});
  int count = 77;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 77);
  void* x = nullptr;
  EXPECT_EQ(cudaMalloc(&x, 4), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorInsufficientDriver);
}

TEST_F(Faults, NoDevice) {
  configure({.devices = 0});
  int count = 77;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNoDevice);
  expect_error([] { set(nullptr, nullptr, 1); }, {"no CUDA-capable device"});
}

TEST_F(Faults, DeviceBusy) {
  configure({.driver = DriverState::kBusy});
  int count = 0;
  ok(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 1);
  void* x = nullptr;
  EXPECT_EQ(cudaMalloc(&x, 4), cudaErrorDevicesUnavailable);
}

TEST_F(Faults, ContextsAreCounted) {
  configure({.devices = 3});
  int value = 0;
  cudaDeviceProp properties;
  ok(cudaGetDeviceCount(&value));
  ok(cudaGetDevice(&value));
  ok(cudaGetDeviceProperties(&properties, 2));
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
  EXPECT_EQ(contexts(), std::set<int>{});
  ok(cudaSetDevice(2));
  EXPECT_EQ(contexts(), std::set<int>{2});
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  EXPECT_EQ(contexts(), std::set<int>{2});
  // A thread that has not chosen a device uses device 0.
  std::thread([&] { EXPECT_EQ(cudaEventQuery(event), cudaSuccess); }).join();
  EXPECT_EQ(contexts(), (std::set<int>{0, 2}));
}

TEST_F(Faults, DevicesAreAsConfigured) {
  configure({.devices = 2, .capability_major = 8, .capability_minor = 6, .multiprocessors = 84, .name = "other"});
  cudaDeviceProp properties;
  ok(cudaGetDeviceProperties(&properties, 1));
  EXPECT_STREQ(properties.name, "other");
  EXPECT_EQ(properties.major * 10 + properties.minor, 86);
  EXPECT_EQ(properties.multiProcessorCount, 84);
  int value = 0;
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
  EXPECT_EQ(value, 84);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);

  // Each device has separate streams and memory.
  const cudaStream_t first = new_stream();
  ok(cudaSetDevice(1));
  float* x = device_array(1);
  expect_error([&] { set(first, x, 1); }, {"invalid resource handle"});
}

// --- the environment ---

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;

 private:
  const char* name_;
};

TEST_F(Faults, TheEnvironmentConfigures) {
  {
    const Variable devices("TERN_STANDIN_DEVICES", "3"), memory("TERN_STANDIN_MEMORY", "64M"),
        capability("TERN_STANDIN_CAPABILITY", "8.0"), fail("TERN_STANDIN_FAIL", "cudaMalloc:2:2,cudaMemset:1:1");
    reset();
  }
  int count = 0;
  ok(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 3);
  EXPECT_EQ(configuration().memory_bytes, size_t{64} << 20);
  EXPECT_EQ(configuration().capability_major * 10 + configuration().capability_minor, 80);
  void *x = nullptr, *y = nullptr;
  ok(cudaMalloc(&x, 4));
  EXPECT_EQ(cudaMalloc(&y, 4), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMemset(x, 0, 4), cudaErrorInvalidValue);
  {
    const Variable state("TERN_STANDIN_STATE", "no-driver");
    reset();
  }
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
}

TEST(FaultsDeathTest, AMalformedEnvironmentEndsTheProgram) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto dies = [](const char* name, const char* value) {
    EXPECT_EXIT(
        {
          const Variable variable(name, value);
          reset();
        },
        testing::ExitedWithCode(2), std::string(name) + "=" + value + ": expected");
  };
  for (const char* value : {"-1", "2x"}) dies("TERN_STANDIN_DEVICES", value);
  dies("TERN_STANDIN_MEMORY", "64MB");
  dies("TERN_STANDIN_STATE", "broken");
  dies("TERN_STANDIN_CAPABILITY", "9");
  dies("TERN_STANDIN_ORDER", "random");
  dies("TERN_STANDIN_PROTECT", "yes");
  for (const char* value : {"cudaMalloc:1", "cudaMalloc:0:2", "cudaMalloc:1:2;x"}) dies("TERN_STANDIN_FAIL", value);
}

}  // namespace
}  // namespace tern::standin
