#pragma once
// The tokens of a model and their ids.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tern/data/tokenizers/pipeline/json_field.h"

namespace tern::data {

/// Texts and a number for each, in one hash table with open addressing.
class StringMap {
 public:
  explicit StringMap(std::size_t expected = 0);

  /// The number of a text; -1 if it is not in the map.
  std::int32_t find(std::string_view key) const;
  /// Adds a text, or replaces its number.
  void set(std::string_view key, std::int32_t number);
  std::size_t size() const { return entries_.size(); }

  /// The texts in the order of their first set(), each with its number.
  std::string_view key(std::size_t i) const {
    return std::string_view(text_).substr(entries_[i].begin, entries_[i].length);
  }
  std::int32_t number(std::size_t i) const { return entries_[i].number; }

 private:
  struct Entry {
    std::size_t begin;
    std::uint32_t length;
    std::int32_t number;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t entry = 0;  // 1 + index in entries_; 0 for a free slot
  };
  std::size_t slot_of(std::string_view key, std::uint32_t hash) const;
  void grow();

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;
};

/// The ids of "<0x00>" to "<0xFF>", which stand for single bytes (byte_fallback); -1 where find(token) has none.
std::vector<std::int32_t> ids_of_bytes(const std::function<std::int32_t(std::string_view)>& find);

/// Tokens and ids, each once; ids may have gaps.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Reads the object {"token": id}.
  explicit Vocabulary(const JsonField& object);

  void add(std::string_view token, std::int32_t id);
  /// Sorts by ids; call it after the last add(). Throws Error if two tokens have one id.
  void finish(const JsonField& source);

  /// The id of a token; -1 for none.
  std::int32_t id(std::string_view token) const { return ids_.find(token); }
  std::optional<std::string_view> token(std::int32_t id) const;
  std::size_t size() const { return ids_.size(); }
  /// All ids are smaller.
  std::int64_t bound() const { return by_id_.empty() ? 0 : std::int64_t{by_id_.back().first} + 1; }
  const std::vector<std::pair<std::int32_t, std::uint32_t>>& by_id() const { return by_id_; }
  std::string_view entry(std::uint32_t i) const { return ids_.key(i); }

 private:
  StringMap ids_;
  std::vector<std::pair<std::int32_t, std::uint32_t>> by_id_;  // id, entry of ids_
};

}  // namespace tern::data
