#pragma once
// Sources of a caching allocator's memory: the system, a CUDA device, or host memory that a device can access.

#include <cstdint>
#include <functional>

#include "tern/core/device/device.h"

namespace tern {
namespace detail {

/// Bytes of one of the system's huge pages on x86-64.
inline constexpr int64_t kHugePage = int64_t{2} << 20;

/// The functions that a CachingAllocator calls, only under its lock and never with a null pointer, except for streams
/// (null is the device's default stream). None may call the allocator, and only check() may throw. The allocator never
/// accesses the memory.
struct MemorySource {
  /// Returns null when memory is exhausted.
  std::function<void*(int64_t bytes)> allocate;
  std::function<void(void* pointer, int64_t bytes)> release;
  /// Bytes that the system can still provide.
  std::function<int64_t()> available;
  /// Bytes of the device, for out-of-memory reports; may be empty.
  std::function<int64_t()> total = {};

  /// 0: every block is a separate system allocation, its size rounded up to an eighth of its power of two. Otherwise
  /// blocks are cut from segments as in PyTorch's CUDACachingAllocator.cpp (there 2 MiB): requests up to half of this
  /// from segments of this size, requests up to five times this from segments of ten times this, larger requests from a
  /// separate segment, rounded up to a multiple of this.
  int64_t segment_bytes = 0;
  /// Alignment of addresses and sizes in segments, a power of two of at least 64; allocate() must respect it.
  int64_t alignment = 64;
  /// allocate() succeeds beyond the available memory (the system provides pages at first access). Large requests first
  /// check available(), because otherwise the system would kill the process.
  bool overcommits = false;
  /// The host reads and writes the memory without stream order: no stream may reuse a block at once, record_stream()
  /// counts for every stream, the default one included, and the stream given to allocate() is ignored.
  bool used_by_host = false;
  /// Only the host accesses the memory, and never after release(): AddressSanitizer then reports accesses to cached
  /// blocks and to the bytes that rounding added to live ones.
  bool watched = false;
  /// For messages: "out of <name> on cpu".
  const char* name = "memory";

  /// Throws when the device can no longer be used; called before an out-of-memory error is reported. May be empty.
  std::function<void()> check = {};

  // Streams; all four are empty where work is done when the call returns. Null events are never passed back.
  /// Returns an event that is done when all work queued on the stream so far is done. Returns null when that work is
  /// already over: it waited because no event could be created, or the device is lost.
  std::function<void*(void* stream)> record = {};
  /// Must not block. Not called while a private pool is open (events must not be queried during stream capture).
  std::function<bool(void* event)> done = {};
  std::function<void(void* event)> wait = {};
  /// Destroys an event that is no longer needed.
  std::function<void(void* event)> drop = {};
};

/// The source of allocator(device).
MemorySource memory_source(Device device);
/// Bytes this process may still allocate, by MemAvailable and the limits of the cgroup and the address space.
int64_t available_system_memory();

}  // namespace detail

namespace cuda {
/// Memory of CUDA device `index`.
detail::MemorySource memory_source(int index);
/// Page-locked host memory, which a device copies from and to while the host continues.
detail::MemorySource pinned_memory_source();
}  // namespace cuda

}  // namespace tern
