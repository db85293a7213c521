// kernels/cuda/cub.h on the stand-in runtime: launched like kernels. That steps with sorts and scans can be captured:
// tests/cuda/captured_step_test.cpp.

#include "tern/kernels/cuda/cub.h"

#include <numeric>

#include "tern/tests/emulator/runtime/standin_test.h"

namespace tern::standin {
namespace {

using Cub = StandIn;

/// n pairs in device memory with the keys n, n - 1, ... 1.
struct Pairs {
  int64_t n;
  cudaStream_t stream;
  kernels::cuda::SortBuffers<uint32_t> buffers;
  void* workspace;

  Pairs(int64_t count, cudaStream_t s) : n(count), stream(s) {
    std::vector<uint32_t> keys(n), values(n);
    std::iota(keys.rbegin(), keys.rend(), 1u);
    std::iota(values.begin(), values.end(), 0u);
    buffers = {{device_copy(keys), device_array<uint32_t>(n)}, {device_copy(values), device_array<uint32_t>(n)}};
    workspace = device_array<char>(kernels::cuda::sort_pairs_workspace<uint32_t>(on(s), n));
  }
  int sort() { return kernels::cuda::sort_pairs(on(stream), buffers, n, 8, workspace); }
};

TEST_F(Cub, RunsInStreamOrderAndCountsAsALaunch) {
  EXPECT_TRUE(in_every_order([] {
    Pairs pairs(5, new_stream());
    reset_counters();
    // If it ran immediately, it would sort the current content.
    uint32_t* const source = pinned_array<uint32_t>(5);
    std::iota(source, source + 5, 0u);
    ok(cudaMemcpyAsync(pairs.buffers.keys[0], source, 5 * sizeof(uint32_t), cudaMemcpyHostToDevice, pairs.stream));
    const int where = pairs.sort();
    EXPECT_EQ(counters().kernel_launches, 1u);
    EXPECT_EQ(counters().kernels_by_name["sort_pairs"], 1u);
    EXPECT_EQ(counters().host_synchronizations, 0u);
    EXPECT_EQ(counters().calls["cudaLaunchKernel"], 1u);
    return host_copy(pairs.buffers.values[where], 5, pairs.stream) == std::vector<uint32_t>{0, 1, 2, 3, 4};
  }));
}

#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer stops the program at the write
TEST_F(Cub, AWorkspaceThatIsTooSmallIsADeviceError) {
  Pairs pairs(5, new_stream());
  const int64_t bytes = kernels::cuda::sort_pairs_workspace<uint32_t>(on(pairs.stream), 5);
  pairs.workspace = device_array<char>(bytes - 256);
  pairs.sort();
  ok(cudaStreamSynchronize(pairs.stream));
  cudaFree(pairs.workspace);  // cudaFree checks the bytes after the allocation
  EXPECT_TRUE(has(device_error(), "a write past the end"));
}
#endif

}  // namespace
}  // namespace tern::standin
