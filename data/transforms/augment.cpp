#include "tern/data/transforms/augment.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tern/core/device/device.h"
#include "tern/data/samples/batch_tensors.h"
#include "tern/kernels/base/check.h"

namespace tern::data {
namespace {

using kernels::ImageAugment;

void check_images(const char* what, const Tensor& images, int64_t height, int64_t width) {
  TERN_CHECK(images.defined() && images.dim() == 4 && images.dtype() == DType::kUInt8 && images.size(3) == 3, what,
             ": expected uint8 [n, height, width, 3], got ", images.defined() ? images.describe() : "nothing");
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 3;
  TERN_CHECK(height > 0 && width > 0 && height <= kMax / width, what, ": to ", width, " x ", height,
             " pixels; sizes must be positive, and an image of less than 2^31 values");
  TERN_CHECK(images.size(0) == 0 || (images.size(1) > 0 && images.size(2) > 0), what,
             ": images without pixels: ", images.describe());
}

template <class T>
void append(std::vector<int32_t>& all, const std::vector<T>& part) {
  all.insert(all.end(), part.begin(), part.end());
}

/// The weight of an image's label after mixing.
float kept_share(const ImageAugment& plan, int64_t height, int64_t width) {
  const kernels::ImageBox& box = plan.pasted;
  const double area = static_cast<double>(box.bottom - box.top) * (box.right - box.left);
  return plan.weight * static_cast<float>(1 - area / static_cast<double>(height * width));
}

}  // namespace

Tensor resize_images(const Tensor& images, int64_t height, int64_t width, const ResizeOptions& options) {
  check_images("resize_images", images, height, width);
  const Tensor in = images.contiguous();
  Tensor result = empty({in.size(0), height, width, 3}, {.dtype = DType::kUInt8, .device = in.device()});
  if (in.size(0) == 0) return result;
  const ResizeTable<int32_t> rows = resize_table<int32_t>(in.size(1), height, options);
  const ResizeTable<int32_t> columns = resize_table<int32_t>(in.size(2), width, options);
  // One tensor, so that one copy moves it to the device.
  std::vector<int32_t> all = rows.first;
  for (const auto* part : {&rows.weights, &columns.first, &columns.weights}) append(all, *part);
  const Tensor tables = from_vector(all, {static_cast<int64_t>(all.size())}).to(in.device());
  const auto* row_first = static_cast<const int32_t*>(tables.raw_data());
  const int32_t* column_first = row_first + rows.first.size() + rows.weights.size();
  const kernels::Stream stream = current_stream(in.device());
  const Tensor workspace = empty({kernels::resize_images_workspace(stream, in.const_view(), width)},
                                 {.dtype = DType::kUInt8, .device = in.device()});
  kernels::resize_images(stream, in.const_view(), {row_first, row_first + rows.first.size(), rows.taps},
                         {column_first, column_first + columns.first.size(), columns.taps}, workspace.raw_data(),
                         result.view());
  return result;
}

Tensor augment_images(const Tensor& images, std::span<const ImageAugment> plans,
                      const kernels::ImageNormalization& normalization, int64_t height, int64_t width, DType dtype) {
  check_images("augment_images", images, height, width);
  const int64_t n = images.size(0);
  TERN_CHECK(static_cast<int64_t>(plans.size()) == n, "augment_images: ", plans.size(), " plans for ", n, " images");
  TERN_CHECK(is_floating(dtype), "augment_images: the result's dtype must be floating, got ", name_of(dtype));
  bool contrast = false;
  for (const ImageAugment& plan : plans) {
    TERN_CHECK(plan.partner >= 0 && plan.partner < n, "augment_images: image ", plan.partner, " of ", n, " as partner");
    contrast = contrast || plan.contrast_step() < kernels::kColorSteps;
  }
  const Tensor in = images.contiguous();
  const Device device = in.device();
  Tensor result = empty({n, 3, height, width}, {.dtype = dtype, .device = device});
  if (n == 0) return result;
  const Tensor host = empty({static_cast<int64_t>(plans.size_bytes())}, {.dtype = DType::kUInt8});
  std::memcpy(host.raw_data(), plans.data(), plans.size_bytes());
  const Tensor planned = host.to(device);
  const auto* plan = static_cast<const ImageAugment*>(planned.raw_data());
  const kernels::Stream stream = current_stream(device);
  const Tensor offsets = empty({contrast ? n : 0}, {.dtype = DType::kInt32, .device = device});
  auto* offset = contrast ? static_cast<int32_t*>(offsets.raw_data()) : nullptr;
  if (contrast) {
    kernels::image_contrast(stream, in.const_view(), plan, normalization, height, width, offset);
  }
  kernels::augment_images(stream, in.const_view(), plan, normalization, offset, result.view());
  return result;
}

std::vector<ImageAugment> BatchAugment::plan(const ImageBatch& batch, int64_t height, int64_t width) const {
  const bool reflects = options_.border == kernels::ImageBorder::kReflect;
  TERN_CHECK(!reflects || options_.padding < std::min(height, width), "augment: a reflected border of ",
             options_.padding, " pixels; images of ", height, " x ", width, " pixels have fewer to reflect");
  std::vector<ImageAugment> plans(static_cast<size_t>(batch.size()));
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    RandomStream random(seed_, Draw::kImageBatch,
                        static_cast<uint64_t>(batch.epoch) << 32 | static_cast<uint32_t>(batch.rows[i]));
    const CropPlace place = RandomCrop{height, width, options_.padding}.choose(height, width, random);
    plans[i].top = static_cast<int32_t>(place.top);
    plans[i].left = static_cast<int32_t>(place.left);
    plans[i].border = options_.border;
    plans[i].mirrored = options_.flip.choose(random);
    if (options_.flip.alternating && options_.flip.probability > 0) {
      RandomStream of_row(seed_, Draw::kFlip, static_cast<uint64_t>(batch.rows[i]));
      plans[i].mirrored = (of_row.uniform() < 0.5) != (batch.epoch % 2 == 1);
    }
    std::ranges::copy(options_.jitter.choose(random), plans[i].colors);
    plans[i].erased = options_.erasing.choose(height, width, random);
  }
  if (options_.mixup == 0 && options_.cutmix == 0) return plans;
  RandomStream random(seed_, Draw::kMixing,
                      static_cast<uint64_t>(batch.epoch) << 32 | static_cast<uint64_t>(batch.step));
  const bool cut = options_.mixup == 0 || (options_.cutmix != 0 && random.uniform() < 0.5);
  const double weight = draw_beta(cut ? options_.cutmix : options_.mixup, random);
  const kernels::ImageBox box = cut ? choose_cutmix_box(weight, height, width, random) : kernels::ImageBox{};
  const Tensor host = batch.labels.to(Device());
  const int64_t* labels = host.data<int64_t>();
  const size_t n = batch.rows.size();
  for (size_t i = 0; i < n; ++i) {
    const size_t partner = i == 0 ? n - 1 : i - 1;
    if (labels[i] == kIgnoredLabel || labels[partner] == kIgnoredLabel) continue;
    plans[i].partner = static_cast<int32_t>(partner);
    plans[i].weight = cut ? 1.0f : static_cast<float>(weight);
    plans[i].pasted = box;
  }
  return plans;
}

