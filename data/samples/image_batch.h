#pragma once
// Batches of images.

#include <cstdint>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/samples/batch_tensors.h"

namespace tern::data {

struct ImageBatch {
  Tensor images;              // uint8 [n, height, width, 3]
  Tensor labels;              // int64 [n]; -100 (the losses' default ignore_index) for missing images
  std::vector<int32_t> rows;  // data set row of each planned image
  int64_t epoch = 0;
  int64_t step = 0;  // within the epoch

  int64_t size() const { return labels.size(0); }
  std::vector<Tensor*> tensors() { return {&images, &labels}; }
  /// Copies the batch to another device.
  ImageBatch to(Device device) const { return to_device(*this, device); }
};

}  // namespace tern::data
