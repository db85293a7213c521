#pragma once
// Batches of images, resized, augmented and normalised in one or two kernels, on CPU or GPU.

#include <cstdint>
#include <span>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/samples/image_batch.h"
#include "tern/data/transforms/random.h"
#include "tern/data/transforms/resize.h"
#include "tern/kernels/image.h"

namespace tern::data {

/// uint8 [n, H, W, 3] to [n, height, width, 3] on the same device; on both devices the bytes equal resize() of each
/// image.
Tensor resize_images(const Tensor& images, int64_t height, int64_t width, const ResizeOptions& options = {});

/// uint8 [n, H, W, 3] to [n, 3, height, width] of a floating dtype on the same device, image i by plans[i]. Throws
/// Error if a size, a partner or a dtype does not match.
Tensor augment_images(const Tensor& images, std::span<const kernels::ImageAugment> plans,
                      const kernels::ImageNormalization& normalization, int64_t height, int64_t width,
                      DType dtype = DType::kFloat32);

struct BatchAugmentOptions {
  int64_t height = 0, width = 0;  // images are first resized to this size; 0: no resizing
  ResizeOptions resampling = {};
  int64_t padding = 0;                                        // of a random crop back to the same size
  kernels::ImageBorder border = kernels::ImageBorder::kFill;  // what is beyond an image's sides in that crop
  RandomFlip flip = {.probability = 0};
  ColorJitter jitter = {};
  RandomErasing erasing = {.probability = 0};
  double mixup = 0, cutmix = 0;  // alpha of their Beta distributions; 0: off; both set: one of them per batch
  kernels::ImageNormalization normalization = {};
  DType dtype = DType::kFloat32;
};

/// Random augmentation of whole batches. The plan of an image depends on (seed, epoch, row), mixing on (seed, epoch,
/// step); default options have no randomness (validation). An image's partner in mixing is the preceding image.
class BatchAugment {
 public:
  BatchAugment(const BatchAugmentOptions& options, uint64_t seed) : options_(options), seed_(seed) {}

  /// The plans of a batch whose images have height x width pixels after resizing.
  std::vector<kernels::ImageAugment> plan(const ImageBatch& batch, int64_t height, int64_t width) const;
  /// Moves the batch to a device and computes its images there, float [n, 3, height, width].
  ImageBatch operator()(const ImageBatch& batch, Device device) const;

 private:
  BatchAugmentOptions options_;
  uint64_t seed_;
};

}  // namespace tern::data
