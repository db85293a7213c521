#pragma once
// Where a caching allocator's memory comes from: the system, a CUDA device, or host memory that a device can reach.

#include <cstdint>
#include <functional>

#include "tern/core/device.h"

namespace tern {
namespace detail {

/// What a CachingAllocator asks of the system. It never touches the memory, calls back only under its own lock, and
/// never with a null pointer, stream callbacks apart (a null stream is the device's default stream). None may call the
/// allocator, and only check() may throw.
struct MemorySource {
  /// Null when there is none.
  std::function<void*(int64_t bytes)> allocate;
  std::function<void(void* pointer, int64_t bytes)> release;
  /// Bytes that the system could still give.
  std::function<int64_t()> available;
  /// Bytes of the device, for out-of-memory reports; may be empty.
  std::function<int64_t()> total = {};

  /// 0: every block is its own system allocation, its size rounded up to an eighth of its power of two. Otherwise
  /// blocks are cut from segments as PyTorch's CUDACachingAllocator.cpp does (there 2 MiB): requests up to half of this
  /// from segments of this size, up to five times this from segments of ten times this, larger ones from a segment of
  /// their own, rounded up to a multiple of this.
  int64_t segment_bytes = 0;
  /// Of addresses and sizes in segments, a power of two of at least 64; allocate() must give addresses so aligned.
  int64_t alignment = 64;
  /// Grants more than there is (a system that hands out pages when touched): available() is asked before large
  /// requests, which would otherwise end in a killed process.
  bool overcommits = false;
  /// The host reads and writes the memory, and it is ordered after no stream: then no stream may reuse a block at once,
  /// record_stream() counts for every stream, the default one included, and the stream given to allocate() does not.
  bool used_by_host = false;
  /// Nobody but the host touches the memory, and nobody after release(): AddressSanitizer then reports an access to a
  /// cached block, or to what rounding added to a live one.
  bool watched = false;
  /// For messages: "out of <name> on cpu".
  const char* name = "memory";

  /// Throws when the device can no longer be used; asked before a lack of memory is reported. May be empty.
  std::function<void()> check = {};

  // Streams; all four empty where work is done when the call returns. Null events are never passed back.
  /// An event that is done when all work queued on the stream so far is; null when that work is over: because it was
  /// waited for where an event could not be had, or because the device is lost.
  std::function<void*(void* stream)> record = {};
  /// Must not block. Not called while a private pool is open (no event may be queried while a stream is captured).
  std::function<bool(void* event)> done = {};
  std::function<void(void* event)> wait = {};
  /// The event is no longer needed.
  std::function<void(void* event)> drop = {};
};

/// The source behind allocator(device).
MemorySource memory_source(Device device);
/// Memory this process may still take: MemAvailable, the cgroup's limit and the address space's.
int64_t available_system_memory();

}  // namespace detail

namespace cuda {
/// Memory of CUDA device `index`.
detail::MemorySource memory_source(int index);
/// Page-locked host memory, which a device copies from and to while the host goes on.
detail::MemorySource pinned_memory_source();
}  // namespace cuda

}  // namespace tern
