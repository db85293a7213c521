#include "tern/core/free_list.h"

#include <bit>

namespace tern {
namespace {

constexpr int64_t kLeast = 64;

/// The number of the class that a multiple of 64 falls in; classes below 512 bytes are 64 bytes wide.
size_t size_class(int64_t bytes) {
  if (bytes <= 512) return static_cast<size_t>(bytes / kLeast - 1);
  const int power = std::bit_width(static_cast<uint64_t>(bytes)) - 1;
  return static_cast<size_t>(8 + (power - 9) * 8 + (bytes >> (power - 3)) - 8);
}

}  // namespace

int64_t round_to_class(int64_t bytes) {
  if (bytes <= 512) return (bytes + kLeast - 1) / kLeast * kLeast;
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  return (bytes + step - 1) / step * step;
}

void FreeList::insert(Block& block) noexcept {
  const size_t c = size_class(block.bytes);
  block.previous = nullptr;
  block.next = heads_[c];
  if (block.next) block.next->previous = &block;
  heads_[c] = &block;
  filled_[c / 64] |= uint64_t{1} << c % 64;
}

void FreeList::remove(Block& block) noexcept {
  const size_t c = size_class(block.bytes);
  if (block.next) block.next->previous = block.previous;
  if (block.previous)
    block.previous->next = block.next;
  else
    heads_[c] = block.next;
  if (!heads_[c]) filled_[c / 64] &= ~(uint64_t{1} << c % 64);
  block.previous = block.next = nullptr;
}

size_t FreeList::next_class(size_t from) const {
  for (size_t word = from / 64; word < filled_.size(); ++word) {
    const uint64_t bits = word == from / 64 ? filled_[word] >> from % 64 << from % 64 : filled_[word];
    if (bits) return word * 64 + static_cast<size_t>(std::countr_zero(bits));
  }
  return kClasses;
}

Block* FreeList::best_fit(int64_t bytes, int64_t at_most) const {
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

Block* FreeList::next_of(const Block* block) const {
  if (block && block->next) return block->next;
  const size_t c = next_class(block ? size_class(block->bytes) + 1 : 0);
  return c < kClasses ? heads_[c] : nullptr;
}

}  // namespace tern
