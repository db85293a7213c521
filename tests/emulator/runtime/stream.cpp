// The stream functions of the runtime API.

#include <algorithm>

#include "tern/tests/emulator/runtime/state.h"

using namespace tern::standin;

namespace {

/// api() for a function of one stream.
template <class Body>
cudaError_t on_stream(const char* function, cudaStream_t handle, Body&& body) {
  return api(function, [&](State& s) {
    CUstream_st* const stream = find_stream(s, handle);
    return stream ? body(s, stream) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t create(const char* function, cudaStream_t* handle, unsigned flags, int priority) {
  return api(function, [&](State& s) {
    if (!handle || (flags & ~cudaStreamNonBlocking) != 0) return cudaErrorInvalidValue;
    auto stream = std::make_unique<CUstream_st>();
    stream->id = s.next_stream++;
    stream->device = current_device();
    stream->flags = flags;
    stream->priority = std::min(0, std::max(-5, priority));
    *handle = stream.get();
    s.streams.push_back(std::move(stream));
    return cudaSuccess;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return create("cudaStreamCreate", stream, cudaStreamDefault, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return create("cudaStreamCreateWithFlags", stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return create("cudaStreamCreateWithPriority", stream, flags, priority);
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

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return on_stream("cudaStreamGetFlags", handle, [&](State&, CUstream_st* stream) {
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return on_stream("cudaStreamGetPriority", handle, [&](State&, CUstream_st* stream) {
    *priority = stream->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return on_stream("cudaStreamGetId", handle, [&](State&, CUstream_st* stream) {
    *id = static_cast<unsigned long long>(stream->id);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return on_stream("cudaStreamGetDevice", handle, [&](State&, CUstream_st* stream) {
    *device = stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return on_stream("cudaLaunchHostFunc", handle, [&](State& s, CUstream_st* stream) {
    if (!function) return cudaErrorInvalidValue;
    return submit(s, stream, Work{Kind::kHostFunction, "host function", [=] { function(data); }, {}});
  });
}

}  // extern "C"
