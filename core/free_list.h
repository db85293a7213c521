#pragma once
// Blocks of memory and the lists that free ones wait in: the bookkeeping of the caching allocator.
//
// Free blocks are kept by size class (an eighth of a power of two), as in a two-level segregated fit (Masmano et al.,
// 2004), but the best fit within the first class that has one is taken, so a size that comes back finds its old block.
// Lists are threaded through the blocks: releasing memory allocates none.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tern {

class FreeList;

/// A piece of a segment. Segments are not objects: a segment is a chain of blocks, each beginning where the one before
/// ends. A block without neighbours is a whole segment and can be given back to the system.
struct Block {
  enum class State : uint8_t { kLive, kCached, kDeferred };
  struct StreamUse {
    void* stream = nullptr;
    void* event = nullptr;  // null until recorded, at release
    bool recorded = false;
  };

  char* data = nullptr;
  int64_t bytes = 0;
  FreeList* home = nullptr;
  const char* tag = "";
  State state = State::kCached;
  Block* before = nullptr;  // neighbours in the segment
  Block* after = nullptr;
  Block* previous = nullptr;  // in the list that the block waits in
  Block* next = nullptr;
  std::vector<StreamUse> uses;  // by streams other than the one it was allocated for

  bool is_whole_segment() const { return !before && !after; }
};

/// Up to the next eighth of the power of two below: few distinct sizes, little waste; at least 64.
int64_t round_to_class(int64_t bytes);

/// The free blocks of one stream, one pool and one kind of segment.
class FreeList {
 public:
  FreeList(void* stream, int64_t pool, bool small) : stream(stream), pool(pool), small(small) {}

  void* const stream;
  const int64_t pool;  // 0: common
  const bool small;    // of small segments: those would be torn by what large ones serve

  void insert(Block& block) noexcept;
  void remove(Block& block) noexcept;
  /// The smallest block of at least `bytes` and at most `at_most` bytes, the latest released among equals; null when
  /// there is none.
  Block* best_fit(int64_t bytes, int64_t at_most) const;
  /// Any block first for null, then the one after `block`; null at the end.
  Block* next_of(const Block* block) const;

 private:
  static constexpr size_t kClasses = 448;  // up to 2^62 bytes
  size_t next_class(size_t from) const;

  std::array<Block*, kClasses> heads_{};
  std::array<uint64_t, kClasses / 64> filled_{};  // a bit per class
};

}  // namespace tern
