// The stream functions of the runtime API.

#include "tern/tests/emulator/runtime/state.h"

using namespace tern::standin;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return api("cudaStreamCreateWithFlags", [&](State& s) {
    if (!handle || (flags & ~cudaStreamNonBlocking) != 0) return cudaErrorInvalidValue;
    auto stream = std::make_unique<CUstream_st>();
    stream->device = current_device();
    stream->flags = flags;
    *handle = stream.get();
    s.streams.push_back(std::move(stream));
    return cudaSuccess;
  });
}

// Queued work still runs later.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return on_stream("cudaStreamDestroy", handle, [](State& s, CUstream_st* stream) {
    if (stream->legacy) return cudaErrorInvalidResourceHandle;
    leave_capture(s, stream);
    stream->destroyed = true;
    forget_finished_streams(s);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on_stream("cudaStreamSynchronize", handle, [](State& s, CUstream_st* stream) {
    if (const cudaError_t error = forbid_capture_of(s, stream)) return error;
    ++s.counters.host_synchronizations;
    wait_for_stream(s, stream);
    return after_wait(s);
  });
}

// Work that was pending at the call counts as pending, even if a step of it runs during the call.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return on_stream("cudaStreamQuery", handle, [](State& s, CUstream_st* stream) {
    if (const cudaError_t error = forbid_capture_of(s, stream)) return error;
    if (stream->queue.empty()) return cudaSuccess;
    step_towards(s, stream);
    return s.sticky != cudaSuccess ? s.sticky : cudaErrorNotReady;
  });
}

}  // extern "C"
