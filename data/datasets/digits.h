#pragma once
// Handwritten digits, embedded in the library (data/assets/README.md).

#include <string>

#include "tern/data/samples/dataset.h"

namespace tern::data {

/// 1,797 images of 8 x 8 pixels. `part`: "train" (four fifths), "test" (one fifth) or "all". The split is fixed:
/// stratified by class with seed 0. Tensors: pixels float32 [n, 64] scaled to 0..1 (row-major), classes int64 [n].
/// Throws Error for any other part.
TensorDataset digits(const std::string& part = "all");

}  // namespace tern::data
