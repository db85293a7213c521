#include "tern/data/tokenizers/pipeline/vocabulary.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace tern::data {
namespace {

std::uint32_t hash_of(std::string_view key) {
  std::uint64_t hash = 0x9E3779B97F4A7C15u ^ key.size();
  const char* p = key.data();
  std::size_t left = key.size();
  for (; left >= 8; left -= 8, p += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, p, 8);
    hash = (hash ^ eight) * 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 29;
  }
  std::uint64_t rest = 0;
  for (std::size_t i = 0; i < left; ++i) rest = rest << 8 | static_cast<unsigned char>(p[i]);
  hash = (hash ^ rest) * 0x94D049BB133111EBu;
  return static_cast<std::uint32_t>(hash >> 32 ^ hash);
}

}  // namespace

StringMap::StringMap(std::size_t expected) {
  std::size_t slots = 16;
  while (slots < expected * 2) slots *= 2;
  slots_.resize(slots);
  entries_.reserve(expected);
}

std::size_t StringMap::slot_of(std::string_view wanted, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.entry == 0 || (slot.hash == hash && key(slot.entry - 1) == wanted)) return at;
  }
}

std::int32_t StringMap::find(std::string_view wanted) const {
  const Slot& slot = slots_[slot_of(wanted, hash_of(wanted))];
  return slot.entry == 0 ? -1 : entries_[slot.entry - 1].number;
}

void StringMap::set(std::string_view wanted, std::int32_t number) {
  const std::uint32_t hash = hash_of(wanted);
  std::size_t at = slot_of(wanted, hash);
  if (slots_[at].entry != 0) {
    entries_[slots_[at].entry - 1].number = number;
    return;
  }
  if ((entries_.size() + 1) * 2 > slots_.size()) {
    grow();
    at = slot_of(wanted, hash);
  }
  TERN_CHECK(wanted.size() < UINT32_MAX && entries_.size() < INT32_MAX, "tokenizer: the vocabulary is too large");
  entries_.push_back({text_.size(), static_cast<std::uint32_t>(wanted.size()), number});
  text_ += wanted;
  slots_[at] = {hash, static_cast<std::uint32_t>(entries_.size())};
}

void StringMap::grow() {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.entry == 0) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].entry != 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

std::vector<std::int32_t> ids_of_bytes(const std::function<std::int32_t(std::string_view)>& find) {
  std::vector<std::int32_t> ids;
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    ids.push_back(find(name));
  }
  return ids;
}

Vocabulary::Vocabulary(const JsonField& object) : ids_(object.value().size()) {
  if (!object.value().is_object()) object.reject("an object of tokens and ids");
  for (const auto& [token, id] : object.value().items()) add(token, object.member(token, id).token_id());
  finish(object);
}

void Vocabulary::add(std::string_view token, std::int32_t id) { ids_.set(token, id); }

void Vocabulary::finish(const JsonField& source) {
  by_id_.clear();
  for (std::uint32_t i = 0; i < ids_.size(); ++i) by_id_.emplace_back(ids_.number(i), i);
  std::sort(by_id_.begin(), by_id_.end());
  for (std::size_t i = 0; i + 1 < by_id_.size(); ++i)
    TERN_CHECK(by_id_[i].first != by_id_[i + 1].first, source.where(), ": the id ", by_id_[i].first,
               " is given to two tokens, \"", detail::printable(ids_.key(by_id_[i].second)), "\" and \"",
               detail::printable(ids_.key(by_id_[i + 1].second)), "\"; each token needs an id of its own");
}

std::optional<std::string_view> Vocabulary::token(std::int32_t id) const {
  const auto found = std::lower_bound(by_id_.begin(), by_id_.end(), std::pair<std::int32_t, std::uint32_t>(id, 0));
  if (found == by_id_.end() || found->first != id) return std::nullopt;
  return ids_.key(found->second);
}

}  // namespace tern::data
