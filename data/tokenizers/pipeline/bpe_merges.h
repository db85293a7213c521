#pragma once
// The merges of byte-pair encoding.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tern::data {

/// Merges by their pair of ids, in one hash table with open addressing.
class MergeTable {
 public:
  struct Merge {
    std::uint64_t pair = kFree;
    std::int32_t rank = kNone;
    std::int32_t id = 0;  // of the merged token
  };
  static constexpr std::int32_t kNone = INT32_MAX;
  static constexpr std::uint64_t kFree = UINT64_MAX;  // no pair, as ids are not negative

  explicit MergeTable(std::size_t count) {
    std::size_t slots = 16;
    while (slots < count * 2) slots *= 2;
    slots_.resize(slots);
  }
  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  /// The merge of a pair; one of rank kNone if there is none.
  const Merge& find(std::int32_t left, std::int32_t right) const {
    const Merge& merge = slots_[place(pair_of(left, right))];
    return merge.pair == kFree ? none_ : merge;
  }
  /// Calls use(left, right) for the pair of each merge.
  template <class Use>
  void for_each_pair(const Use& use) const {
    for (const Merge& merge : slots_)
      if (merge.pair != kFree)
        use(static_cast<std::int32_t>(merge.pair >> 32), static_cast<std::int32_t>(merge.pair & 0xFFFFFFFFu));
  }
  void set(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t id) {
    const std::uint64_t pair = pair_of(left, right);
    slots_[place(pair)] = {pair, rank, id};
  }

 private:
  std::size_t place(std::uint64_t pair) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15u) >> 29) & mask;
    while (slots_[at].pair != pair && slots_[at].pair != kFree) at = (at + 1) & mask;
    return at;
  }
  std::vector<Merge> slots_;
  Merge none_;
};

}  // namespace tern::data
