#include <algorithm>
#include <cstring>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cpu/column_products.h"
#include "tern/kernels/cpu/convolution_direct.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// The gradient of a weight: sums[channel of the output][number], where the numbers are those that an output pixel
/// reads: [kernel's rows][columns][channels of the input].
class WeightGradient {
 public:
  explicit WeightGradient(const ConvolutionShape& s)
      : s_(s),
        run_(s.kernel[2] * s.in_channels),
        depth_(s.kernel[1] * run_),
        products_(s.out_channels, depth_, s.batch * s.out_pixels()) {}

  int64_t bytes() const { return 64 + sums_bytes() + products_.bytes(); }

  void run(const float* dy, const float* x, float* dweight, void* workspace) const {
    char* const memory = align_up(workspace);
    float* const sums = in_place() ? dweight : reinterpret_cast<float*>(memory);
    products_.run(dy, s_.out_channels, false, sums, in_place() ? depth_ : padded(depth_), memory + sums_bytes(),
                  [&](int64_t first, int64_t count, int64_t begin, int64_t numbers, float* panels) {
                    write_panels(x, first, count, begin, numbers, panels);
                  });
    if (!in_place()) write_weight(sums, dweight);
  }

 private:
  static constexpr int64_t kNumbers = ColumnProducts::kNumbers;

  /// Whether the sums are the gradient itself.
  bool in_place() const { return s_.kernel_size() == 1 && depth_ % kLanes == 0; }
  int64_t sums_bytes() const { return in_place() ? 0 : align_up(s_.out_channels * padded(depth_) * 4); }

  /// panels: [panels of numbers from `begin` on][pixels][kPanel], zeros behind the last number.
  void write_panels(const float* x, int64_t first, int64_t count, int64_t begin, int64_t numbers, float* panels) const {
    alignas(64) float values[kNumbers] = {};
    const int64_t end = begin + numbers, width = s_.in[2] * s_.in_channels;
    int64_t column = first % s_.out[2], row = first / s_.out[2] % s_.out[1], image = first / s_.out_pixels();
    for (int64_t p = 0; p < count; ++p) {
      const int64_t top = row * s_.stride[1] - s_.padding[1];
      const int64_t left = (column * s_.stride[2] - s_.padding[2]) * s_.in_channels;
      const float* from = values;
      for (int64_t n = begin, i = begin / run_; n < end; ++i) {
        const int64_t y = top + i, place = left + n - i * run_, some = std::min(end, (i + 1) * run_) - n;
        float* const to = values + (n - begin);
        const float* const line = x + (image * s_.in[1] + y) * width;
        n += some;
        if (y < 0 || y >= s_.in[1]) {
          std::fill_n(to, some, 0.0f);
        } else if (place >= 0 && place + some <= width) {
          if (some == kNumbers)
            from = line + place;
          else
            std::memcpy(to, line + place, static_cast<size_t>(some) * 4);
        } else {
          for (int64_t k = 0; k < some; ++k) to[k] = place + k >= 0 && place + k < width ? line[place + k] : 0.0f;
        }
      }
      for (int64_t k = 0; k < numbers; k += kPanel) std::memcpy(panels + k * count + p * kPanel, from + k, kPanel * 4);
      if (++column < s_.out[2]) continue;
      column = 0;
      if (++row < s_.out[1]) continue;
      row = 0;
      ++image;
    }
  }

  /// From [channel][position][channel of the input] to [channel][channel of the input][position].
  void write_weight(const float* sums, float* dweight) const {
    const int64_t positions = s_.kernel_size(), channels = s_.in_channels;
    parallel_for(s_.out_channels, std::max<int64_t>(1, 4096 / depth_), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t q = 0; q < positions; ++q)
            dweight[(o * channels + c) * positions + q] = sums[o * padded(depth_) + q * channels + c];
    });
  }

  const ConvolutionShape s_;
  const int64_t run_, depth_;
  const ColumnProducts products_;
};

}  // namespace

int64_t ConvolutionDirect::backward_weight_bytes() const { return WeightGradient(shape_).bytes(); }
void ConvolutionDirect::backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const {
  check_not_ending();
  WeightGradient(shape_).run(dy.as<float>(), x.as<float>(), dweight.as<float>(), workspace);
}

}  // namespace tern::kernels::TERN_CPU
