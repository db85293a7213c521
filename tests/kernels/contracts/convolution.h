#pragma once
// The contract of convolutions: cases, and sums over all positions in fp64 as the reference.

#include "tern/kernels/convolution/convolution.h"
#include "tern/tests/kernels/contracts/exact_sums.h"
#include "tern/tests/kernels/contracts/target.h"

namespace tern::kernels {

/// One dimension: size, kernel, stride, padding, dilation.
struct ConvolutionAxis {
  int64_t in = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
  int64_t high = -1;  // padding behind the image, or -1: like that before it
  int64_t out() const {
    return (in + padding + (high < 0 ? padding : high) - (kernel - 1) * dilation - 1) / stride + 1;
  }
};

inline ConvolutionShape convolution_shape(int64_t batch, int64_t in_channels, int64_t out_channels, int64_t groups,
                                          const std::vector<ConvolutionAxis>& axes) {
  ConvolutionShape s;
  s.batch = batch;
  s.in_channels = in_channels;
  s.out_channels = out_channels;
  s.groups = groups;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t d = 3 - axes.size() + i;
    s.in[d] = axes[i].in;
    s.out[d] = axes[i].out();
    s.kernel[d] = axes[i].kernel;
    s.stride[d] = axes[i].stride;
    s.padding[d] = axes[i].padding;
    s.dilation[d] = axes[i].dilation;
  }
  return s;
}

inline std::vector<ConvolutionShape> convolution_cases() {
  return {
      convolution_shape(1, 1, 1, 1, {{1}}),
      convolution_shape(2, 3, 5, 1, {{7, 3}, {6, 2}}),
      convolution_shape(9, 3, 16, 1, {{9, 3, 1, 1}, {11, 3, 1, 1}}),          // the first layer of an image model
      convolution_shape(11, 16, 32, 1, {{6, 3, 1, 1}, {5, 3, 1, 1}}),         // oneDNN's own code, uneven pieces
      convolution_shape(2, 32, 17, 1, {{8, 3, 2, 1}, {9, 3, 2, 1}}),          // an unused last row
      convolution_shape(3, 64, 33, 1, {{4, 1}, {5, 1}}),                      // a product of matrices
      convolution_shape(2, 24, 40, 1, {{7, 1, 2}, {8, 1, 2}}),                // 1 x 1 with a stride
      convolution_shape(2, 12, 12, 12, {{9, 3, 1, 1}, {8, 3, 1, 1}}),         // depthwise
      convolution_shape(3, 48, 48, 48, {{9, 5, 2, 2}, {7, 5, 2, 2}}),         // depthwise
      convolution_shape(2, 40, 40, 40, {{9, 3, 1, 2, 2}, {10, 3, 2, 1, 3}}),  // depthwise, dilated
      convolution_shape(1, 32, 32, 32, {{4, 3, 1, 1}, {5, 2, 2, 1}, {6, 9, 1, 4}}),  // depthwise, wide kernel
      convolution_shape(9, 20, 20, 20, {{5, 4, 3, 0, 1, 2}, {7, 5, 2, 4, 1, 1}}),    // depthwise, uneven parts
      convolution_shape(2, 5, 15, 5, {{6, 3}, {6, 2}}),                              // three outputs of each channel
      convolution_shape(2, 24, 36, 3, {{6, 3, 1, 1}, {7, 3, 2, 1}}),                 // groups
      convolution_shape(2, 32, 64, 2, {{5, 3, 1, 1}, {6, 3, 1, 1}}),                 // groups that oneDNN vectorises
      convolution_shape(2, 7, 4, 1, {{12, 3, 1, 2, 2}, {13, 2, 3, 1, 4}}),           // dilation
      convolution_shape(2, 4, 6, 1, {{2, 5, 1, 2}, {3, 4, 1, 3}}),                   // a kernel larger than the image
      convolution_shape(2, 4, 6, 1, {{6, 2, 1, 0, 1, 1}, {5, 4, 1, 1, 1, 2}}),       // 'same': more behind than before
      convolution_shape(3, 6, 4, 1, {{6, 2, 1, 3, 1, 0}, {5, 3, 1, 1, 1, 1}}),       // more before than behind
      convolution_shape(4, 10, 8, 2, {{17, 4, 3, 2, 2}}),                            // one dimension
      convolution_shape(2, 16, 16, 1, {{300, 3, 1, 1}}),                             // one dimension, long
      convolution_shape(2, 4, 6, 2, {{5, 2, 1, 1}, {4, 3, 2, 1}, {6, 2, 1, 0, 2}}),  // three dimensions
      convolution_shape(0, 3, 5, 1, {{7, 3}, {6, 2}}),                               // no image
      convolution_shape(2, 300, 7, 1, {{3, 3, 1, 1}, {3, 3, 1, 1}}),                 // more channels than a tile
      convolution_shape(1, 8, 8, 1, {{8, 3, 8, 1}, {8, 3, 5, 1}}),                   // inputs that no output reads
      convolution_shape(1, 64, 64, 64, {{52, 3, 1, 1}, {32, 3, 1, 1}}),              // an image in pieces
      convolution_shape(1, 32, 32, 32, {{91, 3, 2, 1}, {70, 3, 1, 1}}),              // the same with a stride
      convolution_shape(1, 40, 8, 1, {{61, 1}, {50, 1}}),                            // a product in pieces
  };
}

