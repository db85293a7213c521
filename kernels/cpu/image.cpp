// Batches of 8-bit images.

#include "tern/kernels/image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tern/kernels/convert.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

AugmentedImage image_of(ConstView images, const ImageAugment* plans, const ImageNormalization& normalization,
                        int64_t image, int64_t width) {
  const int64_t size = images.shape[1] * images.shape[2] * 3;
  return {
      images.as<uint8_t>() + image * size, images.shape[1], images.shape[2], width, plans + image, &normalization, 0};
}

constexpr int64_t kColumns = 128;  // columns of a row per step

/// Neighbouring pixels, stored by channel.
struct Row {
  int32_t channel[3][kColumns];
};

template <class Change>
void change_row(Row& row, int64_t count, const Change& change) {
  for (int64_t x = 0; x < count; ++x) {
    const Rgb pixel = change(Rgb{{row.channel[0][x], row.channel[1][x], row.channel[2][x]}});
    for (int c = 0; c < 3; ++c) row.channel[c][x] = pixel.channel[c];
  }
}

/// image.colored() of pixels x .. x + count - 1 of row y. One loop per kind of change, so that each vectorises.
void read_row(const AugmentedImage& image, int64_t y, int64_t x, int64_t count, int steps, Row& row) {
  for (int64_t i = 0; i < count; ++i) {
    const Rgb pixel = image.cropped(y, x + i);
    for (int c = 0; c < 3; ++c) row.channel[c][i] = pixel.channel[c];
  }
  const auto change = [&]<ColorOp kOp>(int32_t amount) {
    change_row(row, count, [&](const Rgb& pixel) { return change_color(pixel, {kOp, amount}, image.offset); });
  };
  for (int s = 0; s < steps; ++s) {
    const ColorStep& step = image.plan->colors[s];
    switch (step.op) {
      case ColorOp::kBrightness:
        change.template operator()<ColorOp::kBrightness>(step.amount);
        break;
      case ColorOp::kContrast:
        change.template operator()<ColorOp::kContrast>(step.amount);
        break;
      case ColorOp::kSaturation:
        change.template operator()<ColorOp::kSaturation>(step.amount);
        break;
      case ColorOp::kHue:
        change.template operator()<ColorOp::kHue>(step.amount);
        break;
      case ColorOp::kNone:
        break;
    }
  }
}

int32_t contrast_of(const AugmentedImage& image, int64_t height) {
  const int steps = image.plan->contrast_step();
  if (steps == kColorSteps) return 0;
  int64_t sum = 0;
  Row row;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < image.width; x += kColumns) {
      const int64_t count = std::min(kColumns, image.width - x);
      read_row(image, y, x, count, steps, row);
      int32_t part = 0;
      for (int64_t i = 0; i < count; ++i) part += grey_of({{row.channel[0][i], row.channel[1][i], row.channel[2][i]}});
      sum += part;
    }
  }
  return contrast_offset(image.plan->colors[steps].amount, sum, height * image.width);
}

/// augment_images with results of type Out.
template <class Out>
class Augmentation {
 public:
  Augmentation(ConstView images, const ImageAugment* plans, const ImageNormalization& normalization,
               const int32_t* contrast, View result)
      : images_(images),
        plans_(plans),
        normalization_(normalization),
        contrast_(contrast),
        out_(result.as<Out>()),
        height_(result.shape[2]),
        width_(result.shape[3]) {
    for (int c = 0; c < 3; ++c) {
      erased_[c] = convert<float, Out>(normalization.erased[c]);
      for (int byte = 0; byte < 256; ++byte) {
        values_[c][byte] = normalization.value(c, byte);
        table_[c][byte] = convert<float, Out>(values_[c][byte]);
      }
    }
  }

  void run(int64_t image) const {
    const ImageAugment& plan = plans_[image];
    for (int64_t y = 0; y < height_; ++y) {
      Out* rows[3];
      for (int c = 0; c < 3; ++c) rows[c] = out_ + ((image * 3 + c) * height_ + y) * width_;
      if (plan.mixes())
        mixed_row(image, y, rows);
      else if (plan.changes_colors())
        colored_row(image, y, rows);
      else
        plain_row(image, y, rows);
    }
  }

 private:
  AugmentedImage source(int64_t image) const {
    AugmentedImage source = image_of(images_, plans_, normalization_, image, width_);
    source.offset = contrast_ == nullptr ? 0 : contrast_[image];
    return source;
  }