ImageBatch BatchAugment::operator()(const ImageBatch& batch, Device device) const {
  TERN_CHECK(batch.images.defined() && batch.images.dim() == 4, "augment: a batch without images");
  const bool resized = options_.height > 0 || options_.width > 0;
  const int64_t height = resized ? options_.height : batch.images.size(1);
  const int64_t width = resized ? options_.width : batch.images.size(2);
  const std::vector<ImageAugment> plans = plan(batch, height, width);
  ImageBatch result = batch.to(device);
  if (resized) result.images = resize_images(result.images, height, width, options_.resampling);
  result.images = augment_images(result.images, plans, options_.normalization, height, width, options_.dtype);
  if (options_.mixup == 0 && options_.cutmix == 0) return result;
  const std::vector<int64_t> labels = batch.labels.to_vector<int64_t>();
  std::vector<int64_t> partners;
  std::vector<float> weights;
  for (size_t i = 0; i < plans.size(); ++i) {
    const bool mixes = plans[i].mixes();
    partners.push_back(mixes ? labels[static_cast<size_t>(plans[i].partner)] : labels[i]);
    weights.push_back(mixes ? kept_share(plans[i], height, width) : 1.0f);
  }
  result.partner_labels = from_vector(partners, {batch.size()}).to(device);
  result.label_weights = from_vector(weights, {batch.size()}).to(device);
  return result;
}

}  // namespace tern::data
