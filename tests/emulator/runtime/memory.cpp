// The functions of the runtime API that allocate, free and describe memory.

#include <sys/mman.h>

#include "tern/tests/emulator/runtime/memory.h"

using namespace tern::standin;

namespace {

/// api() for a function that allocates or frees: it is counted, and not allowed during a capture.
template <class Body>
cudaError_t memory_call(const char* function, Body&& body) {
  return api(function, [&](State& s) {
    if (const cudaError_t error = forbid_unsafe_during_capture(s)) return error;
    ++s.counters.memory_calls;
    return body(s);
  });
}

cudaError_t allocate_pinned(const char* function, void** pointer, size_t bytes, unsigned flags) {
  return memory_call(function, [&](State&) {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return cudaErrorMemoryAllocation;
    *pointer = made;
    char* const start = static_cast<char*>(made);
    host_ranges()[start] = {start, bytes, false, flags};
    return cudaSuccess;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return memory_call("cudaMalloc", [&](State& s) {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    const Allocation* const made = allocate(s, bytes, nullptr);
    if (!made) return cudaErrorMemoryAllocation;
    *pointer = made->start;
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* pointer) {
  return memory_call("cudaFree", [&](State& s) {
    if (!pointer) return cudaSuccess;
    ++s.counters.host_synchronizations;
    wait_for_device(s, -1);
    Allocation* const found = find_allocation(pointer);
    if (!found || found->start != pointer || found->being_freed) return cudaErrorInvalidValue;
    release(s, found);
    return after_wait(s);
  });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return allocate_pinned("cudaMallocHost", pointer, bytes, cudaHostAllocDefault);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return allocate_pinned("cudaHostAlloc", pointer, bytes, flags);
}

cudaError_t cudaFreeHost(void* pointer) {
  return memory_call("cudaFreeHost", [&](State& s) {
    if (!pointer) return cudaSuccess;
    const auto found = host_ranges().find(static_cast<char*>(pointer));
    if (found == host_ranges().end() || found->second.registered) return cudaErrorInvalidValue;
    ++s.counters.host_synchronizations;
    wait_for_device(s, -1);
    munmap(pointer, found->second.bytes);
    host_ranges().erase(found);
    return after_wait(s);
  });
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return memory_call("cudaHostRegister", [&](State&) {
    if (!pointer || bytes == 0) return cudaErrorInvalidValue;
    char* const start = static_cast<char*>(pointer);
    for (const auto& [other, range] : host_ranges()) {
      if (start < other + range.bytes && other < start + bytes) return cudaErrorHostMemoryAlreadyRegistered;
    }
    host_ranges()[start] = {start, bytes, true, flags};
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return memory_call("cudaHostUnregister", [&](State& s) {
    const auto found = host_ranges().find(static_cast<char*>(pointer));
    if (found == host_ranges().end() || !found->second.registered) return cudaErrorHostMemoryNotRegistered;
    wait_for_device(s, -1);
    host_ranges().erase(found);
    return after_wait(s);
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  return api("cudaHostGetDevicePointer", [&](State&) {
    if (flags != 0 || !find_host_range(host)) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api("cudaMemGetInfo", [&](State& s) {
    if (free) *free = s.config.memory_bytes - used_on(current_device());
    if (total) *total = s.config.memory_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api("cudaPointerGetAttributes", [&](State&) {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = {};
    void* const p = const_cast<void*>(pointer);
    if (const Allocation* found = find_allocation(pointer)) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = found->device;
      attributes->devicePointer = p;
    } else if (find_host_range(pointer)) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = current_device();
      attributes->devicePointer = attributes->hostPointer = p;
    } else {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      attributes->hostPointer = p;
    }
    return cudaSuccess;
  });
}

}  // extern "C"
