#include "tern/kernels/cpu/convolution_depthwise_rows.h"

#include <algorithm>
#include <vector>

#include "tern/kernels/cpu/convolution_finish.h"
#include "tern/kernels/cpu/prefetch.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/cpu/vector.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int kLanes = kVectorBytes / sizeof(float);
constexpr int kSide = 3, kStride = 2;        // of the kernel
constexpr int64_t kCacheBytes = 640 * 1024;  // an image and its result of fewer bytes stay in the L2 cache
constexpr int64_t kFewChannels = 32;         // two pixels at a time share what they read; with more, one is faster
constexpr int64_t kTaskProducts = 1 << 21;

/// y of kPixels neighbours with all channels. rows[j]: what they read of row j of the kernel; weight: [9, channels].
template <int kPixels>
[[gnu::noinline]] void compute_pixels(const float* const (&rows)[kSide], int64_t channels, const float* weight,
                                      const float* bias, float* y) {
  for (int64_t next = 0; next < channels; next += kLanes) {
    const int64_t c = std::min(next, channels - kLanes);  // the last ones again, so that all vectors are full
    Vector<float> sums[kPixels];
    for (int p = 0; p < kPixels; ++p) sums[p] = load_vector(bias + c);
#pragma GCC unroll 3
    for (int j = 0; j < kSide; ++j)
#pragma GCC unroll 3
      for (int k = 0; k < kSide; ++k) {
        const Vector<float> w = load_vector(weight + (j * kSide + k) * channels + c);
#pragma GCC unroll 2
        for (int p = 0; p < kPixels; ++p) sums[p] += w * load_vector(rows[j] + (p * kStride + k) * channels + c);
      }
    for (int p = 0; p < kPixels; ++p) store_vector(y + p * channels + c, sums[p]);
  }
}

/// Computes rows of the result, for one thread.
class RowComputation {
 public:
  RowComputation(const ConvolutionShape& s, const float* weight, const float* bias)
      : s_(s),
        channels_(s.in_channels),
        in_row_(s.in[2] * channels_),
        out_row_(s.out[2] * channels_),
        weight_(weight),
        bias_(bias),
        zeros_(static_cast<size_t>(in_row_)),
        patch_(static_cast<size_t>(kSide * patch_width(2) * channels_)) {}

  /// y: of row `row`.
  void run(const float* image, int64_t row, float* y) {
    const int64_t first = row * s_.stride[1] - s_.padding[1];
    for (int64_t j = 0; j < kSide; ++j) lines_[j] = has_line(first + j) ? image + (first + j) * in_row_ : zeros_.data();
    for (int64_t j = 0; j < kStride; ++j)
      later_[j] = has_line(first + kSide + j) ? image + (first + kSide + j) * in_row_ : nullptr;
    later_y_ = row + 2 < s_.out[1] ? y + 2 * out_row_ : nullptr;
    int64_t o = 0;
    if (channels_ <= kFewChannels)
      for (; o + 2 <= s_.out[2]; o += 2) run_pixels<2>(o, y);
    for (; o < s_.out[2]; ++o) run_pixels<1>(o, y);
  }

 private:
  static constexpr int64_t patch_width(int64_t pixels) { return (pixels - 1) * kStride + kSide; }
  bool has_line(int64_t line) const { return line >= 0 && line < s_.in[1]; }

  template <int kPixels>
  void run_pixels(int64_t o, float* y) {
    constexpr int64_t kWidth = patch_width(kPixels);
    const int64_t first = o * kStride - s_.padding[2];
    const float* rows[kSide];
    for (int j = 0; j < kSide; ++j)
      rows[j] = first >= 0 && first + kWidth <= s_.in[2] ? lines_[j] + first * channels_ : padded(j, first, kWidth);
    prefetch_next(o, kPixels);
    compute_pixels<kPixels>(rows, channels_, weight_, bias_, y + o * channels_);
  }

  /// `width` pixels of a line from `first` on, with zeros beside the image.
  const float* padded(int j, int64_t first, int64_t width) {
    const int64_t begin = std::clamp<int64_t>(-first, 0, width), end = std::clamp(s_.in[2] - first, begin, width);
    float* const result = patch_.data() + j * patch_width(2) * channels_;
    std::fill_n(result, begin * channels_, 0.0f);
    std::copy_n(lines_[j] + (first + begin) * channels_, (end - begin) * channels_, result + begin * channels_);
    std::fill_n(result + end * channels_, (width - end) * channels_, 0.0f);
    return result;
  }

  /// The pixels that the next row reads, and those of the row after it that are written.
  [[gnu::always_inline]] void prefetch_next(int64_t o, int64_t pixels) const {
    for (const float* line : later_)
      if (line && (o + pixels) * kStride <= s_.in[2])
        prefetch<0>(line + o * kStride * channels_, pixels * kStride * channels_);
    if (later_y_) prefetch<1>(later_y_ + o * channels_, pixels * channels_);
  }

  const ConvolutionShape& s_;
  const int64_t channels_, in_row_, out_row_;
  const float *weight_, *bias_;
  std::vector<float> zeros_, patch_;
  const float *lines_[kSide], *later_[kStride], *later_y_ = nullptr;
};

}  // namespace

bool ConvolutionDepthwiseRows::suits(const ConvolutionShape& s, DType dtype) {
  using Sizes = std::array<int64_t, 3>;
  const int64_t bytes = (s.in_pixels() + s.out_pixels()) * s.in_channels * static_cast<int64_t>(sizeof(float));
  return dtype == DType::kFloat32 && s.groups == s.in_channels && s.groups == s.out_channels &&
         s.in_channels >= kLanes && s.kernel == Sizes{1, kSide, kSide} && s.stride[1] == kStride &&
         s.stride[2] == kStride && s.dilation == Sizes{1, 1, 1} && s.padding[0] == 0 && s.in[0] == 1 && s.out[0] == 1 &&
         s.batch > 0 && bytes > kCacheBytes;
}

void ConvolutionDepthwiseRows::forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y) const {
  const ConvolutionShape& s = shape_;
  const int64_t channels = s.out_channels, positions = s.kernel_size(), row = s.out[2] * channels;
  std::vector<float> weights(static_cast<size_t>(positions * channels)), wide(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t k = 0; k < positions; ++k)
      weights[static_cast<size_t>(k * channels + c)] = weight.as<float>()[c * positions + k];
  const float* const bias = wide_bias(end.bias, channels, wide.data());
  const int64_t of_task = std::max<int64_t>(1, kTaskProducts / (row * positions));
  const int64_t tasks = (s.out[1] + of_task - 1) / of_task;
  parallel_for(s.batch * tasks, 1, [&](int64_t begin, int64_t stop) {
    RowComputation rows(s, weights.data(), bias);
    for (int64_t task = begin; task < stop; ++task) {
      const int64_t image = task / tasks, top = task % tasks * of_task;
      for (int64_t o = top; o < std::min(top + of_task, s.out[1]); ++o) {
        const int64_t at = (image * s.out[1] + o) * row;
        float* const to = y.as<float>() + at;
        rows.run(x.as<float>() + image * s.in_pixels() * channels, o, to);
        if (end.continues()) finish(end.activation, end.residual ? end.residual.as<float>() + at : nullptr, to, row);
      }
    }
  });
}

}  // namespace tern::kernels::TERN_CPU
