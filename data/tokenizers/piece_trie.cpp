#include "tern/data/tokenizers/piece_trie.h"

#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

constexpr std::size_t kBlock = 256;  // base ^ byte stays inside the base's block
constexpr std::size_t kMaxUnits = std::size_t{1} << 24;

}  // namespace

// The first block stays free: nodes without children use it as base, where no label matches.
PieceTrie::PieceTrie() : units_(kBlock), base_used_(kBlock), first_free_(kBlock) {}

std::uint32_t PieceTrie::add(const std::vector<std::pair<std::string_view, std::int32_t>>& pieces) {
  struct Range {
    std::size_t begin, end, depth, unit;
  };
  std::vector<Range> queue;
  std::uint32_t root = 0;
  if (!pieces.empty()) queue.push_back({0, pieces.size(), 0, 0});
  std::vector<std::uint8_t> labels;
  std::vector<std::size_t> starts;
  for (std::size_t next = 0; next < queue.size(); ++next) {  // breadth first: no recursion
    const Range node = queue[next];
    labels.clear();
    starts.clear();
    std::size_t begin = node.begin;
    if (node.depth > 0 && pieces[begin].first.size() == node.depth) units_[node.unit].id = pieces[begin++].second;
    for (std::size_t i = begin; i < node.end; ++i) {
      const auto label = static_cast<std::uint8_t>(pieces[i].first[node.depth]);
      if (labels.empty() || labels.back() != label) {
        labels.push_back(label);
        starts.push_back(i);
      }
    }
    if (labels.empty()) continue;
    const std::uint32_t base = place(labels);
    if (node.depth == 0) {
      root = base;
    } else {
      units_[node.unit].base_and_label |= base << 8;
    }
    starts.push_back(node.end);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      queue.push_back({starts[i], starts[i + 1], node.depth + 1, base ^ labels[i]});
    }
  }
  return root;
}

bool PieceTrie::fits(std::uint32_t base, const std::vector<std::uint8_t>& labels) const {
  if (base_used_[base]) return false;
  for (const std::uint8_t label : labels) {
    if (units_[base ^ label].label() != 0) return false;
  }
  return true;
}

std::uint32_t PieceTrie::place(const std::vector<std::uint8_t>& labels) {
  std::size_t taken = 0;
  for (std::size_t position = first_free_;; ++position) {
    if (position == units_.size()) {
      TERN_CHECK(units_.size() + kBlock <= kMaxUnits, "tokenizer: the vocabulary is too large (more than ", kMaxUnits,
                 " trie nodes)");
      units_.resize(units_.size() + kBlock);
      base_used_.resize(units_.size());
    }
    if (units_[position].label() != 0) {
      ++taken;
      continue;
    }
    const auto base = static_cast<std::uint32_t>(position ^ labels[0]);
    if (!fits(base, labels)) continue;
    base_used_[base] = true;
    for (const std::uint8_t label : labels) units_[base ^ label].base_and_label = label;
    // A nearly full range is not searched again.
    if (taken * 20 >= (position - first_free_ + 1) * 19) first_free_ = position;
    return base;
  }
}

}  // namespace tern::data
