#pragma once
// How public checkpoints of the Vision Transformer name their tensors, and what their shapes say.

#include <string>

#include "tern/models/key_map.h"
#include "tern/models/vit/config.h"

namespace tern::models {

enum class ViTNames { kHuggingFace, kTorchvision, kTimm };

/// The key map of a family; one table serves loading and saving. Mean pooling's norm is "fc_norm" (timm's name) in all.
const KeyMap& vit_key_map(ViTNames names);

/// Which family's names these are. Throws Error when they are none's.
ViTNames vit_names(const StateView& state, const std::string& source);

/// The tensors under the family's names as its current files have them: a prefix that bare encoders lack is added, the
/// names that models have in memory become those of files, and packed old ones are renamed.
StateView vit_modernised(ViTNames names, StateView state);

/// The configuration that weights without a config.json have (see ViTFileOptions::heads): everything else follows from
/// the shapes. Labels are LABEL_0, ... Throws Error naming the tensor that is missing or contradicts the others.
ViTConfig vit_config_from_shapes(ViTNames names, const StateView& state, int64_t heads, const std::string& source);

}  // namespace tern::models
