#include "tern/models/image/test_time.h"

#include <cmath>

#include "tern/core/ops/ops.h"
#include "tern/data/files/text.h"
#include "tern/data/transforms/geometry.h"

namespace tern::models {

const std::vector<std::string>& test_time_names() {
  static const std::vector<std::string> names = {"none", "flip", "five-crop", "ten-crop", "flip-shift"};
  return names;
}

TestTimeViews test_time_views(const std::string& name) {
  const std::vector<std::string>& names = test_time_names();
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<TestTimeViews>(i);
  fail("test-time augmentation: unknown '", name, "'; known: ", data::join(names, ", "));
}

int64_t test_time_size(TestTimeViews views, int64_t size) {
  const bool crops = views == TestTimeViews::kFiveCrop || views == TestTimeViews::kTenCrop;
  return crops ? (size * 256 + 112) / 224 : size;
}

Tensor test_time_logits(const ImageClassifier& model, const Tensor& images, TestTimeViews views, int64_t size) {
  if (views == TestTimeViews::kNone) return model.forward(images).to(DType::kFloat32);
  std::vector<Tensor> whole = {images}, logarithms;
  if (views != TestTimeViews::kFiveCrop) whole.push_back(flip(images, {3}));
  double sum = 0;
  const auto add = [&](const Tensor& view, double weight) {
    logarithms.push_back(log_softmax(model.forward(view).to(DType::kFloat32)) + std::log(weight));
    sum += weight;
  };
  for (const Tensor& source : whole) {
    const int64_t height = source.size(2), width = source.size(3);
    const auto part = [&](const Tensor& from, int64_t top, int64_t left) {
      return from.slice(2, top, top + size).slice(3, left, left + size).contiguous();
    };
    if (views == TestTimeViews::kFlip) {
      add(source, 1);
    } else if (views == TestTimeViews::kFlipShift) {
      const Tensor padded = pad(source, {1, 1, 1, 1}, PadMode::kReflect);
      add(source, 2);
      add(part(padded, 0, 0), 1);
      add(part(padded, 2, 2), 1);
    } else {
      for (const auto& [top, left] : data::five_crop_places(height, width, size, size)) add(part(source, top, left), 1);
    }
  }
  return logsumexp(stack(logarithms, 0), {0}) - std::log(sum);
}

}  // namespace tern::models
