// Convolutions as products of matrices, for every shape and dtype, and the copies that make the matrices.

#include "tern/kernels/convolution/columns.h"

#include <algorithm>
#include <cstring>

#include "tern/kernels/cpu/convolution/methods.h"
#include "tern/kernels/cpu/rows.h"
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

ConvolutionPlan make(const ConvolutionCase& c) {
  const ConvolutionByColumns columns(Stream{}, c.shape, c.dtype);
  return {.run =
              [columns, pass = c.pass](ConstView first, ConstView second, const ConvolutionEpilogue& epilogue,
                                       View result, char* memory) {
                ConvolutionByColumns products = columns;
                if (pass == ConvolutionPass::kForward) return products.forward(first, second, epilogue, result, memory);
                if (pass == ConvolutionPass::kBackwardInput)
                  return products.backward_input(first, second, result, memory);
                products.backward_weight(first, second, result, memory);
              },
          .memory_bytes = columns.workspace_bytes()};
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

const ConvolutionMethod kColumns = {"columns", [](const ConvolutionCase&) { return true; },
                                    [](const ConvolutionCase&) { return true; }, make};

}  // namespace tern::kernels::TERN_CPU
