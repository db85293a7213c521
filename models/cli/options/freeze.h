#pragma once

#include <string>

#include "tern/nn/module.h"

namespace tern::cli {

/// True for what --freeze accepts.
bool is_freeze_option(const std::string& text);
/// Freezes the parameters that match the patterns, "layer[1-3].*,bn1.*" (Module::freeze). Throws UsageError for a
/// pattern that matches none, with names that are near, and when no parameter is left to train.
void freeze(nn::Module& model, const std::string& patterns);

}  // namespace tern::cli
