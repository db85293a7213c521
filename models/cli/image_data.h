#pragma once
// Choosing and loading an image set for train and eval.

#include <string>
#include <vector>

#include "tern/data/datasets/image_dataset.h"
#include "tern/models/cli/workload.h"

namespace tern::cli {

/// `source`, or without one CIFAR-10 where it is on this machine and otherwise the embedded digits, said through `log`.
/// Throws Interrupted when a signal comes.
data::ImageDataset load_image_set(const std::string& source, const std::vector<std::string>& known_labels,
                                  const Log& log);

/// SHA-256 over labels and pixels, or over the names and sizes of files: a run is resumed on the same set only.
std::string content_hash(const data::ImageDataset& set);

}  // namespace tern::cli
