// Gradients of the weight of two-dimensional convolutions in fp32 as products of matrices: the numbers that an output
// pixel reads are a row, which is written when its block of pixels is multiplied (as in direct.cpp).

#include <algorithm>
#include <cstring>

#include "tern/kernels/base/check.h"
#include "tern/kernels/cpu/convolution/column_products.h"
#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/kernels/cpu/prefetch.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// to[i * to_step + k] = from[i * from_step + k] for k < n, i < count.
void copy_runs(const float* from, int64_t from_step, int64_t n, int64_t count, float* to, int64_t to_step) {
  const bool few = n >= kLanes && n <= 2 * kLanes;
  for (; count > 0; --count, from += from_step, to += to_step) {
    if (few) {  // without a call
      const Lanes first = load_vector(from), last = load_vector(from + n - kLanes);
      store_vector(to, first);
      store_vector(to + n - kLanes, last);
    } else {
      std::memcpy(to, from, static_cast<size_t>(n) * 4);
    }
  }
}

/// The gradient of a weight: sums[channel of the output][number], where the numbers are those that an output pixel
/// reads: [kernel's rows][columns][channels of the input].
class WeightGradient {
 public:
  explicit WeightGradient(const ConvolutionShape& s)
      : s_(s),
        run_(s.kernel[2] * s.in_channels),
        depth_(s.kernel[1] * run_),
        width_(s.in[2] * s.in_channels),
        row_(few() ? vectors(depth_) : padded(depth_)),
        pixels_(s.batch * s.out_pixels()),
        first_inside_((s.padding[2] + s.stride[2] - 1) / s.stride[2]),
        end_inside_(std::max<int64_t>(s.in[2] + s.padding[2] - s.kernel[2] + s.stride[2], 0) / s.stride[2]) {}

  int64_t bytes() const { return 64 + sums_bytes() + (few() ? few_products().bytes() : products().bytes()); }

  void run(const float* dy, const float* x, float* dweight, void* workspace) const {
    char* const memory = align_up(workspace);
    float* const sums = in_place() ? dweight : reinterpret_cast<float*>(memory);
    if (few())
      few_products().run(dy, sums, memory + sums_bytes(), [&](int64_t first, int64_t count, float* to) {
        write_rows(x, first, count, to);
        return to;
      });
    else
      products().run(dy, s_.out_channels, false, sums, row_, memory + sums_bytes(),
                     [&](int64_t first, int64_t count, int64_t begin, int64_t numbers, float* panels) {
                       write_panels(x, first, count, begin, numbers, panels);
                     });
    if (!in_place()) write_weight(sums, dweight);
  }

 private:
  static constexpr int64_t kNumbers = ColumnProducts::kNumbers;
  struct Pixel {
    int64_t image, row, column;
  };

  static constexpr int64_t vectors(int64_t numbers) { return (numbers + kLanes - 1) / kLanes * kLanes; }

  bool few() const { return FewColumnProducts::suits(s_.out_channels, vectors(depth_)); }
  FewColumnProducts few_products() const { return {s_.out_channels, row_, pixels_}; }
  ColumnProducts products() const { return {s_.out_channels, depth_, pixels_}; }

  /// Whether the sums are the gradient itself.
  bool in_place() const { return s_.kernel_size() == 1 && depth_ == row_; }
  int64_t sums_bytes() const { return in_place() ? 0 : align_up(s_.out_channels * row_ * 4); }

  Pixel pixel_at(int64_t p) const { return {p / s_.out_pixels(), p / s_.out[2] % s_.out[1], p % s_.out[2]}; }

  /// body(p, Pixel) for p < count: output pixels from `first` on.
  template <class Body>
  void for_pixels(int64_t first, int64_t count, const Body& body) const {
    Pixel pixel = pixel_at(first);
    for (int64_t p = 0; p < count; ++p) {
      body(p, pixel);
      if (++pixel.column < s_.out[2]) continue;
      pixel.column = 0;
      if (++pixel.row < s_.out[1]) continue;
      pixel.row = 0;
      ++pixel.image;
    }
  }

  /// Null outside of the image.
  const float* line(const float* x, int64_t image, int64_t y) const {
    return y >= 0 && y < s_.in[1] ? x + (image * s_.in[1] + y) * width_ : nullptr;
  }

  /// Numbers [begin, end) of a pixel, with zeros beside the image.
  void copy_numbers(const float* x, const Pixel& pixel, int64_t begin, int64_t end, float* to) const {
    const int64_t left = (pixel.column * s_.stride[2] - s_.padding[2]) * s_.in_channels;
    for (int64_t n = begin, i = begin / run_; n < end; ++i) {
      const int64_t place = left + n - i * run_, some = std::min(end, (i + 1) * run_) - n;
      const float* const from = line(x, pixel.image, pixel.row * s_.stride[1] - s_.padding[1] + i);
      if (!from)
        std::fill_n(to, some, 0.0f);
      else if (place >= 0 && place + some <= width_)
        std::memcpy(to, from + place, static_cast<size_t>(some) * 4);
      else
        for (int64_t k = 0; k < some; ++k) to[k] = place + k >= 0 && place + k < width_ ? from[place + k] : 0.0f;
      n += some;
      to += some;
    }
  }

