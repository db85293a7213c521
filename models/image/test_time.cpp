#include "tern/models/image/test_time.h"

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/data/transforms/geometry.h"

namespace tern::models {

const std::vector<std::string>& test_time_names() {
  static const std::vector<std::string> names = {"none", "flip", "five-crop", "ten-crop"};
  return names;
}

TestTimeViews test_time_views(const std::string& name) {
  const std::vector<std::string>& names = test_time_names();
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<TestTimeViews>(i);
  fail("test-time augmentation: unknown '", name, "'; known: none, flip, five-crop, ten-crop");
}

int64_t test_time_size(TestTimeViews views, int64_t size) {
  const bool crops = views == TestTimeViews::kFiveCrop || views == TestTimeViews::kTenCrop;
  return crops ? (size * 256 + 112) / 224 : size;
}

Tensor test_time_logits(const ImageClassifier& model, const Tensor& images, TestTimeViews views, int64_t size) {
  if (views == TestTimeViews::kNone) return model.forward(images).to(DType::kFloat32);
  std::vector<Tensor> whole = {images}, parts;
  if (views != TestTimeViews::kFiveCrop) whole.push_back(flip(images, {3}));
  for (const Tensor& source : whole) {
    if (views == TestTimeViews::kFlip)
      parts.push_back(source);
    else
      for (const auto& [top, left] : data::five_crop_places(source.size(2), source.size(3), size, size))
        parts.push_back(source.slice(2, top, top + size).slice(3, left, left + size).contiguous());
  }
  std::vector<Tensor> logarithms;
  for (const Tensor& part : parts) logarithms.push_back(log_softmax(model.forward(part).to(DType::kFloat32)));
  return logsumexp(stack(logarithms, 0), {0}) - std::log(static_cast<double>(parts.size()));
}

}  // namespace tern::models
