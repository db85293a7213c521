#pragma once
// The caching allocator, one design for every device. It keeps freed blocks by size and reuses them, because a training
// step requests the same sizes every time: with the system's allocator the pages would fault again, and cudaMalloc
// would wait for the device.
//
// * A request takes the smallest cached block that is large enough. Where every block is a separate system allocation
//   (the CPU), sizes are rounded up to an eighth of their power of two and a block may be a quarter larger than the
//   request; where blocks are cut from segments (CUDA), a block is split when the rest is worth keeping, and merged
//   with free neighbours on release. Data is aligned to 64 bytes on the CPU (large blocks to 2 MiB, for huge pages) and
//   to 512 on CUDA.
// * A block belongs to the stream it was allocated for. After its release that stream can reuse it at once, because
//   later work of the stream runs after earlier work. After record_stream() the block is reused only when the other
//   stream has finished the work that was queued at release; later allocations query this and wait only if memory would
//   run out. Memory moves from one stream to another only through the system, after waiting.
// * Private pools give captured graphs separate memory at fixed addresses.
// * When the limit is reached, cached memory is freed and the request is repeated; if that fails, OutOfMemoryError
//   lists the live bytes by the op that allocated them and what to try.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tern/core/device/device.h"
#include "tern/core/memory/free_list.h"
#include "tern/core/memory/memory_source.h"

namespace tern {

/// Bytes count whole blocks, that is, rounded sizes. reserved_bytes = live_bytes + cached_bytes + deferred_bytes.
struct MemoryStatistics {
  int64_t live_bytes = 0;       // in use by tensors
  int64_t peak_live_bytes = 0;  // the maximum since the start or reset_peak()
  int64_t reserved_bytes = 0;   // held by the process
  int64_t peak_reserved_bytes = 0;
  int64_t cached_bytes = 0;          // free, usable by their stream and pool
  int64_t deferred_bytes = 0;        // released, but another stream may still use them
  int64_t inactive_split_bytes = 0;  // cached in segments with blocks in use: empty_cache() cannot free them
  int64_t largest_cached_block = 0;  // bytes
  int64_t allocations = 0;           // requests served
  int64_t system_allocations = 0;    // requests that the cache could not serve
  int64_t splits = 0;
  int64_t merges = 0;
};

class CachingAllocator {
 public:
  CachingAllocator(Device device, detail::MemorySource source);
  /// Waits for deferred blocks and frees everything that is not live.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Allocates memory for work on `stream` (a cudaStream_t; null is the default stream, the only one of the CPU). Zero
  /// or fewer bytes give a null pointer. Throws OutOfMemoryError.
  void* allocate(int64_t bytes, void* stream = nullptr);
  /// Ignores null and pointers to no live block.
  void release(void* pointer) noexcept;
  /// Work on `stream` uses the block too. Call it after the allocation and before release(). Throws Error when no live
  /// block begins at `pointer`.
  void record_stream(void* pointer, void* stream);
  /// Call it before a stream is destroyed: waits for the stream's work and moves its memory to the default stream.
  /// Throws Error while a private pool is open.
  void forget_stream(void* stream);

  /// Until end_private_pool(), this thread allocates from a new pool, whose memory stays reserved until
  /// release_private_pool(). Blocks released in between are reused by the same pool. While any pool is open no event is
  /// queried and no memory is returned to the system: both are illegal during stream capture. Throws Error when this
  /// thread has an open pool.
  int64_t begin_private_pool();
  /// Throws Error when `pool` is not this thread's open pool.
  void end_private_pool(int64_t pool);
  /// After the graph's destruction the pool's memory joins the common cache of its streams, so replays must be finished
  /// or ordered before later work there. Live blocks stay live. Throws Error when the pool is open or unknown.
  void release_private_pool(int64_t pool);

  MemoryStatistics statistics() const;
  void reset_peak();
  /// Returns all memory without live blocks to the system, after waiting for the streams that it belongs to. Throws
  /// Error while a private pool is open.
  void empty_cache();
  /// The maximum of reserved bytes; 0 (the default) means all memory of the machine. Throws Error when negative.
  void set_limit(int64_t bytes);
  /// Live bytes by the op that allocated them, largest first, one op per line.
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
    bool busy;  // set by the current poll
  };

  bool uses_segments() const { return source_.segment_bytes > 0; }
  int64_t round(int64_t bytes) const;
  int64_t segment_size(int64_t rounded) const;
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
  std::vector<OtherStream> other_streams_;  // all streams that were passed to record_stream()
  std::vector<OpenPool> open_pools_;
  std::vector<int64_t> closed_pools_;
  int64_t pools_ = 0;
  MemoryStatistics statistics_;
  int64_t limit_ = 0;
};

/// The allocator of a device, created at first use and never destroyed (static tensors may outlive main).
CachingAllocator& allocator(Device device);
/// Host memory for asynchronous copies to and from CUDA devices. Before a block is released, call record_stream() with
/// the stream of the copies, the default stream included. Ordinary memory in a build without CUDA.
CachingAllocator& pinned_allocator();

/// Names what this thread allocates for in out-of-memory reports: an op or, with covers_ops, a purpose that also covers
/// the ops within it ("parameters", "optimizer state"). `name` must be a literal.
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
