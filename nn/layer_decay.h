#pragma once
// Groups of parameters for layer-wise decay of the learning rate.

#include <string>
#include <vector>

#include "tern/nn/module.h"

namespace tern::nn {

/// Parameters that an optimizer treats alike: a group of it.
struct LayerGroup {
  int64_t layer = 0;    // 0: below the first block
  double lr_scale = 1;  // a factor of the learning rate
  bool decays = true;   // false for parameters with one dimension or none, which weight decay spares
  std::vector<NamedTensor> parameters = {};
};

struct LayerDecayOptions {
  std::string blocks = {};              // the module list of the blocks: "encoder.layer"
  std::vector<std::string> below = {};  // patterns of parameters below the first block: {"embeddings.*"}
  double decay = 0.75;                  // the learning rate of a layer over that of the layer above it
};

/// Groups for layer-wise decay of the learning rate (BEiT, arXiv:2106.08254; timm's param_groups_layer_decay): what is
/// below is layer 0, block i is layer i + 1, everything else is the top layer and has the scale 1. Frozen parameters
/// are in no group. Throws Error when `blocks` or a pattern names no parameter.
std::vector<LayerGroup> layer_decay_groups(const Module& module, const LayerDecayOptions& options);

}  // namespace tern::nn
