// Depthwise convolutions of 3 x 3 pixels with stride 1 or 2 in fp32, pixel by pixel with all channels, so that memory
// is read and written in the order of its addresses. oneDNN goes through an image once for a few channels at a time,
// which reads a part of each line of memory every time (docs/performance.md). Forward with stride 1 and of small images
// the arithmetic takes longer than memory, and oneDNN's is as fast.

#include <algorithm>

#include "tern/kernels/cpu/convolution/epilogue.h"
#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/kernels/cpu/gemm/blocks.h"
#include "tern/kernels/cpu/prefetch.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/cpu/simd/register_products.h"
#include "tern/kernels/cpu/slots.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int kSide = 3, kTaps = kSide * kSide;  // of the kernel
constexpr int64_t kCacheBytes = 640 * 1024;      // an image and its result of fewer bytes stay in the L2 cache
constexpr int64_t kFewChannels = 32;             // two pixels at a time share what they read; with more, one is faster
constexpr int64_t kTaskProducts = 1 << 21;
constexpr int kGradientPixels = 4;  // of a row, in the gradient of the weight

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
        for (int p = 0; p < kPixels; ++p) sums[p] += w * load_vector(rows[j] + (p * 2 + k) * channels + c);
      }
    for (int p = 0; p < kPixels; ++p) store_vector(y + p * channels + c, sums[p]);
  }
}

/// sums += dy of kPixels neighbours times what they read. sums: [channels / kLanes][9][kLanes]. What the next row reads
/// is loaded meanwhile, a few lines at a time: more at once would delay what this row reads.
template <int kPixels, int kStride>
[[gnu::noinline]] void add_products(const float* const (&rows)[kSide], int64_t channels, const float* dy,
                                    Ahead& later_x, Ahead& later_dy, float* sums) {
  for (int64_t c = 0; c < channels; c += kLanes, sums += kTaps * kLanes) {
    later_x.load();
    later_dy.load();
    Vector<float> d[kPixels];
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) d[p] = load_vector(dy + p * channels + c);
#pragma GCC unroll 3
    for (int j = 0; j < kSide; ++j)
#pragma GCC unroll 3
      for (int k = 0; k < kSide; ++k) {
        float* const place = sums + (j * kSide + k) * kLanes;
        Vector<float> sum = load_vector(place);
#pragma GCC unroll 4
        for (int p = 0; p < kPixels; ++p) sum += d[p] * load_vector(rows[j] + (p * kStride + k) * channels + c);
        store_vector(place, sum);
      }
  }
}

/// The rows of an image that the pixels of a row of the result read, for one thread.
class Patches {
 public:
  /// pixels: of the result that are computed at a time, at most. Without memory only bytes() is valid.
  Patches(const ConvolutionShape& s, int64_t pixels, char* memory)
      : s_(s), channels_(s.in_channels), width_(width_of(pixels)), zeros_(reinterpret_cast<float*>(memory)) {
    patch_ = zeros_ + s.in[2] * channels_;
    if (memory) std::fill_n(zeros_, s.in[2] * channels_, 0.0f);
  }
  int64_t bytes() const { return align_up((s_.in[2] + kSide * width_) * channels_ * 4); }

  /// The first line that a row reads.
  int64_t first_line(int64_t row) const { return row * s_.stride[1] - s_.padding[1]; }
  /// Null outside of the image.
  const float* line(const float* image, int64_t line) const {
    return line >= 0 && line < s_.in[1] ? image + line * s_.in[2] * channels_ : nullptr;
  }
  void set_row(const float* image, int64_t row) {
    for (int64_t j = 0; j < kSide; ++j) {
      const float* const found = line(image, first_line(row) + j);
      lines_[j] = found ? found : zeros_;
    }
  }
  /// rows[j]: what `pixels` pixels of the row from o on read of row j of the kernel.
  void find(int64_t o, int64_t pixels, const float* (&rows)[kSide]) {
    const int64_t first = o * s_.stride[2] - s_.padding[2], width = width_of(pixels);
    for (int j = 0; j < kSide; ++j)
      rows[j] = first >= 0 && first + width <= s_.in[2] ? lines_[j] + first * channels_ : padded(j, first, width);
  }

 private:
  int64_t width_of(int64_t pixels) const { return (pixels - 1) * s_.stride[2] + kSide; }

