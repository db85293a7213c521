#include "tern/kernels/convolution/convolution.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "tern/kernels/base/check.h"
#include "tern/kernels/convolution/columns.h"
#include "tern/kernels/cpu/convolution/depthwise.h"
#include "tern/kernels/cpu/convolution/depthwise_rows.h"
#include "tern/kernels/cpu/convolution/direct.h"
#include "tern/kernels/cpu/convolution/onednn.h"
#include "tern/kernels/cpu/convolution/pointwise.h"
#include "tern/kernels/cpu/convolution/strips.h"
#include "tern/kernels/cpu/convolution/winograd.h"
#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/cpu/simd/register_products.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// The row of `in` that output row `out` reads for position k, or -1: outside of the image.
int64_t input_row(const ConvolutionShape& s, int d, int64_t out, int64_t k) {
  const auto i = static_cast<size_t>(d);
  const int64_t row = out * s.stride[i] - s.padding[i] + k * s.dilation[i];
  return row >= 0 && row < s.in[i] ? row : -1;
}

/// Calls body(z, y, x, k) for each position of the kernel that output pixel (d, h, w) reads; z is -1 outside the image.
template <class Body>
void for_each_position(const ConvolutionShape& s, int64_t pixel, const Body& body) {
  const int64_t w = pixel % s.out[2], h = pixel / s.out[2] % s.out[1], d = pixel / (s.out[2] * s.out[1]);
  int64_t k = 0;
  for (int64_t i = 0; i < s.kernel[0]; ++i) {
    const int64_t z = input_row(s, 0, d, i);
    for (int64_t j = 0; j < s.kernel[1]; ++j) {
      const int64_t y = input_row(s, 1, h, j);
      for (int64_t l = 0; l < s.kernel[2]; ++l, ++k) {
        const int64_t x = input_row(s, 2, w, l);
        const bool inside = z >= 0 && y >= 0 && x >= 0;
        body(k, inside ? (z * s.in[1] + y) * s.in[2] + x : -1);
      }
    }
  }
}

/// The output pixels of one dimension that read input `in` for position k: at most one, or -1.
int64_t output_row(const ConvolutionShape& s, size_t d, int64_t in, int64_t k) {
  const int64_t scaled = in + s.padding[d] - k * s.dilation[d];
  if (scaled < 0 || scaled % s.stride[d] != 0) return -1;
  const int64_t out = scaled / s.stride[d];
  return out < s.out[d] ? out : -1;
}

constexpr int64_t kPixelElements = 16384;  // of a block of parallel_for

/// Convolutions as products of matrices, for every shape and dtype.
class Columns final : public ConvolutionMethod {
 public:
  Columns(Stream stream, const ConvolutionShape& shape, DType dtype) : products_(stream, shape, dtype) {}

  int64_t forward_bytes(bool) const override { return products_.workspace_bytes(); }
  int64_t backward_input_bytes() const override { return products_.workspace_bytes(); }
  int64_t backward_weight_bytes() const override { return products_.workspace_bytes(); }
  void forward(ConstView x, ConstView weight, const ConvolutionEnd& end, View y, void* workspace) const override {
    ConvolutionByColumns(products_).forward(x, weight, end, y, workspace);
  }
  void backward_input(ConstView dy, ConstView weight, View dx, void* workspace) const override {
    ConvolutionByColumns(products_).backward_input(dy, weight, dx, workspace);
  }
  void backward_weight(ConstView dy, ConstView x, View dweight, void* workspace) const override {
    ConvolutionByColumns(products_).backward_weight(dy, x, dweight, workspace);
  }

 private:
  const ConvolutionByColumns products_;
};

using Method = std::unique_ptr<const ConvolutionMethod>;

