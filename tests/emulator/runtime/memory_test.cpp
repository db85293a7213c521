// Memory and copies of the stand-in CUDA runtime, and the effects of wrong accesses.

#include <cmath>
#include <numeric>

#include "tern/tests/emulator/runtime/standin_test.h"

namespace tern::standin {
namespace {

using Memory = StandIn;

TEST_F(Memory, FreshMemoryIsNaN) {
  float* x = device_array(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x) % 512, 0u);
  for (float value : host_copy(x, 100, nullptr)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(Memory, CopiesInAllDirections) {
  float *a = device_array(50), *b = device_array(50), *pinned = pinned_array(50);
  std::vector<float> values(50), back(50);
  std::iota(values.begin(), values.end(), 1.0f);
  ok(cudaMemcpy(a, values.data(), 200, cudaMemcpyHostToDevice));
  ok(cudaMemcpyAsync(b, a, 200, cudaMemcpyDeviceToDevice, nullptr));
  ok(cudaMemcpyAsync(pinned, b, 200, cudaMemcpyDefault, nullptr));
  ok(cudaMemcpy(back.data(), pinned, 200, cudaMemcpyHostToHost));
  EXPECT_EQ(back, values);
  ok(cudaMemset(a, 0, 100));
  ok(cudaMemcpy(back.data(), a, 200, cudaMemcpyDefault));
  EXPECT_EQ(back[24], 0);
  EXPECT_EQ(back[25], 26);
  EXPECT_EQ(counters().copies_on_device, 1u);
  EXPECT_EQ(counters().bytes_on_device, 200u);
  EXPECT_EQ(counters().bytes_to_device, 200u);
}

TEST_F(Memory, CopiesAreChecked) {
  float *x = device_array(10), host[10] = {};
  EXPECT_EQ(cudaMemcpy(x, host, 40, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  for (const cudaMemcpyKind kind : {cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice, cudaMemcpyHostToHost})
    EXPECT_EQ(cudaMemcpy(host, x, 40, kind), cudaErrorInvalidValue) << kind;
  EXPECT_EQ(cudaMemcpy(host, x, 40, static_cast<cudaMemcpyKind>(7)), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(x, host, 44, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x + 1, host, 40, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x, nullptr, 40, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host, 0, 40), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(x, 0, 41), cudaErrorInvalidValue);
  ok(cudaMemset(x, 0, 0));
  ok(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
  EXPECT_EQ(device_error(), "");
}

TEST_F(Memory, PinnedSourcesAreReadLate) {
  const auto first_value = [](bool pinned, bool waits) {
    std::vector<float> pageable(1);
    float *x = device_array(1), *source = pinned ? pinned_array(1) : pageable.data();
    const cudaStream_t s = new_stream();
    *source = 1;
    ok(cudaMemcpyAsync(x, source, 4, cudaMemcpyHostToDevice, s));
    if (waits) ok(cudaStreamSynchronize(s));
    *source = 2;  // reuses the memory
    return read_one(x, s);
  };
  EXPECT_EQ(first_value(true, true), 1);
  EXPECT_EQ(first_value(true, false), 2);  // the mistake has an effect
  EXPECT_EQ(first_value(false, false), 1);
}

TEST_F(Memory, PinnedDestinationsAreWrittenLate) {
  float *x = device_array(1), *pinned = pinned_array(1);
  *pinned = 5;
  ok(cudaMemset(x, 0, 4));
  ok(cudaMemcpyAsync(pinned, x, 4, cudaMemcpyDeviceToHost, nullptr));
  EXPECT_EQ(*pinned, 5);
  ok(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(*pinned, 0);
}

TEST_F(Memory, TheDeviceIsAsLargeAsConfigured) {
  constexpr size_t kMemory = size_t{64} << 20;
  configure({.memory_bytes = kMemory});
  size_t free = 0, total = 0;
  void *a = nullptr, *b = nullptr;
  ok(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, kMemory);
  EXPECT_EQ(total, kMemory);
  ok(cudaMalloc(&a, size_t{40} << 20));
  EXPECT_EQ(cudaMalloc(&b, size_t{25} << 20), cudaErrorMemoryAllocation);
  EXPECT_EQ(b, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ok(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, size_t{24} << 20);
  ok(cudaFree(a));
  ok(cudaMalloc(&b, size_t{64} << 20));
  EXPECT_EQ(cudaMalloc(&a, 1), cudaErrorMemoryAllocation);
  ok(cudaFree(b));
  EXPECT_EQ(used_memory(), 0u);
  EXPECT_EQ(cudaMalloc(&a, ~size_t{0} - 100), cudaErrorMemoryAllocation);
}

TEST_F(Memory, WrongFreesAreErrors) {
  float *x = device_array(10), *pinned = pinned_array(10), host = 0;
  EXPECT_EQ(cudaFree(x + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(&host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(x), cudaErrorInvalidValue);
  ok(cudaFree(x));
  EXPECT_EQ(cudaFree(x), cudaErrorInvalidValue);
  ok(cudaFreeHost(pinned));
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
  ok(cudaFree(nullptr));
  ok(cudaFreeHost(nullptr));
}

TEST_F(Memory, FreeWaitsForTheWorkThatUsesTheMemory) {
  float *x = device_array(1), *y = device_array(1);
  const cudaStream_t s = new_stream();
  set(s, x, 4);
  add(s, y, x, 1);
  ok(cudaFree(x));
  EXPECT_EQ(read_one(y, nullptr), 5);
}

// --- accesses that a GPU would reject, or silently allow ---

TEST_F(Memory, AKernelThatUsesFreedMemoryFails) {
  float* x = device_array(100);
  ok(cudaFree(x));
  set(nullptr, x + 3, 1);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  expect_contains(device_error(), {"kernel set (standin_test.h:", "byte 12 of the freed allocation 1 (400 bytes"});
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorIllegalAddress);  // sticky
}

TEST_F(Memory, AKernelThatReadsFarPastTheEndFails) {
  float *x = device_array(100), *y = device_array(1);
  add(nullptr, y, x + 1024, 0);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_TRUE(has(device_error(), "past its end"));
}

#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer stops the program at the write
TEST_F(Memory, AWriteJustPastTheEndShowsAtTheFree) {
  float* x = device_array(3);
  set(nullptr, x + 3, 1);
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(cudaFree(x), cudaErrorIllegalAddress);
  EXPECT_TRUE(has(device_error(), "a write past the end"));
}
#endif

using MemoryDeathTest = Memory;

TEST_F(MemoryDeathTest, ProtectedMemoryIsOutOfTheHostsReach) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  set_protection(true);
  float* x = device_array(10);
  set(nullptr, x, 1);  // kernels and copies can access it
  EXPECT_EQ(read_one(x, nullptr), 1);
  EXPECT_EXIT({ std::printf("%f", x[2]); }, testing::KilledBySignal(SIGSEGV),
              "host code accessed device memory: .*byte 8 of the live allocation .*40 bytes");
  EXPECT_EXIT({ x[2] = 1; }, testing::KilledBySignal(SIGSEGV), "host code accessed device memory");
  const float* untouched = device_array(3);
  EXPECT_EXIT({ std::printf("%f", untouched[0]); }, testing::KilledBySignal(SIGSEGV), "host code accessed");
  set_protection(false);
  EXPECT_EQ(x[0], 1);
}

TEST_F(MemoryDeathTest, FreedMemoryIsOutOfEverybodysReach) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  float* x = device_array(10);
  ok(cudaFree(x));
  EXPECT_EXIT({ std::printf("%f", x[2]); }, testing::KilledBySignal(SIGSEGV), "the freed allocation");
}

}  // namespace
}  // namespace tern::standin