/// Convolutions whose channels have a kernel each.
inline std::vector<ConvolutionShape> depthwise_cases() {
  return {
      convolution_shape(1, 1, 1, 1, {{1}}),
      convolution_shape(2, 12, 12, 12, {{9, 3, 1, 1}, {8, 3, 1, 1}}),
      convolution_shape(3, 16, 16, 16, {{7, 3, 2, 1}, {10, 3, 2, 1}}),
      convolution_shape(2, 8, 8, 8, {{9, 5, 2, 2}, {7, 5, 2, 2}}),
      convolution_shape(2, 5, 5, 5, {{6, 3}, {6, 2}}),
      convolution_shape(2, 24, 24, 24, {{9, 2, 1, 1, 2}, {9, 3, 2, 2, 3}}),
      convolution_shape(1, 8, 8, 8, {{8, 3, 8, 1}, {8, 3, 5, 1}}),                   // inputs that no output reads
      convolution_shape(2, 16, 16, 16, {{2, 5, 1, 2}, {3, 4, 1, 3}}),                // a kernel larger than the image
      convolution_shape(2, 4, 4, 4, {{5, 2, 1, 1}, {4, 3, 2, 1}, {6, 2, 1, 0, 2}}),  // three dimensions
      convolution_shape(1, 136, 136, 136, {{13, 7, 1, 3}}),                          // more channels than a warp takes
      convolution_shape(3, 8, 8, 8, {{21, 3, 1, 1}, {19, 3, 1, 1}}),                 // several parts of a gradient
      convolution_shape(2, 11, 11, 11, {{9, 3, 2, 1}, {7, 3, 2, 1}}),                // channels behind a vector
  };
}

inline std::string describe(const ConvolutionShape& s) {
  std::ostringstream out;
  out << s.batch << " x " << s.in_channels << " -> " << s.out_channels << ", groups " << s.groups;
  for (size_t d = 0; d < 3; ++d)
    out << "; " << s.in[d] << " -> " << s.out[d] << " kernel " << s.kernel[d] << " stride " << s.stride[d]
        << " padding " << s.padding[d] << " dilation " << s.dilation[d];
  return out.str();
}

inline Shape input_shape(const ConvolutionShape& s) { return {s.batch, s.in[0], s.in[1], s.in[2], s.in_channels}; }
inline Shape output_shape(const ConvolutionShape& s) { return {s.batch, s.out[0], s.out[1], s.out[2], s.out_channels}; }
inline Shape weight_shape(const ConvolutionShape& s) {
  return {s.out_channels, s.group_in(), s.kernel[0], s.kernel[1], s.kernel[2]};
}

/// Calls body(x, weight, y) with the indices of each product in the sum y[y] += x[x] * weight[weight].
template <class Body>
void for_each_product(const ConvolutionShape& s, const Body& body) {
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t o = 0; o < s.out_pixels(); ++o)
      for (int64_t k = 0; k < s.kernel_size(); ++k) {
        const int64_t at[] = {o / (s.out[1] * s.out[2]), o / s.out[2] % s.out[1], o % s.out[2]};
        const int64_t position[] = {k / (s.kernel[1] * s.kernel[2]), k / s.kernel[2] % s.kernel[1], k % s.kernel[2]};
        int64_t pixel = 0;
        bool inside = true;
        for (size_t d = 0; d < 3; ++d) {
          const int64_t place = at[d] * s.stride[d] - s.padding[d] + position[d] * s.dilation[d];
          inside = inside && place >= 0 && place < s.in[d];
          pixel = pixel * s.in[d] + place;
        }
        if (!inside) continue;
        for (int64_t c = 0; c < s.out_channels; ++c)
          for (int64_t i = 0; i < s.group_in(); ++i)
            body((n * s.in_pixels() + pixel) * s.in_channels + c / s.group_out() * s.group_in() + i,
                 (c * s.group_in() + i) * s.kernel_size() + k, (n * s.out_pixels() + o) * s.out_channels + c);
      }
}

}  // namespace tern::kernels
