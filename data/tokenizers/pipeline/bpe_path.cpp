#include "tern/data/tokenizers/pipeline/bpe_path.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <unordered_map>

#include "tern/data/tokenizers/characters.h"
#include "tern/kernels/base/check.h"

namespace tern::data {

BpePath::BpePath(const MergeTable& merges, const std::vector<Entry>& entries) : merges_(merges) {
  static std::atomic<std::uint64_t> serial = 0;
  serial_ = ++serial;
  std::vector<std::pair<std::string_view, std::int32_t>> pieces;
  std::vector<Part> first, last;
  std::vector<std::size_t> beginnings;  // pieces that the next text may begin with, each with the one before it
  std::vector<std::size_t> entry_of_token;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (!is_merged(entry, first, last)) continue;
    entry_of_token.push_back(i);
    while (!beginnings.empty() && !entry.text.starts_with(pieces[beginnings.back()].first)) beginnings.pop_back();
    Token token{.id = entry.id, .length = static_cast<std::uint32_t>(entry.text.size())};
    if (!beginnings.empty()) token.shorter = static_cast<std::int32_t>(beginnings.back());
    token.first = static_cast<std::uint32_t>(parts_.size());
    parts_.insert(parts_.end(), first.begin(), first.end());
    token.last = static_cast<std::uint32_t>(parts_.size());
    parts_.insert(parts_.end(), last.begin(), last.end());
    beginnings.push_back(pieces.size());
    pieces.emplace_back(entry.text, static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(token);
  }
  root_ = trie_.add(pieces);
  classify(entries, entry_of_token);
}

void BpePath::classify(const std::vector<Entry>& entries, const std::vector<std::size_t>& entry_of_token) {
  constexpr std::size_t kClasses = 64;
  const auto first_character = [](std::string_view text) {
    const char* p = text.data();
    return unicode::next_code_point(p, p + text.size());
  };
  // The characters that most tokens begin with have a class each, all others the last one.
  std::map<char32_t, std::int64_t> counts;
  for (const Entry& entry : entries) ++counts[first_character(entry.text)];
  std::vector<std::pair<std::int64_t, char32_t>> order;
  for (const auto& [c, count] : counts) order.emplace_back(-count, c);
  std::ranges::sort(order);
  std::map<char32_t, std::uint8_t> classes;
  for (std::size_t i = 0; i < order.size(); ++i)
    classes[order[i].second] = static_cast<std::uint8_t>(std::min(i, kClasses - 1));
  std::unordered_map<std::int32_t, std::uint8_t> starts;
  for (const Entry& entry : entries) starts[entry.id] = classes[first_character(entry.text)];
  std::unordered_map<std::int32_t, std::uint64_t> joined;  // of symbols
  merges_.for_each_pair([&](std::int32_t left, std::int32_t right) {
    const auto start = starts.find(right);
    joined[left] |= start == starts.end() ? UINT64_MAX : std::uint64_t{1} << start->second;
  });
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    tokens_[i].start = starts.at(entries[entry_of_token[i]].id);
    for (std::size_t part = tokens_[i].last;; ++part) {
      if (const auto found = joined.find(parts_[part].symbol); found != joined.end())
        tokens_[i].joined |= found->second;
      if (parts_[part].until == MergeTable::kNone) break;
    }
  }
}

/// Whether the text ends as the one token; then also the parts at its ends.
bool BpePath::is_merged(const Entry& entry, std::vector<Part>& first, std::vector<Part>& last) const {
  std::vector<std::int32_t> symbols = entry.symbols;
  first.assign(1, {symbols.front(), 0});
  last.assign(1, {symbols.back(), 0});
  while (symbols.size() > 1) {
    std::size_t best = 0;
    const MergeTable::Merge* merge = nullptr;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const MergeTable::Merge& found = merges_.find(symbols[i], symbols[i + 1]);
      if (found.rank >= (merge == nullptr ? MergeTable::kNone : merge->rank)) continue;
      merge = &found;
      best = i;
    }
    if (merge == nullptr) return false;
    symbols[best] = merge->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    for (std::vector<Part>* parts : {&first, &last}) parts->back().until = std::max(parts->back().until, merge->rank);
    if (best == 0) first.push_back({symbols.front(), 0});
    if (best + 1 == symbols.size()) last.push_back({symbols.back(), 0});
  }
  first.back().until = last.back().until = MergeTable::kNone;
  return symbols.front() == entry.id;
}

bool BpePath::stays(std::int32_t left, std::int32_t right, Known& known) const {
  if ((tokens_[static_cast<std::size_t>(left)].joined >> tokens_[static_cast<std::size_t>(right)].start & 1) == 0)
    return true;
  const std::uint64_t pair = static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right) << 1;
  std::uint64_t& slot = known.slots[(pair * 0x9E3779B97F4A7C15u) >> (64 - kKnownBits)];
  if ((slot | 1) == (pair | 1)) return (slot & 1) != 0;
  const bool result = compute_stays(tokens_[static_cast<std::size_t>(left)], tokens_[static_cast<std::size_t>(right)]);
  slot = pair | (result ? 1 : 0);
  return result;
}

bool BpePath::compute_stays(const Token& left, const Token& right) const {
  const Part *a = &parts_[left.last], *b = &parts_[right.first];
  for (;;) {
    // Of merges of one rank the leftmost comes first: one within the left token, then the crossing one.
    const std::int32_t crossing = merges_.find(a->symbol, b->symbol).rank;
    if (crossing < a->until && crossing <= b->until) return false;
    if (a->until == MergeTable::kNone && b->until == MergeTable::kNone) return true;
    if (a->until <= b->until)
      ++a;
    else
      ++b;
  }
}

std::size_t BpePath::append(std::string_view text, std::vector<std::int32_t>& ids) const {
  thread_local std::vector<std::int32_t> path;  // of tokens_
  thread_local std::vector<bool> dead;          // places from which no way leads on
  thread_local Known known;
  if (known.owner != serial_) known = {serial_, std::vector<std::uint64_t>(std::size_t{1} << kKnownBits, UINT64_MAX)};
  path.clear();
  dead.assign(text.size() + 1, false);
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  std::size_t at = 0;
  std::int32_t next = trie_.longest(root_, begin, end).id;
  while (next >= 0) {
    const Token& token = tokens_[static_cast<std::size_t>(next)];
    const std::size_t behind = at + token.length;
    if (!dead[behind] && (path.empty() || stays(path.back(), next, known))) {
      path.push_back(next);
      at = behind;
      next = trie_.longest(root_, begin + at, end).id;
    } else if (token.shorter >= 0) {
      next = token.shorter;
    } else {
      TERN_CHECK(!path.empty(), "BPE: no sequence of tokens is the result of the merges");
      dead[at] = true;
      next = path.back();
      path.pop_back();
      at -= tokens_[static_cast<std::size_t>(next)].length;
    }
  }
  for (const std::int32_t token : path) ids.push_back(tokens_[static_cast<std::size_t>(token)].id);
  return at;
}

}  // namespace tern::data
