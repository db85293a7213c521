// kernels/cuda/cub.h on the stand-in runtime: queued, captured, counted and refused like kernels.

#include "tern/kernels/cuda/cub.h"

#include <algorithm>

#include "tern/tests/emulator/runtime/standin_test.h"

namespace tern::standin {
namespace {

using kernels::cuda::SortBuffers;

class Cub : public StandIn {};

/// n pairs in device memory with the keys n, n - 1, ... 1.
struct Pairs {
  int64_t n;
  cudaStream_t stream;
  SortBuffers<uint32_t> buffers;
  void* workspace;

  Pairs(int64_t count, cudaStream_t s) : n(count), stream(s) {
    std::vector<uint32_t> keys(n), values(n);
    for (int64_t i = 0; i < n; ++i) {
      keys[i] = static_cast<uint32_t>(n - i);
      values[i] = static_cast<uint32_t>(i);
    }
    buffers = {{device_copy(keys), device_array<uint32_t>(n)}, {device_copy(values), device_array<uint32_t>(n)}};
    workspace = device_array<char>(kernels::cuda::sort_pairs_workspace<uint32_t>(on(s), n));
  }
  int sort() { return kernels::cuda::sort_pairs(on(stream), buffers, n, 8, workspace); }
  /// Waits for the stream and returns the values.
  std::vector<uint32_t> values(int where) { return host_copy(buffers.values[where], n, stream); }
};

const std::vector<uint32_t> kReversed = {4, 3, 2, 1, 0};

TEST_F(Cub, RunsInStreamOrderAndCountsAsALaunch) {
  EXPECT_TRUE(in_every_order([] {
    Pairs pairs(5, new_stream());
    reset_counters();
    // If it ran immediately, it would sort the current content.
    uint32_t* const source = pinned_array<uint32_t>(5);
    for (uint32_t i = 0; i < 5; ++i) source[i] = i;
    ok(cudaMemcpyAsync(pairs.buffers.keys[0], source, 5 * sizeof(uint32_t), cudaMemcpyHostToDevice, pairs.stream));
    const int where = pairs.sort();
    EXPECT_EQ(counters().kernel_launches, 1u);
    EXPECT_EQ(counters().kernels_by_name["sort_pairs"], 1u);
    EXPECT_EQ(counters().host_synchronizations, 0u);
    EXPECT_EQ(counters().calls["cudaLaunchKernel"], 1u);
    return pairs.values(where) == std::vector<uint32_t>{0, 1, 2, 3, 4};
  }));
}

TEST_F(Cub, IsCapturedAndReplayed) {
  Pairs pairs(5, new_stream());
  int64_t* const sums = device_array<int64_t>(3);
  int64_t* const positions = device_array<int64_t>(2);
  uint8_t* const flags = device_array<uint8_t>(3);
  const int64_t bytes = std::max(kernels::cuda::scan_rows_workspace(on(pairs.stream), 1, 3),
                                 kernels::cuda::select_flagged_workspace(on(pairs.stream), 3));
  void* const workspace = device_array<char>(bytes);
  ok(cudaStreamBeginCapture(pairs.stream, cudaStreamCaptureModeGlobal));
  const int where = pairs.sort();
  kernels::cuda::scan_rows(on(pairs.stream), sums, 1, 3, workspace);
  kernels::cuda::select_flagged(on(pairs.stream), flags, 3, positions, workspace);
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(pairs.stream, &graph));
  cudaGraphExec_t executable = nullptr;
  ok(cudaGraphInstantiate(&executable, graph, 0));
  for (const int64_t first : {10, 20}) {
    const int64_t values[] = {first, 1, 1};
    const uint8_t set[] = {static_cast<uint8_t>(first == 10), 1, static_cast<uint8_t>(first == 20)};
    const Pairs fresh(5, pairs.stream);
    ok(cudaMemcpy(pairs.buffers.keys[0], fresh.buffers.keys[0], 20, cudaMemcpyDeviceToDevice));
    ok(cudaMemcpy(pairs.buffers.values[0], fresh.buffers.values[0], 20, cudaMemcpyDeviceToDevice));
    ok(cudaMemcpy(sums, values, sizeof values, cudaMemcpyHostToDevice));
    ok(cudaMemcpy(flags, set, sizeof set, cudaMemcpyHostToDevice));
    ok(cudaGraphLaunch(executable, pairs.stream));
    EXPECT_EQ(pairs.values(where), kReversed);
    EXPECT_EQ(host_copy(sums, 3, pairs.stream)[2], first + 2);
    EXPECT_EQ(host_copy(positions, 2, pairs.stream),
              (first == 10 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1, 2}));
  }
}

TEST_F(Cub, ALaunchThatFailsIsAnError) {
  Pairs pairs(5, new_stream());
  fail_call("cudaLaunchKernel", 1, cudaErrorLaunchOutOfResources);
  const std::string message = error_of([&] { pairs.sort(); });
  EXPECT_TRUE(has(message, "sort_pairs"));
  EXPECT_EQ(pairs.values(pairs.sort()), kReversed);
}

TEST_F(Cub, MemoryThatIsNotThereIsADeviceError) {
  Pairs pairs(5000, new_stream());
  ok(cudaFree(pairs.buffers.values[1]));
  pairs.sort();
  EXPECT_EQ(cudaStreamSynchronize(pairs.stream), cudaErrorIllegalAddress);
  EXPECT_TRUE(has(device_error(), "kernel sort_pairs"));
  EXPECT_TRUE(has(device_error(), "the freed allocation"));
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
