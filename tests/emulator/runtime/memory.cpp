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

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return memory_call("cudaMalloc", [&](State& s) {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    const Allocation* const made = allocate(s, bytes);
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
    if (!found || found->start != pointer) return cudaErrorInvalidValue;
    release(s, found);
    return after_wait(s);
  });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return memory_call("cudaHostAlloc", [&](State&) {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return cudaErrorMemoryAllocation;
    *pointer = made;
    char* const start = static_cast<char*>(made);
    host_ranges()[start] = {start, bytes};
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* pointer) {
  return memory_call("cudaFreeHost", [&](State& s) {
    if (!pointer) return cudaSuccess;
    const auto found = host_ranges().find(static_cast<char*>(pointer));
    if (found == host_ranges().end()) return cudaErrorInvalidValue;
    ++s.counters.host_synchronizations;
    wait_for_device(s, -1);
    munmap(pointer, found->second.bytes);
    host_ranges().erase(found);
    return after_wait(s);
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api("cudaMemGetInfo", [&](State& s) {
    if (free) *free = s.config.memory_bytes - used_on(current_device());
    if (total) *total = s.config.memory_bytes;
    return cudaSuccess;
  });
}

}  // extern "C"
