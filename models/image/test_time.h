#pragma once
// Test-time augmentation: several views of an image, whose probabilities are averaged.

#include <string>
#include <vector>

#include "tern/models/model.h"

namespace tern::models {

/// kFlip: the image and its mirror image. kFlipShift: both, each with one half of the weight as it is, and a quarter
/// each shifted by a pixel to the lower right and to the upper left, with reflected borders (arXiv:2404.00498).
/// kFiveCrop: the corners and the centre of an image that is 256 / 224 as large as the model's input. kTenCrop: these
/// and their mirror images.
enum class TestTimeViews : uint8_t { kNone, kFlip, kFiveCrop, kTenCrop, kFlipShift };
/// "none", "flip", "five-crop", "ten-crop", "flip-shift".
const std::vector<std::string>& test_time_names();
/// Throws Error for another name.
TestTimeViews test_time_views(const std::string& name);

/// Pixels a side of the images that the views are taken from, for a model's input of `size` pixels a side.
int64_t test_time_size(TestTimeViews views, int64_t size);
/// Logits of images [n, 3, test_time_size, test_time_size], float32 [n, labels]: of kNone the model's own, otherwise
/// the logarithm of the views' mean softmax probabilities.
Tensor test_time_logits(const ImageClassifier& model, const Tensor& images, TestTimeViews views, int64_t size);

}  // namespace tern::models
