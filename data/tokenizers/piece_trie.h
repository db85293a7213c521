#pragma once
// The vocabulary as a double-array trie over UTF-8 bytes (Aoe 1989; XOR form as in darts-clone): one lookup per byte.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tern::data {

class PieceTrie {
 public:
  /// One node. Its child for byte b is units[base ^ b] if that unit's label is b; label 0 marks a free unit.
  struct Unit {
    std::uint32_t base_and_label = 0;
    std::int32_t id = -1;  ///< the piece that ends here, -1 for none
    std::uint32_t base() const { return base_and_label >> 8; }
    std::uint8_t label() const { return static_cast<std::uint8_t>(base_and_label); }
  };

  PieceTrie();

  /// Adds pieces (sorted by bytes, distinct, not empty, without byte 0) and returns the root to search from. Fails if
  /// the trie would exceed 2^24 nodes.
  std::uint32_t add(const std::vector<std::pair<std::string_view, std::int32_t>>& pieces);

  const Unit* units() const { return units_.data(); }

  struct Match {
    std::int32_t id;  // -1 for none
    const char* end;
  };
  /// The longest piece under `root` that the bytes [begin, end) start with.
  Match longest(std::uint32_t root, const char* begin, const char* end) const {
    Match match{-1, begin};
    std::uint32_t base = root;
    for (const char* p = begin; p < end;) {
      const auto byte = static_cast<std::uint8_t>(*p);
      const Unit unit = units_[base ^ byte];
      if (unit.label() != byte || byte == 0) break;
      ++p;
      if (unit.id >= 0) match = {unit.id, p};
      base = unit.base();
    }
    return match;
  }

 private:
  std::uint32_t place(const std::vector<std::uint8_t>& labels);
  bool fits(std::uint32_t base, const std::vector<std::uint8_t>& labels) const;

  std::vector<Unit> units_;
  std::vector<bool> base_used_;
  std::size_t first_free_;
};

}  // namespace tern::data
