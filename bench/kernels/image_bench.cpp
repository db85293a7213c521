// Batches of images in bytes: augmentation with normalisation, its colour changes, and resizing. Bytes: those read of
// the images, and the results written.

#include "tern/kernels/image.h"

#include <cstring>
#include <vector>

#include "tern/bench/benchmark.h"
#include "tern/data/transforms/resize.h"

namespace tern::bench {
namespace {

using kernels::ColorOp, kernels::ImageAugment;

const kernels::ImageNormalization kNormalization = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}, {}, {}};

struct Sizes {
  int64_t images, from, to;
};

/// A tensor of bytes or of int32 with the given contents.
template <class T>
Tensor on_device(const std::vector<T>& values) {
  std::vector<int32_t> words((values.size() * sizeof(T) + 3) / 4);
  std::memcpy(words.data(), values.data(), values.size() * sizeof(T));
  return from_vector(words, {static_cast<int64_t>(words.size())}, {.dtype = int32, .device = place()});
}

/// Padded by 4 and cropped, every second one mirrored; with colours also brightness, contrast, saturation and hue.
Tensor plans(const Sizes& s, bool colors) {
  constexpr int32_t kOne = 1 << kernels::kColorBits;
  std::vector<ImageAugment> all(static_cast<size_t>(s.images));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].top = static_cast<int32_t>(i % 9) - 4;
    all[i].left = static_cast<int32_t>(i / 9 % 9) - 4;
    all[i].mirrored = i % 2;
    all[i].partner = static_cast<int32_t>(i);
    if (!colors) continue;
    all[i].colors[0] = {ColorOp::kBrightness, kOne + kOne / 5};
    all[i].colors[1] = {ColorOp::kContrast, kOne - kOne / 5};
    all[i].colors[2] = {ColorOp::kSaturation, kOne + kOne / 3};
    all[i].colors[3] = {ColorOp::kHue, kOne / 2};
  }
  return on_device(all);
}

void add_augmentation(const Sizes& s, bool colors, DType dtype) {
  const double bytes = static_cast<double>(s.images * s.to * s.to * 3 * (1 + size_of(dtype)));
  const std::string name = name_of_row(colors ? "augment_images/colors" : "augment_images/crop", dtype, s.images, s.to);
  add(name, {.bytes = bytes, .dtype = dtype}, [=]() -> Call {
    const Buffer images(uint8, {s.images, s.from, s.from, 3}, 256), result(dtype, {s.images, 3, s.to, s.to});
    const Buffer offsets(int32, {s.images});
    return [=, plans = plans(s, colors)] {
      const auto* plan = static_cast<const ImageAugment*>(plans.view().data);
      auto* contrast = static_cast<int32_t*>(offsets.data());
      if (colors) kernels::image_contrast(stream(), images.view(), plan, kNormalization, s.to, s.to, contrast);
      kernels::augment_images(stream(), images.view(), plan, kNormalization, colors ? contrast : nullptr,
                              result.view());
    };
  });
}

struct Axis {
  Axis(int64_t from, int64_t to, data::Interpolation interpolation) {
    const data::ResizeTable<int32_t> table = data::resize_table<int32_t>(from, to, {.interpolation = interpolation});
    first = on_device(table.first);
    weights = on_device(table.weights);
    taps = table.taps;
  }
  kernels::ResizeAxis view() const {
    return {static_cast<const int32_t*>(first.view().data), static_cast<const int32_t*>(weights.view().data), taps};
  }
  Tensor first, weights;
  int32_t taps;
};

void add_resize(const Sizes& s, const char* filter, data::Interpolation interpolation) {
  const double bytes = static_cast<double>(s.images * 3 * (s.from * s.from + s.to * s.to));
  add(name_of_row("resize_images", filter, s.images, s.from, s.to), {.bytes = bytes, .dtype = uint8}, [=]() -> Call {
    const Buffer images(uint8, {s.images, s.from, s.from, 3}, 256), result(uint8, {s.images, s.to, s.to, 3});
    const Scratch workspace(kernels::resize_images_workspace(stream(), images.view(), s.to));
    return [=, axis = Axis(s.from, s.to, interpolation)] {
      kernels::resize_images(stream(), images.view(), axis.view(), axis.view(), workspace.data(), result.view());
    };
  });
}

const Rows rows([] {
  const Sizes small{scaled(128, 3), scaled(32, 9), scaled(32, 8)},
      large{scaled(32, 3), scaled(256, 12), scaled(224, 9)};
  for (const Sizes& s : {small, large}) {
    for (const bool colors : {false, true}) add_augmentation(s, colors, float32);
    add_augmentation(s, false, bfloat16);
  }
  for (const Sizes& s : {Sizes{large.images, scaled(500, 20), large.to}, Sizes{large.images, small.from, large.to}}) {
    add_resize(s, "bilinear", data::Interpolation::kBilinear);
    add_resize(s, "bicubic", data::Interpolation::kBicubic);
  }
});

}  // namespace
}  // namespace tern::bench
