#include <cuda_runtime_api.h>

#include <memory>

#include "tern/core/cuda/current_device.h"
#include "tern/core/device/backend.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/check.h"

namespace tern::cuda {

void begin_capture(int index, void* stream) {
  TERN_CUDA_CHECK(set_device(index));
  // Relaxed: during the capture the allocator may call the driver, and other threads are not restricted.
  TERN_CUDA_CHECK(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeRelaxed));
}

void* end_capture(int index, void* stream, int64_t& nodes) {
  TERN_CUDA_CHECK(set_device(index));
  cudaGraph_t graph = nullptr;
  TERN_CUDA_CHECK(cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph));
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> owner(graph, cudaGraphDestroy);
  size_t count = 0;
  cudaGraphExec_t executable = nullptr;
  TERN_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  TERN_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  nodes = static_cast<int64_t>(count);
  return executable;
}

bool is_capturing(void* stream) {
  adopt_device();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

void abandon_capture(int index, void* stream) noexcept {
  if (is_capturing(stream)) {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph) == cudaSuccess) cudaGraphDestroy(graph);
  }
  cudaGetLastError();
}

void launch_graph(void* graph, void* stream) {
  adopt_device();
  TERN_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)));
}

void destroy_graph(void* graph) noexcept {
  adopt_device();
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace tern::cuda