  /// A row without colour changes: bytes through the lookup table, and what the border is at both sides.
  void plain_row(int64_t image, int64_t y, Out* const* rows) const {
    const ImageAugment& plan = plans_[image];
    const bool reflects = plan.border == ImageBorder::kReflect;
    const int64_t image_height = images_.shape[1], image_width = images_.shape[2];
    const int64_t row = reflects ? reflected(plan.top + y, image_height) : plan.top + y;
    const bool inside = row >= 0 && row < image_height;
    // The columns of the source that are visible, and the position of the first in the result.
    const int64_t begin = inside ? std::clamp<int64_t>(plan.left, 0, image_width) : 0;
    const int64_t end = inside ? std::clamp<int64_t>(plan.left + width_, begin, image_width) : 0;
    const int64_t first = std::clamp<int64_t>(begin - plan.left, 0, width_), count = std::min(end - begin, width_);
    const uint8_t* in = images_.as<uint8_t>() + ((image * image_height + (inside ? row : 0)) * image_width + begin) * 3;
    for (int c = 0; c < 3; ++c) {
      const Out* table = table_[c];
      const Out fill = table[normalization_.fill[c]];
      Out* out = rows[c];
      const int64_t start = plan.mirrored ? width_ - first - count : first;
      if (reflects) {
        const auto outside = [&](int64_t x) {
          const int64_t column = reflected(plan.left + (plan.mirrored ? width_ - 1 - x : x), image_width);
          return table[in[(column - begin) * 3 + c]];
        };
        for (int64_t x = 0; x < start; ++x) out[x] = outside(x);
        for (int64_t x = start + count; x < width_; ++x) out[x] = outside(x);
      } else {
        std::fill_n(out, start, fill);
        std::fill_n(out + start + count, width_ - start - count, fill);
      }
      if (plan.mirrored)
        for (int64_t x = 0; x < count; ++x) out[start + x] = table[in[(count - 1 - x) * 3 + c]];
      else
        for (int64_t x = 0; x < count; ++x) out[start + x] = table[in[x * 3 + c]];
    }
    erase(plan, y, rows);
  }

  void colored_row(int64_t image, int64_t y, Out* const* rows) const {
    const AugmentedImage from = source(image);
    Row row;
    for (int64_t x = 0; x < width_; x += kColumns) {
      const int64_t count = std::min(kColumns, width_ - x);
      read_row(from, y, x, count, kColorSteps, row);
      for (int c = 0; c < 3; ++c)
        for (int64_t i = 0; i < count; ++i) rows[c][x + i] = table_[c][row.channel[c][i]];
    }
    erase(*from.plan, y, rows);
  }

  void erase(const ImageAugment& plan, int64_t y, Out* const* rows) const {
    const ImageBox& box = plan.erased;
    if (y < box.top || y >= box.bottom) return;
    const int64_t left = std::clamp<int64_t>(box.left, 0, width_), right = std::clamp<int64_t>(box.right, left, width_);
    for (int c = 0; c < 3; ++c) std::fill(rows[c] + left, rows[c] + right, erased_[c]);
  }

  /// Normalised pixels x .. x + count - 1 of row y, before mixing.
  void read_values(const AugmentedImage& from, int64_t y, int64_t x, int64_t count, float (*values)[kColumns]) const {
    Row row;
    read_row(from, y, x, count, kColorSteps, row);
    for (int c = 0; c < 3; ++c)
      for (int64_t i = 0; i < count; ++i)
        values[c][i] = from.plan->erased.contains(y, x + i) ? normalization_.erased[c] : values_[c][row.channel[c][i]];
  }

  void mixed_row(int64_t image, int64_t y, Out* const* rows) const {
    const AugmentedImage own = source(image), partner = source(plans_[image].partner);
    const ImageAugment& plan = plans_[image];
    float mine[3][kColumns], other[3][kColumns];
    for (int64_t x = 0; x < width_; x += kColumns) {
      const int64_t count = std::min(kColumns, width_ - x);
      read_values(own, y, x, count, mine);
      read_values(partner, y, x, count, other);
      for (int c = 0; c < 3; ++c)
        for (int64_t i = 0; i < count; ++i) {
          const float a = plan.pasted.contains(y, x + i) ? other[c][i] : mine[c][i];
          rows[c][x + i] = convert<float, Out>(std::fma(a, plan.weight, other[c][i] * (1 - plan.weight)));
        }
    }
  }

  ConstView images_;
  const ImageAugment* plans_;
  const ImageNormalization& normalization_;
  const int32_t* contrast_;
  Out* out_;
  int64_t height_, width_;
  Out table_[3][256];
  Out erased_[3];
  float values_[3][256];
};

// ---- Resizing

constexpr int64_t kRows = 4;  // rows resized together: the weights are loaded once for them
constexpr int64_t kLanes = 4 * kRows;

/// sums += weight * 4 bytes of each of kRows rows that are `stride` bytes apart.
inline void add_pixels(const uint8_t* from, int64_t stride, int32_t weight, int32_t* sums) {
  static_assert(kRows == 4);
  using Words = uint32_t __attribute__((vector_size(kLanes)));
  const auto word = [&](int64_t row) {
    uint32_t bytes;
    std::memcpy(&bytes, from + row * stride, 4);
    return bytes;
  };
  const Words words = {word(0), word(1), word(2), word(3)};
  uint8_t bytes[kLanes];
  std::memcpy(bytes, &words, kLanes);
  for (int64_t i = 0; i < kLanes; ++i) sums[i] += bytes[i] * weight;
}

