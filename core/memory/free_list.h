#pragma once
// Blocks of memory and the lists of free blocks: the bookkeeping of the caching allocator.
//
// Free blocks are kept by size class (an eighth of a power of two), as in a two-level segregated fit (Masmano et al.,
// 2004), but with the best fit within the first class that has one, so that a repeated size gets the same block again.
// The lists are linked through the blocks: releasing memory allocates none.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tern::detail {

class FreeList;

/// A part of a segment. A segment is a chain of blocks, each beginning where the previous one ends. A block without
/// neighbours is a whole segment and can be returned to the system.
struct Block {
  enum class State : uint8_t { kLive, kCached, kDeferred };
  struct StreamUse {
    void* stream = nullptr;
    void* event = nullptr;  // null until recorded at release
    bool recorded = false;
  };

  char* data = nullptr;
  int64_t bytes = 0;
  FreeList* home = nullptr;
  const char* tag = "";
  State state = State::kCached;
  Block* before = nullptr;  // neighbours in the segment
  Block* after = nullptr;
  Block* previous = nullptr;  // in the free list
  Block* next = nullptr;
  std::vector<StreamUse> uses;  // by streams other than the one it was allocated for

  bool is_whole_segment() const { return !before && !after; }
};

/// Rounds up to a multiple of an eighth of the power of two below: few distinct sizes, little waste; at least 64.
inline int64_t round_to_class(int64_t bytes) {
  if (bytes <= 512) return (bytes + 63) / 64 * 64;
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  return (bytes + step - 1) / step * step;
}

/// The class of a multiple of 64; classes below 512 bytes are 64 bytes wide.
inline size_t size_class(int64_t bytes) {
  if (bytes <= 512) return static_cast<size_t>(bytes / 64 - 1);
  const int power = std::bit_width(static_cast<uint64_t>(bytes)) - 1;
  return static_cast<size_t>(8 + (power - 9) * 8 + (bytes >> (power - 3)) - 8);
}

/// The free blocks of one stream, one pool and one kind of segment.
class FreeList {
 public:
  FreeList(void* stream, int64_t pool, bool small) : stream(stream), pool(pool), small(small) {}

  void* const stream;
  const int64_t pool;  // 0: the common pool
  const bool small;    // small segments are separate, because large requests would fragment them

  void insert(Block& block) noexcept;
  void remove(Block& block) noexcept;
  /// The smallest block of `bytes` to `at_most` bytes, among equals the one released last; null when there is none.
  Block* best_fit(int64_t bytes, int64_t at_most) const;
  /// For iteration: the first block for null, otherwise the one after `block`; null at the end.
  Block* next_of(const Block* block) const;

 private:
  static constexpr size_t kClasses = 448;  // up to 2^62 bytes
  size_t next_class(size_t from) const;

  std::array<Block*, kClasses> heads_{};
  std::array<uint64_t, kClasses / 64> filled_{};  // one bit per class: its list is not empty
};

inline void FreeList::insert(Block& block) noexcept {
  const size_t c = size_class(block.bytes);
  block.previous = nullptr;
  block.next = heads_[c];
  if (block.next) block.next->previous = &block;
  heads_[c] = &block;
  filled_[c / 64] |= uint64_t{1} << c % 64;
}

inline void FreeList::remove(Block& block) noexcept {
  const size_t c = size_class(block.bytes);
  if (block.next) block.next->previous = block.previous;
  if (block.previous)
    block.previous->next = block.next;
  else
    heads_[c] = block.next;
  if (!heads_[c]) filled_[c / 64] &= ~(uint64_t{1} << c % 64);
  block.previous = block.next = nullptr;
}

inline size_t FreeList::next_class(size_t from) const {
  for (size_t word = from / 64; word < filled_.size(); ++word) {
    const uint64_t bits = word == from / 64 ? filled_[word] >> from % 64 << from % 64 : filled_[word];
    if (bits) return word * 64 + static_cast<size_t>(std::countr_zero(bits));
  }
  return kClasses;
}

inline Block* FreeList::best_fit(int64_t bytes, int64_t at_most) const {
  for (size_t c = next_class(size_class(bytes)); c < kClasses; c = next_class(c + 1)) {
    Block* best = nullptr;
    for (Block* block = heads_[c]; block; block = block->next) {
      if (block->bytes < bytes || (best && block->bytes >= best->bytes)) continue;
      best = block;
      if (block->bytes == bytes) break;
    }
    if (best) return best->bytes <= at_most ? best : nullptr;
  }
  return nullptr;
}

inline Block* FreeList::next_of(const Block* block) const {
  if (block && block->next) return block->next;
  const size_t c = next_class(block ? size_class(block->bytes) + 1 : 0);
  return c < kClasses ? heads_[c] : nullptr;
}

}  // namespace tern::detail
