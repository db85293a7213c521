#pragma once
// Whether a model still holds numbers.

#include <string>

#include "tern/nn/module.h"

namespace tern::models {

/// "the weight 'head.bias' has NaN": the first parameter with an element that is NaN or infinite, or the first buffer
/// with NaN (an infinity in a buffer may be meant, in masks). Empty where there is none. Waits for the device.
std::string first_non_finite(const nn::Module& module);

}  // namespace tern::models