// Each method takes what the ones before it cannot, or are slower at.
Method any_method(Stream stream, const ConvolutionShape& shape, DType dtype, bool onednn) {
  if (onednn && ConvolutionStrips::suits(shape)) return std::make_unique<ConvolutionStrips>(shape, dtype);
  if (onednn) return std::make_unique<ConvolutionOnednn>(shape, dtype);
  if (ConvolutionDepthwise::suits(shape, dtype)) return std::make_unique<ConvolutionDepthwise>(shape);
  return std::make_unique<Columns>(stream, shape, dtype);
}
/// fixed_weight: for a weight that is packed.
Method forward_method(Stream stream, const ConvolutionShape& s, DType dtype, bool fixed_weight) {
  if (kOwnIsFaster) {
    if (ConvolutionWinograd::suits_forward(s, dtype, fixed_weight)) return std::make_unique<ConvolutionWinograd>(s);
    if (ConvolutionDepthwiseRows::suits_forward(s, dtype)) return std::make_unique<ConvolutionDepthwiseRows>(s);
    if (ConvolutionPointwise::suits_forward(s, dtype)) return std::make_unique<ConvolutionPointwise>(s);
    if (ConvolutionDirect::suits_forward(s, dtype)) return std::make_unique<ConvolutionDirect>(s);
  }
  const bool onednn = ConvolutionOnednn::suits(s, dtype);
  if (onednn && ConvolutionStrips::suits_forward(s, dtype, fixed_weight))
    return std::make_unique<ConvolutionStrips>(s, dtype);
  return any_method(stream, s, dtype, onednn);
}
// oneDNN 2.6 takes ten times as long for the gradients of other depthwise convolutions.
Method input_method(Stream stream, const ConvolutionShape& s, DType dtype) {
  if (kOwnIsFaster) {
    if (ConvolutionWinograd::suits_backward_input(s, dtype)) return std::make_unique<ConvolutionWinograd>(s);
    if (ConvolutionPointwise::suits_backward_input(s, dtype)) return std::make_unique<ConvolutionPointwise>(s);
    if (ConvolutionDirect::suits_backward_input(s, dtype)) return std::make_unique<ConvolutionDirect>(s);
  }
  const bool slow = ConvolutionDepthwise::suits(s, dtype) && s.dilation != std::array<int64_t, 3>{1, 1, 1};
  return any_method(stream, s, dtype, ConvolutionOnednn::suits_backward(s, dtype) && !slow);
}
Method weight_method(Stream stream, const ConvolutionShape& s, DType dtype) {
  if (kOwnIsFaster) {
    if (ConvolutionWinograd::suits_backward_weight(s, dtype)) return std::make_unique<ConvolutionWinograd>(s);
    if (ConvolutionDepthwiseRows::suits_backward_weight(s, dtype)) return std::make_unique<ConvolutionDepthwiseRows>(s);
    if (ConvolutionPointwise::suits_backward_weight(s, dtype)) return std::make_unique<ConvolutionPointwise>(s);
    if (ConvolutionDirect::suits_backward_weight(s, dtype)) return std::make_unique<ConvolutionDirect>(s);
  }
  const bool small =
      s.dilation == std::array<int64_t, 3>{1, 1, 1} && s.kernel[0] == 1 && s.kernel[1] <= 3 && s.kernel[2] <= 3;
  const bool slow = ConvolutionDepthwise::suits(s, dtype) && !small;
  return any_method(stream, s, dtype, ConvolutionOnednn::suits_backward(s, dtype) && !slow);
}

}  // namespace

void images_to_columns(Stream, const ConvolutionShape& s, ConstView x, View columns) {
  const int64_t channels = s.group_in(), positions = s.kernel_size(), row = s.groups * positions * channels;
  if (columns.numel() == 0) return;
  const int64_t size = size_of(x.dtype), pixels = s.out_pixels();
  const auto* from = static_cast<const char*>(x.data);
  auto* to = static_cast<char*>(columns.data);
  parallel_for(x.shape[0] * pixels, std::max<int64_t>(1, kPixelElements / row), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const char* image = from + p / pixels * s.in_pixels() * s.in_channels * size;
      char* result = to + p * row * size;
      for_each_position(s, p % pixels, [&](int64_t k, int64_t pixel) {
        for (int64_t g = 0; g < s.groups; ++g) {
          char* place = result + (g * positions + k) * channels * size;
          if (pixel < 0)
            std::memset(place, 0, static_cast<size_t>(channels * size));
          else
            std::memcpy(place, image + (pixel * s.in_channels + g * channels) * size,
                        static_cast<size_t>(channels * size));
        }
      });
    }
  });
}

