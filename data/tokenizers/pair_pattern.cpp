#include "tern/data/tokenizers/pair_pattern.h"

#include <algorithm>

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

void cut_to(std::vector<std::int32_t>& ids, std::size_t length, bool left) {
  if (left)
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(length));
  else
    ids.resize(length);
}

}  // namespace

std::size_t PairPattern::added() const {
  std::size_t count = 0;
  for (const Part& part : parts) count += part.ids.size();
  return count;
}

std::int32_t PairPattern::greatest_type() const {
  std::int32_t greatest = 0;
  for (const Part& part : parts) greatest = std::max(greatest, part.type);
  return greatest;
}

PairPattern PairPattern::without_types() const {
  PairPattern plain = *this;
  for (Part& part : plain.parts) part.type = 0;
  return plain;
}

void PairPattern::append(std::vector<std::int32_t> first, std::vector<std::int32_t> second, std::size_t max_length,
                         bool cuts_left, TypedIds& out) const {
  TERN_CHECK(max_length >= added(), "tokenizer: max_length must be at least ", added(),
             ", the number of special tokens of a pair of texts, got ", max_length);
  const auto [first_length, second_length] = lengths_within(first.size(), second.size(), max_length - added());
  cut_to(first, first_length, cuts_left);
  cut_to(second, second_length, cuts_left);
  for (const Part& part : parts) {
    const std::vector<std::int32_t>& ids = part.source == Source::kFirst    ? first
                                           : part.source == Source::kSecond ? second
                                                                            : part.ids;
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.types.insert(out.types.end(), ids.size(), part.type);
  }
}

PairPattern bert_pair(std::int32_t cls, std::int32_t sep) {
  using enum PairPattern::Source;
  return {{{kSpecial, {cls}}, {kFirst}, {kSpecial, {sep}}, {kSecond, {}, 1}, {kSpecial, {sep}, 1}}};
}

std::pair<std::size_t, std::size_t> lengths_within(std::size_t first, std::size_t second, std::size_t room) {
  if (first <= room && second <= room - first) return {first, second};
  const std::size_t half = room / 2, shorter = std::min(first, second);
  // The greater half is that of the longer text, and of the second one if both are as long.
  const std::size_t kept = std::min(shorter, half), rest = std::min(std::max(first, second), room - kept);
  return first > second ? std::pair(rest, kept) : std::pair(kept, rest);
}

}  // namespace tern::data