  /// rows: [pixels][row_], zeros behind the last number: the memory may hold anything.
  void write_rows(const float* x, int64_t first, int64_t count, float* rows) const {
    for (int64_t p = 0; p < count; ++p) store_vector(rows + (p + 1) * row_ - kLanes, Lanes{});
    for (const int64_t last = first + count; first < last;) {
      const Pixel pixel = pixel_at(first);
      const int64_t some = std::min(last - first, s_.out[2] - pixel.column);
      for (int64_t i = 0; i < s_.kernel[1]; ++i) write_runs(x, pixel, i, some, rows);
      first += some;
      rows += some * row_;
    }
  }

  /// What `count` pixels of one row, from `pixel` on, read of row i of the kernel.
  void write_runs(const float* x, const Pixel& pixel, int64_t i, int64_t count, float* rows) const {
    const int64_t y = pixel.row * s_.stride[1] - s_.padding[1] + i, step = s_.stride[2] * s_.in_channels;
    const int64_t start = pixel.column * step;
    int64_t begin = count, end = count;  // of the pixels whose runs are inside of the image
    if (const float* const from = line(x, pixel.image, y)) {
      begin = std::clamp<int64_t>(first_inside_ - pixel.column, 0, count);
      end = std::clamp<int64_t>(end_inside_ - pixel.column, begin, count);
      copy_runs(from + start + begin * step - s_.padding[2] * s_.in_channels, step, run_, end - begin,
                rows + begin * row_ + i * run_, row_);
    }
    for (int64_t q = 0; q < begin; ++q) copy_run(x, pixel, q, i, rows);
    for (int64_t q = end; q < count; ++q) copy_run(x, pixel, q, i, rows);
    // A line that the next row reads besides.
    if (i + s_.stride[1] < s_.kernel[1] || start >= width_) return;
    if (const float* const later = line(x, pixel.image, y + s_.stride[1]))
      prefetch<0>(later + start, std::min(count * step, width_ - start));
  }

  /// The same of one of these pixels.
  void copy_run(const float* x, const Pixel& pixel, int64_t q, int64_t i, float* rows) const {
    copy_numbers(x, {pixel.image, pixel.row, pixel.column + q}, i * run_, (i + 1) * run_, rows + q * row_ + i * run_);
  }

  /// panels: [panels of numbers from `begin` on][pixels][kPanel], zeros behind the last number.
  void write_panels(const float* x, int64_t first, int64_t count, int64_t begin, int64_t numbers, float* panels) const {
    alignas(64) float values[kNumbers] = {};
    for_pixels(first, count, [&](int64_t p, const Pixel& pixel) {
      copy_numbers(x, pixel, begin, begin + numbers, values);
      for (int64_t k = 0; k < numbers; k += kPanel)
        std::memcpy(panels + k * count + p * kPanel, values + k, kPanel * 4);
    });
  }

  /// From [channel][position][channel of the input] to [channel][channel of the input][position].
  void write_weight(const float* sums, float* dweight) const {
    const int64_t positions = s_.kernel_size(), channels = s_.in_channels;
    parallel_for(s_.out_channels, std::max<int64_t>(1, 4096 / depth_), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t q = 0; q < positions; ++q)
            dweight[(o * channels + c) * positions + q] = sums[o * row_ + q * channels + c];
    });
  }

  const ConvolutionShape s_;
  const int64_t run_, depth_, width_, row_;  // row_: numbers of a row of the sums; width_: of a line of x
  const int64_t pixels_;
  const int64_t first_inside_, end_inside_;  // columns of the output whose runs are inside of the image
};

ConvolutionPlan make(const ConvolutionCase& c) {
  const WeightGradient gradient(c.shape);
  const auto run = [gradient](ConstView dy, ConstView x, const ConvolutionEpilogue&, View dweight, char* memory) {
    prepare_products();
    gradient.run(dy.as<float>(), x.as<float>(), dweight.as<float>(), memory);
  };
  return {.run = run, .memory_bytes = gradient.bytes()};
}

bool can(const ConvolutionCase& c) { return c.is_plain() && c.is(ConvolutionPass::kBackwardWeight); }
bool pays(const ConvolutionCase& c) {
  return kOwnIsFaster && c.shape.in_channels * c.shape.out_channels >= (c.shape.kernel_size() > 1 ? 48 : 16384);
}

}  // namespace

const ConvolutionMethod kDirectWeight = {"direct_weight", can, pays, make};

}  // namespace tern::kernels::TERN_CPU