void columns_to_images(Stream, const ConvolutionShape& s, ConstView columns, View dx) {
  const int64_t channels = s.group_in(), positions = s.kernel_size(), row = s.groups * positions * channels;
  if (dx.numel() == 0) return;
  const int64_t pixels = s.in_pixels();
  dispatch_float(dx.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    parallel_for(dx.shape[0] * pixels, std::max<int64_t>(1, kPixelElements / row), [&](int64_t begin, int64_t end) {
      alignas(64) F sums[kTile], buffer[kTile];
      for (int64_t p = begin; p < end; ++p) {
        const int64_t pixel = p % pixels, w = pixel % s.in[2], h = pixel / s.in[2] % s.in[1],
                      d = pixel / (s.in[2] * s.in[1]);
        const T* image = columns.as<T>() + p / pixels * s.out_pixels() * row;
        for (int64_t g = 0; g < s.groups; ++g)
          for (int64_t c = 0; c < channels; c += kTile) {
            const int64_t n = std::min(kTile, channels - c);
            std::fill_n(sums, n, F(0));
            for (int64_t k = 0; k < positions; ++k) {
              const int64_t z = output_row(s, 0, d, k / (s.kernel[1] * s.kernel[2]));
              const int64_t y = output_row(s, 1, h, k / s.kernel[2] % s.kernel[1]);
              const int64_t x = output_row(s, 2, w, k % s.kernel[2]);
              if (z < 0 || y < 0 || x < 0) continue;
              const int64_t out = (z * s.out[1] + y) * s.out[2] + x;
              add_to(sums, widen(image + out * row + (g * positions + k) * channels + c, buffer, n), n);
            }
            narrow(sums, dx.as<T>() + p * s.in_channels + g * channels + c, n);
          }
      }
    });
  });
}

void ConvolutionMethod::pack(ConstView, void*) const {}
void ConvolutionMethod::forward(ConstView, ConstView, const ConvolutionEnd&, View, void*) const {
  fail("this method does not compute a convolution's result: its suits functions were not asked");
}
void ConvolutionMethod::backward_input(ConstView, ConstView, View, void*) const {
  fail("this method does not compute the gradient of a convolution's input: its suits functions were not asked");
}
void ConvolutionMethod::backward_weight(ConstView, ConstView, View, void*) const {
  fail("this method does not compute the gradient of a convolution's weight: its suits functions were not asked");
}

int64_t convolution_workspace(Stream stream, const ConvolutionShape& shape, DType dtype, bool packed) {
  return forward_method(stream, shape, dtype, packed)->forward_bytes(packed);
}
void convolution_forward(Stream stream, const ConvolutionShape& shape, ConstView x, ConstView weight,
                         const ConvolutionEnd& end, View y, void* workspace) {
  forward_method(stream, shape, x.dtype, end.packed_weight != nullptr)->forward(x, weight, end, y, workspace);
}
int64_t convolution_packed_bytes(Stream stream, const ConvolutionShape& shape, DType dtype) {
  return forward_method(stream, shape, dtype, true)->packed_bytes();
}
void convolution_pack(Stream stream, const ConvolutionShape& shape, ConstView weight, void* packed) {
  forward_method(stream, shape, weight.dtype, true)->pack(weight, packed);
}

int64_t convolution_backward_input_workspace(Stream stream, const ConvolutionShape& shape, DType dtype) {
  return input_method(stream, shape, dtype)->backward_input_bytes();
}
void convolution_backward_input(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView weight, View dx,
                                void* workspace) {
  input_method(stream, shape, dx.dtype)->backward_input(dy, weight, dx, workspace);
}

int64_t convolution_backward_weight_workspace(Stream stream, const ConvolutionShape& shape, DType dtype) {
  return weight_method(stream, shape, dtype)->backward_weight_bytes();
}
void convolution_backward_weight(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView x, View dweight,
                                 void* workspace) {
  weight_method(stream, shape, x.dtype)->backward_weight(dy, x, dweight, workspace);
}

}  // namespace tern::kernels::TERN_CPU
