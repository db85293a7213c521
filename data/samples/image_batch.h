#pragma once
// Batches of images.

#include <cstdint>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/samples/batch_tensors.h"

namespace tern::data {

/// A step's input for an image model, as a loader makes it and BatchAugment (data/transforms/augment.h) completes it.
struct ImageBatch {
  Tensor images;    // uint8 [n, height, width, 3]; of BatchAugment floating [n, 3, height, width]
  Tensor labels;    // int64 [n]; kIgnoredLabel for missing images
  Tensor row_keys;  // int64 [n]: the data set row of each image, 0 for one that only fills the batch; of dropout masks
  /// With MixUp or CutMix, otherwise undefined: image i has weight label_weights[i] (float32 [n]) for labels[i] and the
  /// rest for partner_labels[i]. An image without a label is not mixed.
  Tensor partner_labels = {}, label_weights = {};
  std::vector<int32_t> rows;  // data set row of each planned image
  int64_t epoch = 0;
  int64_t step = 0;  // within the epoch

  int64_t size() const { return labels.size(0); }
  std::vector<Tensor*> tensors() { return {&images, &labels, &row_keys, &partner_labels, &label_weights}; }
  /// Copies the batch to another device.
  ImageBatch to(Device device) const { return to_device(*this, device); }
};

}  // namespace tern::data
