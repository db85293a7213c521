#pragma once
// The caching allocator. Freed blocks are kept by size and handed out again, because a training step asks for the same
// sizes every time and the system's allocator would fault the pages in anew.
//
// * Sizes are rounded up to an eighth of their power of two (at most 12.5 % is lost), at least 64 bytes; data is
// aligned
//   to 64 bytes, large blocks to 2 MiB so that they can use huge pages.
// * A request takes the smallest cached block that is large enough and at most a quarter larger.
// * When the limit is reached, cached blocks are given back and the request is tried again; then OutOfMemoryError lists
//   the live bytes by the op that allocated them and what to try.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tern/core/device.h"

namespace tern {

struct MemoryStatistics {
  int64_t live_bytes = 0;       // in use by tensors, rounded sizes
  int64_t peak_live_bytes = 0;  // the most since the start or reset_peak()
  int64_t reserved_bytes = 0;   // live and cached: what the process holds
  int64_t peak_reserved_bytes = 0;
  int64_t allocations = 0;         // requests served
  int64_t system_allocations = 0;  // requests that the cache could not serve
};

/// Where an allocator's memory comes from: the system, or a CUDA driver.
struct MemorySource {
  std::function<void*(int64_t bytes)> allocate;  // returns null when there is none
  std::function<void(void* pointer, int64_t bytes)> release;
  std::function<int64_t()> available;  // bytes that the system could still give
};

class CachingAllocator {
 public:
  CachingAllocator(Device device, MemorySource source);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Throws OutOfMemoryError. Zero bytes give a null pointer.
  void* allocate(int64_t bytes);
  void release(void* pointer) noexcept;

  MemoryStatistics statistics() const;
  void reset_peak();
  /// Gives all cached blocks back to the system.
  void empty_cache();
  /// The most bytes to reserve; 0 (the default) means what the machine has. Throws Error when negative.
  void set_limit(int64_t bytes);
  /// Live bytes by the op that allocated them, largest first, one a line.
  std::string snapshot() const;

 private:
  struct Block {
    int64_t bytes;
    const char* tag;
  };
  using Blocks = std::unordered_map<void*, Block>;
  void* take_cached(int64_t bytes);
  void* take_new(int64_t bytes);
  void release_cached();
  std::string describe_live() const;
  [[noreturn]] void out_of_memory(int64_t bytes) const;

  const Device device_;
  const MemorySource source_;
  mutable std::mutex mutex_;
  Blocks live_;
  // By size class. Whole entries move between live_ and here, so that reuse costs no memory management of its own.
  std::vector<std::vector<Blocks::node_type>> cached_;
  MemoryStatistics statistics_;
  int64_t limit_ = 0;
};

/// The allocator of a device, made at first use and never destroyed (tensors in static storage may outlive main).
CachingAllocator& allocator(Device device);
/// Memory this process may still take: MemAvailable, the cgroup's limit and the address space's.
int64_t available_system_memory();

/// Names the op on whose behalf this thread allocates, for out-of-memory reports. `name` must be a literal.
class AllocationTag {
 public:
  explicit AllocationTag(const char* name);
  ~AllocationTag();
  AllocationTag(const AllocationTag&) = delete;
  AllocationTag& operator=(const AllocationTag&) = delete;

 private:
  const char* previous_;
};

}  // namespace tern