  /// `width` pixels of a line from `first` on, with zeros beside the image.
  const float* padded(int j, int64_t first, int64_t width) {
    const int64_t begin = std::clamp<int64_t>(-first, 0, width), end = std::clamp(s_.in[2] - first, begin, width);
    float* const result = patch_ + j * width_ * channels_;
    std::fill_n(result, begin * channels_, 0.0f);
    std::copy_n(lines_[j] + (first + begin) * channels_, (end - begin) * channels_, result + begin * channels_);
    std::fill_n(result + end * channels_, (width - end) * channels_, 0.0f);
    return result;
  }

  const ConvolutionShape& s_;
  const int64_t channels_, width_;
  float *zeros_, *patch_;
  const float* lines_[kSide] = {};
};

/// Computes rows of y with stride 2, for one thread.
class RowComputation {
 public:
  RowComputation(const ConvolutionShape& s, const float* weight, const float* bias, char* memory)
      : s_(s),
        channels_(s.in_channels),
        out_row_(s.out[2] * channels_),
        weight_(weight),
        bias_(bias),
        patches_(s, kPixels, memory) {}
  int64_t bytes() const { return patches_.bytes(); }

  /// y: of row `row`.
  void run(const float* image, int64_t row, float* y) {
    patches_.set_row(image, row);
    const int64_t next = patches_.first_line(row) + kSide;
    for (int64_t j = 0; j < 2; ++j) later_[j] = patches_.line(image, next + j);
    later_y_ = row + 2 < s_.out[1] ? y + 2 * out_row_ : nullptr;
    int64_t o = 0;
    if (channels_ <= kFewChannels)
      for (; o + kPixels <= s_.out[2]; o += kPixels) run_pixels<kPixels>(o, y);
    for (; o < s_.out[2]; ++o) run_pixels<1>(o, y);
  }

 private:
  static constexpr int kPixels = 2;

  template <int kCount>
  void run_pixels(int64_t o, float* y) {
    const float* rows[kSide];
    patches_.find(o, kCount, rows);
    prefetch_next(o, kCount);
    compute_pixels<kCount>(rows, channels_, weight_, bias_, y + o * channels_);
  }

  /// The pixels that the next row reads, and those of the row after it that are written.
  [[gnu::always_inline]] void prefetch_next(int64_t o, int64_t pixels) const {
    for (const float* line : later_)
      if (line && (o + pixels) * 2 <= s_.in[2]) prefetch<0>(line + o * 2 * channels_, pixels * 2 * channels_);
    if (later_y_) prefetch<1>(later_y_ + o * channels_, pixels * channels_);
  }

  const ConvolutionShape& s_;
  const int64_t channels_, out_row_;
  const float *weight_, *bias_;
  Patches patches_;
  const float *later_[2] = {}, *later_y_ = nullptr;
};

/// The parts of the images' rows, whose sums are added in order at the end. Only the shape decides.
int64_t part_count(const ConvolutionShape& s) {
  constexpr int64_t kPartProducts = 1 << 19, kMaxParts = 32;
  const int64_t products = s.batch * s.out_pixels() * s.in_channels * kTaps;
  return std::clamp<int64_t>(products / kPartProducts, 1, std::min(kMaxParts, s.batch * s.out[1]));
}

/// Adds the products of rows [begin, end) of all images.
template <int kStride>
void add_rows(const ConvolutionShape& s, const float* dy, const float* x, int64_t begin, int64_t end, float* sums,
              char* memory) {
  constexpr int kPixels = kGradientPixels;
  const int64_t channels = s.in_channels, in_row = s.in[2] * channels, out_row = s.out[2] * channels;
  const int64_t steps = (s.out[2] + kPixels - 1) / kPixels * (channels / kLanes);
  Patches patches(s, kPixels, memory);
  const float* rows[kSide];
  for (int64_t row = begin; row < end; ++row) {
    const float *const image = x + row / s.out[1] * s.in[1] * in_row, *const gradient = dy + row * out_row;
    patches.set_row(image, row % s.out[1]);
    // What the next row reads besides.
    const int64_t next = std::max<int64_t>(patches.first_line(row % s.out[1]) + kSide, 0);
    Ahead later_x(image + next * in_row, std::clamp<int64_t>(s.in[1] - next, 0, kStride) * in_row, steps);
    Ahead later_dy(gradient + out_row, row + 1 < end ? out_row : 0, steps);
    int64_t o = 0;
    for (; o + kPixels <= s.out[2]; o += kPixels) {
      patches.find(o, kPixels, rows);
      add_products<kPixels, kStride>(rows, channels, gradient + o * channels, later_x, later_dy, sums);
    }
    for (; o < s.out[2]; ++o) {
      patches.find(o, 1, rows);
      add_products<1, kStride>(rows, channels, gradient + o * channels, later_x, later_dy, sums);
    }
  }
}

