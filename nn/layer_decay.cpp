#include "tern/nn/layer_decay.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace tern::nn {
namespace {

/// The number after "blocks." at the begin of a name; -1 when there is none.
int64_t block_of(const std::string& name, const std::string& blocks) {
  int64_t index = -1;
  if (name.starts_with(blocks + ".")) std::from_chars(&name[blocks.size() + 1], &*name.end(), index);
  return index;
}

}  // namespace

std::vector<LayerGroup> layer_decay_groups(const Module& module, const LayerDecayOptions& options) {
  TERN_CHECK(options.decay > 0 && options.decay <= 1, "nn::layer_decay_groups: decay must be in (0, 1], got ",
             options.decay);
  std::set<std::string> below;
  for (const std::string& pattern : options.below) {
    const std::vector<NamedTensor> found = module.parameters(pattern);
    TERN_CHECK(!found.empty(), "nn::layer_decay_groups: no parameter matches '", pattern, "'");
    for (const NamedTensor& entry : found) below.insert(entry.name);
  }
  const std::vector<NamedTensor> parameters = module.parameters();
  int64_t blocks = 0;
  for (const NamedTensor& entry : parameters) blocks = std::max(blocks, block_of(entry.name, options.blocks) + 1);
  TERN_CHECK(blocks > 0, "nn::layer_decay_groups: no parameter is in a block '", options.blocks, ".0'");

  std::map<std::pair<int64_t, bool>, LayerGroup> groups;  // by layer, those with weight decay first
  for (const NamedTensor& entry : parameters) {
    if (!entry.tensor.requires_grad()) continue;
    const int64_t block = block_of(entry.name, options.blocks);
    const int64_t layer = below.contains(entry.name) ? 0 : block >= 0 ? block + 1 : blocks + 1;
    const bool decays = entry.tensor.dim() > 1;
    LayerGroup& group = groups[{layer, !decays}];
    group.layer = layer;
    group.lr_scale = std::pow(options.decay, static_cast<double>(blocks + 1 - layer));
    group.decays = decays;
    group.parameters.push_back(entry);
  }
  std::vector<LayerGroup> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

}  // namespace tern::nn
