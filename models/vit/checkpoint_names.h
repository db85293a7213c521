#pragma once
// Tensor names of public Vision Transformer checkpoints, and the configuration implied by their shapes.

#include <string>

#include "tern/models/key_map.h"
#include "tern/models/vit/config.h"

namespace tern::models {

enum class ViTNames { kHuggingFace, kTorchvision, kTimm };

/// The key map of a family; one table serves loading and saving. The norm of mean pooling is "fc_norm" (timm's name) in
/// all.
const KeyMap& vit_key_map(ViTNames names);

/// Whether a family uses these names.
bool has_vit_names(const StateView& state);
/// The family that uses these names. Throws Error if there is none.
ViTNames vit_names(const StateView& state, const std::string& source);

/// Renames tensors to the family's current file format: adds the prefix that bare encoders lack, converts names of
/// in-memory models to those of files, and renames old packed tensors.
StateView vit_modernised(ViTNames names, StateView state);

/// The configuration of weights without a config.json, derived from the shapes and `heads` (see ViTFileOptions::heads).
/// Labels are LABEL_0, ... Throws Error naming the tensor that is missing or contradicts the others.
ViTConfig vit_config_from_shapes(ViTNames names, const StateView& state, int64_t heads, const std::string& source);

}  // namespace tern::models
