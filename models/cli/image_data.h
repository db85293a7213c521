#pragma once
// Selects and loads an image set for train and eval.

#include <string>
#include <vector>

#include "tern/data/datasets/image_set.h"
#include "tern/models/cli/workload.h"

namespace tern::cli {

/// Loads `source`. If it is empty: CIFAR-10 if this machine has it, otherwise the embedded digits, reported through
/// `log`. Throws Interrupted on a signal.
data::ImageSet load_image_set(const std::string& source, const std::vector<std::string>& known_labels, const Log& log);

}  // namespace tern::cli