ConvolutionPlan forward_plan(const ConvolutionShape& s) {
  const int64_t channels = s.out_channels, row = s.out[2] * channels;
  const int64_t of_thread = RowComputation(s, nullptr, nullptr, nullptr).bytes(), threads = num_threads();
  const int64_t weight_bytes = align_up((kTaps + 1) * channels * 4);
  const auto run = [=](ConstView x, ConstView weight, const ConvolutionEpilogue& epilogue, View y, char* memory) {
    auto *const weights = reinterpret_cast<float*>(memory), *const wide = weights + kTaps * channels;
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t k = 0; k < kTaps; ++k) weights[k * channels + c] = weight.as<float>()[c * kTaps + k];
    const float* const bias = wide_bias(epilogue.bias, channels, wide);
    const int64_t of_task = std::max<int64_t>(1, kTaskProducts / (row * kTaps));
    const int64_t tasks = (s.out[1] + of_task - 1) / of_task;
    for_tasks(s.batch * tasks, threads, [&](int64_t task, int64_t slot) {
      RowComputation rows(s, weights, bias, memory + weight_bytes + slot * of_thread);
      const int64_t image = task / tasks, top = task % tasks * of_task;
      for (int64_t o = top; o < std::min(top + of_task, s.out[1]); ++o) {
        const int64_t at = (image * s.out[1] + o) * row;
        rows.run(x.as<float>() + image * s.in_pixels() * channels, o, y.as<float>() + at);
        apply_epilogue(epilogue, y, at, row);
      }
    });
  };
  return {.run = run, .memory_bytes = weight_bytes + threads * of_thread};
}

ConvolutionPlan weight_plan(const ConvolutionShape& s) {
  const int64_t parts = part_count(s), rows = s.batch * s.out[1], size = s.in_channels * kTaps;
  const int64_t of_thread = Patches(s, kGradientPixels, nullptr).bytes(), threads = num_threads();
  const int64_t sums_bytes = align_up(parts * size * 4);
  const auto run = [=](ConstView dy, ConstView x, const ConvolutionEpilogue&, View dweight, char* memory) {
    auto* const sums = reinterpret_cast<float*>(memory);
    for_tasks(parts, threads, [&](int64_t part, int64_t slot) {
      std::fill_n(sums + part * size, size, 0.0f);
      (s.stride[1] == 1 ? add_rows<1> : add_rows<2>)(s, dy.as<float>(), x.as<float>(), rows * part / parts,
                                                     rows * (part + 1) / parts, sums + part * size,
                                                     memory + sums_bytes + slot * of_thread);
    });
    for (int64_t part = 1; part < parts; ++part) add_to(sums, sums + part * size, size);
    dispatch_float(dweight.dtype, [&]<class T>() {
      for (int64_t c = 0; c < s.in_channels; ++c)
        for (int64_t k = 0; k < kTaps; ++k)
          dweight.as<T>()[c * kTaps + k] = static_cast<T>(sums[(c / kLanes * kTaps + k) * kLanes + c % kLanes]);
    });
  };
  return {.run = run, .memory_bytes = sums_bytes + threads * of_thread};
}

ConvolutionPlan make(const ConvolutionCase& c) {
  return c.is(ConvolutionPass::kForward) ? forward_plan(c.shape) : weight_plan(c.shape);
}

bool can(const ConvolutionCase& c) {
  const ConvolutionShape& s = c.shape;
  const bool of_pass = c.is(ConvolutionPass::kForward) ? s.in_channels >= kChannelStep && s.stride[1] == 2
                                                       : s.in_channels % kChannelStep == 0;
  return of_pass && !c.is(ConvolutionPass::kBackwardInput) && c.dtype == DType::kFloat32 && c.is_depthwise() &&
         c.is_flat() && !c.is_dilated() && !c.is_empty() && s.kernel == std::array<int64_t, 3>{1, kSide, kSide} &&
         s.stride[1] == s.stride[2] && s.stride[1] <= 2;
}

bool pays(const ConvolutionCase& c) {
  const ConvolutionShape& s = c.shape;
  const int64_t bytes = (s.in_pixels() + s.out_pixels()) * s.in_channels * static_cast<int64_t>(sizeof(float));
  return kOwnIsFaster && (!c.is(ConvolutionPass::kForward) || bytes > kCacheBytes);
}

}  // namespace

const ConvolutionMethod kDepthwiseRows = {"depthwise_rows", can, pays, make};

}  // namespace tern::kernels::TERN_CPU
