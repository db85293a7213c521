// Copies and fills. Pinned host memory is accessed when the queue runs. Pageable memory is handled like in CUDA: a
// source is read at the call, through a staging buffer; for a destination the host waits.

#include <cstring>

#include "tern/tests/emulator/runtime/memory.h"

using namespace tern::standin;

namespace {

bool on_device(Place place) { return place == Place::kDevice; }

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  Place to_place, from_place;
};

/// Checks that the given direction agrees with the addresses.
cudaError_t check(const Copy& copy, cudaMemcpyKind kind) {
  if (copy.to_place == Place::kInvalid || copy.from_place == Place::kInvalid) return cudaErrorInvalidValue;
  if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return on_device(copy.to_place) == to && on_device(copy.from_place) == from ? cudaSuccess : cudaErrorInvalidValue;
}

void count(State& s, const Copy& copy) {
  Counters& c = s.counters;
  const bool to = on_device(copy.to_place), from = on_device(copy.from_place);
  if (to && from) {
    ++c.copies_on_device;
    c.bytes_on_device += copy.bytes;
  } else if (to) {
    ++c.copies_to_device;
    c.bytes_to_device += copy.bytes;
  } else if (from) {
    ++c.copies_to_host;
    c.bytes_to_host += copy.bytes;
  }
}

/// The queued part of a copy. Memory may have been freed since the call.
void run_copy(const Copy& copy) {
  if (on_device(copy.to_place)) require_device_memory(copy.to, copy.bytes, "destination");
  if (on_device(copy.from_place)) require_device_memory(copy.from, copy.bytes, "source");
  std::memmove(copy.to, copy.from, copy.bytes);
}

cudaError_t queue_copy(State& s, CUstream_st* stream, Copy copy) {
  std::shared_ptr<char[]> staged;
  if (copy.from_place == Place::kPageable) {
    staged.reset(new char[copy.bytes]);
    std::memcpy(staged.get(), copy.from, copy.bytes);
    copy.from = staged.get();
  }
  return submit(s, stream, Work{"copy", [copy, staged] { run_copy(copy); }, {}});
}

/// `blocking`: cudaMemcpy(), which still does not wait for copies within a device.
cudaError_t start_copy(State& s, CUstream_st* stream, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                       bool blocking) {
  if (bytes == 0) return cudaSuccess;
  if (!to || !from) return cudaErrorInvalidValue;
  const Copy copy{to, from, bytes, place_of(to, bytes), place_of(from, bytes)};
  if (const cudaError_t error = check(copy, kind)) return error;
  const bool pageable = copy.to_place == Place::kPageable || copy.from_place == Place::kPageable;
  if (pageable && stream->capture) {
    stream->capture->invalidated = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (const cudaError_t error = queue_copy(s, stream, copy)) return error;
  count(s, copy);
  const bool waits =
      copy.to_place == Place::kPageable || (blocking && !(on_device(copy.to_place) && on_device(copy.from_place)));
  if (!waits || stream->capture) return cudaSuccess;
  ++s.counters.host_synchronizations;
  wait_for_stream(s, stream);
  return after_wait(s);
}

cudaError_t fill(const char* function, cudaStream_t handle, void* pointer, int value, size_t bytes) {
  return on_stream(function, handle, [&](State& s, CUstream_st* stream) {
    if (bytes == 0) return cudaSuccess;
    const Place place = place_of(pointer, bytes);
    if (place != Place::kDevice && place != Place::kPinned) return cudaErrorInvalidValue;
    return submit(s, stream,
                  Work{"memset",
                       [=] {
                         require_device_memory(pointer, bytes, "destination");
                         std::memset(pointer, value, bytes);
                       },
                       {}});
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return api("cudaMemcpy", [&](State& s) {
    CUstream_st* const legacy = find_stream(s, nullptr);
    if (const cudaError_t error = forbid_implicit_capture(s, legacy)) return error;
    if (const cudaError_t error = forbid_unsafe_during_capture(s)) return error;
    return start_copy(s, legacy, to, from, bytes, kind, true);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  return on_stream("cudaMemcpyAsync", handle,
                   [&](State& s, CUstream_st* stream) { return start_copy(s, stream, to, from, bytes, kind, false); });
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  return fill("cudaMemset", nullptr, pointer, value, bytes);
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  return fill("cudaMemsetAsync", stream, pointer, value, bytes);
}

}  // extern "C"
