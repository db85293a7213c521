// Recording of streams into graphs, and the calls that are not allowed during it (CUDA C++ Programming Guide, "Creating
// a graph using stream capture"; cudaStreamCaptureMode in the reference).

#include <algorithm>
#include <utility>

#include "tern/tests/emulator/runtime/state.h"

namespace tern::standin {
namespace {

/// Whether the capture forbids an unsafe call by this thread.
bool forbids_unsafe(const Capture& capture) {
  if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
  return capture.mode == cudaStreamCaptureModeGlobal || capture.thread == std::this_thread::get_id();
}

/// Marks the nodes in `tail` and every node that they depend on.
std::vector<char> reachable(const std::vector<Node>& nodes, const std::vector<int>& tail) {
  std::vector<char> seen(nodes.size());
  std::vector<int> open = tail;
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (std::exchange(seen[node], 1)) continue;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return seen;
}

/// Whether all nodes that other streams have captured are joined to the origin.
bool joined(const Capture& capture) {
  const std::vector<char> seen = reachable(capture.graph->nodes, capture.origin->tail);
  return std::ranges::all_of(capture.streams, [&](const CUstream_st* stream) {
    return std::ranges::all_of(stream->tail, [&](int node) { return seen[node] != 0; });
  });
}

void end(State& s, const std::shared_ptr<Capture>& capture) {
  for (CUstream_st* stream : capture->streams) {
    stream->capture.reset();
    stream->tail.clear();
  }
  capture->streams.clear();
  capture->ended = true;
  s.captures.erase(capture);
}

}  // namespace

cudaError_t capture_node(State&, CUstream_st* stream, Work work) {
  Capture& capture = *stream->capture;
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  capture.graph->nodes.push_back({std::move(work), stream->tail});
  stream->tail = {static_cast<int>(capture.graph->nodes.size()) - 1};
  return cudaSuccess;
}

void leave_capture(State& s, CUstream_st* stream) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return;
  capture->invalidated = true;
  if (capture->origin == stream) {
    end(s, capture);
  } else {
    capture->streams.erase(stream);
    stream->capture.reset();
  }
}

cudaError_t forbid_capture_of(State& s, CUstream_st* stream) {
  if (stream->legacy) return forbid_implicit_capture(s, stream);
  if (!stream->capture) return cudaSuccess;
  stream->capture->invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t forbid_unsafe_during_capture(State& s) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : s.captures) {
    if (!forbids_unsafe(*capture)) continue;
    capture->invalidated = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t forbid_any_capture(State& s) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : s.captures) {
    if (capture->origin->device != current_device()) continue;
    capture->invalidated = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t forbid_implicit_capture(State& s, CUstream_st* legacy) {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : s.captures)
    for (const CUstream_st* stream : capture->streams) {
      if (stream->device != legacy->device || !stream->blocking()) continue;
      capture->invalidated = true;
      error = cudaErrorStreamCaptureImplicit;
    }
  return error;
}

}  // namespace tern::standin

using namespace tern::standin;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return on_stream("cudaStreamBeginCapture", handle, [&](State& s, CUstream_st* stream) {
    if (stream->legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    capture->streams = {stream};
    capture->graph = std::make_unique<CUgraph_st>();
    stream->capture = capture;
    stream->tail.clear();
    s.captures.insert(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return on_stream("cudaStreamEndCapture", handle, [&](State& s, CUstream_st* stream) {
    if (graph) *graph = nullptr;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return cudaErrorIllegalState;
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
      return cudaErrorStreamCaptureWrongThread;
    if (capture->origin != stream) {
      capture->invalidated = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    const bool complete = joined(*capture);
    end(s, capture);
    if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    if (!complete) return cudaErrorStreamCaptureUnjoined;
    if (graph) {
      *graph = capture->graph.release();
      s.graphs.insert(*graph);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return on_stream("cudaStreamIsCapturing", handle, [&](State& s, CUstream_st* stream) {
    if (stream->legacy)
      if (const cudaError_t error = forbid_implicit_capture(s, stream)) return error;
    *status = !stream->capture               ? cudaStreamCaptureStatusNone
              : stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                             : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

}  // extern "C"
