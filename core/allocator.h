#pragma once
// The caching allocator, one design for every device. Freed blocks are kept by size and handed out again, because a
// training step asks for the same sizes every time: the system's allocator would fault the pages in anew, and
// cudaMalloc would wait for the device.
//
// * A request takes the smallest cached block that is large enough. Where every block is its own system allocation (the
//   CPU) sizes are rounded up to an eighth of their power of two and a block may be a quarter larger; where blocks are
//   cut from segments (CUDA) a block is split when the rest is worth keeping, and merged with free neighbours on
//   release. Data is aligned to 64 bytes on the CPU (large blocks to 2 MiB, for huge pages) and to 512 on CUDA.
// * A block belongs to the stream it was allocated for and on release serves that stream again at once: later work
//   there is ordered after. After record_stream() it first waits until the other stream has finished what was queued at
//   release; this is asked at later allocations, never waited for, unless memory would run out. Memory of one stream
//   reaches another only through the system, after waiting.
// * Private pools give captured graphs memory of their own, at fixed addresses.
// * When the limit is reached, cached memory is given back and the request is tried again; then OutOfMemoryError lists
//   the live bytes by the op that allocated them and what to try.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tern/core/device.h"
#include "tern/core/free_list.h"
#include "tern/core/memory_source.h"

namespace tern {

/// Bytes count whole blocks, that is rounded sizes. reserved_bytes = live_bytes + cached_bytes + deferred_bytes.
struct MemoryStatistics {
  int64_t live_bytes = 0;       // in use by tensors
  int64_t peak_live_bytes = 0;  // the most since the start or reset_peak()
  int64_t reserved_bytes = 0;   // what the process holds
  int64_t peak_reserved_bytes = 0;
  int64_t cached_bytes = 0;          // free, for the stream and pool that they belong to
  int64_t deferred_bytes = 0;        // released, but another stream may not have finished with them
  int64_t inactive_split_bytes = 0;  // cached beside blocks in use, so that empty_cache() cannot give them back
  int64_t largest_cached_block = 0;  // bytes
  int64_t allocations = 0;           // requests served
  int64_t system_allocations = 0;    // requests that the cache could not serve
  int64_t splits = 0;
  int64_t merges = 0;
};

class CachingAllocator {
 public:
  CachingAllocator(Device device, detail::MemorySource source);
  /// Waits for deferred blocks and gives everything back that is not live.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Memory for work on `stream` (a cudaStream_t; null is the default stream and the only one of the CPU). Throws
  /// OutOfMemoryError. Zero or fewer bytes give a null pointer.
  void* allocate(int64_t bytes, void* stream = nullptr);
  /// Ignores null and what is not a live block.
  void release(void* pointer) noexcept;
  /// The block is also used by work on `stream`. To be called after that work's allocation and before release().
  /// Throws Error when no live block begins at `pointer`.
  void record_stream(void* pointer, void* stream);
  /// To be called before a stream is destroyed: waits for its work and hands its memory to the default stream. Throws
  /// Error while a private pool is open.
  void forget_stream(void* stream);

  /// Until end_private_pool() this thread's allocations come from a new pool of their own, whose memory stays reserved
  /// until release_private_pool(). Blocks released meanwhile serve the same pool again. While any pool is open no event
  /// is queried and nothing goes back to the system: both are illegal while a stream is captured. Throws Error when
  /// this thread has an open pool.
  int64_t begin_private_pool();
  /// Throws Error when `pool` is not this thread's open pool.
  void end_private_pool(int64_t pool);
  /// The graph is gone: the pool's memory joins the common cache of its streams, so replays must be over or ordered
  /// before later work on those streams. Live blocks live on. Throws Error when the pool is open or unknown.
  void release_private_pool(int64_t pool);

  MemoryStatistics statistics() const;
  void reset_peak();
  /// Gives all memory that holds no live block back to the system, after waiting for the streams that it belongs to.
  /// Throws Error while a private pool is open.
  void empty_cache();
  /// The most bytes to reserve; 0 (the default) means what the machine has. Throws Error when negative.
  void set_limit(int64_t bytes);
  /// Live bytes by the op that allocated them, largest first, one a line.
  std::string snapshot() const;
  /// All segments by address and their blocks, as JSON: {"device", "name", "segments": [{"address", "bytes", "stream",
  /// "pool", "blocks": [{"address", "bytes", "state": "live" | "cached" | "deferred", "tag"}]}]}.
  std::string snapshot_json() const;

 private:
  struct OpenPool {
    std::thread::id thread;
    int64_t pool;
  };
  struct OtherStream {
    void* stream;
    bool busy;  // found so by the poll in progress
  };

  bool uses_segments() const { return source_.segment_bytes > 0; }
  int64_t round(int64_t bytes) const;
  int64_t segment_size(int64_t rounded) const;
  detail::FreeList& list_for(void* stream, int64_t pool, int64_t rounded);
  detail::FreeList& list_of(void* stream, int64_t pool, bool small);
  int64_t current_pool() const;
  detail::Block* find(detail::FreeList& list, int64_t bytes);
  detail::Block* take_cached(detail::FreeList& list, int64_t bytes);
  detail::Block* take_new(detail::FreeList& list, int64_t bytes, int64_t segment);
  void split(detail::Block& block, int64_t bytes);
  void cache(detail::Block* block) noexcept;
  detail::Block* merge(detail::Block* left, detail::Block* right) noexcept;
  void defer(detail::Block& block) noexcept;
  void undefer(detail::Block& block) noexcept;
  void poll_deferred();
  bool is_finished(detail::Block::StreamUse& use);
  void wait_for_deferred();
  void wait_for(void* stream);
  void give_back_cached();
  void move_blocks(detail::FreeList& from, detail::FreeList& to);
  std::string describe_live() const;
  [[noreturn]] void out_of_memory(int64_t bytes) const;

  const Device device_;
  const detail::MemorySource source_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, detail::Block> blocks_;  // every block, by address; blocks never move
  std::vector<std::unique_ptr<detail::FreeList>> lists_;
  detail::Block* first_deferred_ = nullptr;  // in the order of release
  detail::Block* last_deferred_ = nullptr;
  std::vector<OtherStream> other_streams_;  // all that record_stream() has named
  std::vector<OpenPool> open_pools_;
  std::vector<int64_t> closed_pools_;
  int64_t pools_ = 0;
  MemoryStatistics statistics_;
  int64_t limit_ = 0;
};

/// The allocator of a device, made at first use and never destroyed (tensors in static storage may outlive main).
CachingAllocator& allocator(Device device);
/// Host memory for asynchronous copies to and from CUDA devices; record_stream() the copies' stream on a block,
/// whichever it is, before its release. Ordinary memory in a build without CUDA.
CachingAllocator& pinned_allocator();

/// Names what this thread allocates for, in out-of-memory reports: an op, or with covers_ops a purpose that counts for
/// the ops within too ("parameters", "optimizer state"). `name` must be a literal.
class AllocationTag {
 public:
  explicit AllocationTag(const char* name, bool covers_ops = false);
  ~AllocationTag();
  AllocationTag(const AllocationTag&) = delete;
  AllocationTag& operator=(const AllocationTag&) = delete;

  static const char* current();

 private:
  const char* previous_;
  bool outer_covers_;
};

}  // namespace tern