/// Resizes kRows rows [in_width, 3], `in_stride` bytes apart (0: the same row), to [width, 3]. Loads of a pixel read
/// one byte more, except for each row's last pixel.
void resize_columns(const uint8_t* in, int64_t in_stride, int64_t in_width, const ResizeAxis& columns, int64_t width,
                    uint8_t* out, int64_t out_stride) {
  uint8_t ends[kLanes] = {};
  for (int64_t r = 0; r < kRows; ++r) std::memcpy(ends + r * 4, in + r * in_stride + (in_width - 1) * 3, 3);
  for (int64_t x = 0; x < width; ++x) {
    const int32_t* weights = columns.weights + x * columns.taps;
    const int64_t first = columns.first[x], before_last = std::min<int64_t>(columns.taps, in_width - 1 - first);
    const uint8_t* from = in + first * 3;
    int32_t sums[kLanes] = {};
    for (int64_t k = 0; k < before_last; ++k) add_pixels(from + k * 3, in_stride, weights[k], sums);
    if (before_last < columns.taps) add_pixels(ends, 4, weights[before_last], sums);
    uint8_t bytes[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) bytes[i] = resized_byte(sums[i]);
    const size_t size = x + 1 < width ? 4 : 3;  // the fourth byte belongs to the next pixel, which is written later
    for (int64_t r = 0; r < kRows; ++r) std::memcpy(out + r * out_stride + x * 3, bytes + r * 4, size);
  }
}

constexpr int64_t kBytes = 64;  // bytes of a row per step: their sums fit into registers

/// `count` <= kBytes bytes of a row: weighted sums of `taps` rows that are `stride` bytes apart.
inline void add_rows(const uint8_t* from, int64_t stride, const int32_t* weights, int32_t taps, int64_t count,
                     uint8_t* out) {
  int32_t sums[kBytes] = {};
  for (int32_t k = 0; k < taps; ++k)
    for (int64_t i = 0; i < count; ++i) sums[i] += weights[k] * from[k * stride + i];
  for (int64_t i = 0; i < count; ++i) out[i] = resized_byte(sums[i]);
}

/// Computes row y of the result from rows of `row_bytes` bytes.
void resize_row(const uint8_t* in, int64_t row_bytes, const ResizeAxis& rows, int64_t y, uint8_t* out) {
  const int32_t* weights = rows.weights + y * rows.taps;
  const uint8_t* from = in + rows.first[y] * row_bytes;
  int64_t begin = 0;
  for (; begin + kBytes <= row_bytes; begin += kBytes)
    add_rows(from + begin, row_bytes, weights, rows.taps, kBytes, out + begin);
  if (begin < row_bytes) add_rows(from + begin, row_bytes, weights, rows.taps, row_bytes - begin, out + begin);
}

}  // namespace

void image_contrast(Stream, ConstView images, const ImageAugment* plans, const ImageNormalization& normalization,
                    int64_t height, int64_t width, int32_t* offsets) {
  parallel_for(images.shape[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      offsets[i] = contrast_of(image_of(images, plans, normalization, i, width), height);
  });
}

void augment_images(Stream, ConstView images, const ImageAugment* plans, const ImageNormalization& normalization,
                    const int32_t* contrast, View result) {
  constexpr int64_t kPixels = 1 << 13;  // pixels per block
  const int64_t pixels = std::max<int64_t>(result.shape[2] * result.shape[3], 1);
  dispatch_float(result.dtype, [&]<class Out>() {
    const Augmentation<Out> augmentation(images, plans, normalization, contrast, result);
    parallel_for(images.shape[0], std::max<int64_t>(kPixels / pixels, 1), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) augmentation.run(i);
    });
  });
}

int64_t resize_images_workspace(Stream, ConstView images, int64_t width) {
  return images.shape[0] * images.shape[1] * width * 3;
}

void resize_images(Stream, ConstView images, ResizeAxis rows, ResizeAxis columns, void* workspace, View result) {
  const int64_t in_height = images.shape[1], in_width = images.shape[2];
  const int64_t height = result.shape[1], width = result.shape[2];
  if (result.numel() == 0) return;
  parallel_for(images.shape[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t* in = images.as<uint8_t>() + i * in_height * in_width * 3;
      uint8_t* narrow = static_cast<uint8_t*>(workspace) + i * in_height * width * 3;
      uint8_t* out = result.as<uint8_t>() + i * height * width * 3;
      const int64_t first = rows.first[0], last = rows.first[height - 1] + rows.taps;
      const int64_t stride = in_width * 3, narrow_stride = width * 3;
      int64_t y = first;
      for (; y + kRows <= last; y += kRows)
        resize_columns(in + y * stride, stride, in_width, columns, width, narrow + y * narrow_stride, narrow_stride);
      for (; y < last; ++y) resize_columns(in + y * stride, 0, in_width, columns, width, narrow + y * narrow_stride, 0);
      for (y = 0; y < height; ++y) resize_row(narrow, width * 3, rows, y, out + y * width * 3);
    }
  });
}

}  // namespace tern::kernels::TERN_CPU
