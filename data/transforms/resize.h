#pragma once
// Resizing with torchvision's semantics.

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tern/core/tensor.h"
#include "tern/data/images/image.h"
#include "tern/kernels/image.h"

namespace tern::data {

enum class Interpolation : uint8_t { kBilinear, kBicubic };

struct ResizeOptions {
  Interpolation interpolation = Interpolation::kBilinear;
  bool antialias = true;  // widens the filter when downscaling
};

/// Keys' cubic convolution (IEEE Trans. ASSP 29, 1981), with PyTorch's rounding.
template <class F>
F cubic(F x, F a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// Filter weights of every output index of a resized dimension, `taps` weights each; unused ones are 0. F: int32_t
/// (kernels/image.h) or float. As in PyTorch: with antialias the filters of Pillow (bicubic with a = -0.5), clipped and
/// renormalised at the borders; without, bicubic has a = -0.75, and the border is repeated.
template <class F>
struct ResizeTable {
  std::vector<int32_t> first;  // [to]
  std::vector<F> weights;      // [to, taps]
  int32_t taps = 0;
};
template <class F>
ResizeTable<F> resize_table(int64_t from, int64_t to, const ResizeOptions& options);

/// To height x width. 3 channels, computed in bytes as PyTorch does on the CPU, whose weights have 16 bits: within 1 of
/// it, of kBicubic, where an error of the first pass can grow in the second, within 2. Throws Error if a size is not
/// positive.
Image resize(const Image& image, int64_t height, int64_t width, const ResizeOptions& options = {});
/// Resizes the shorter side to `size`, the other in proportion (rounded down).
Image resize_shorter(const Image& image, int64_t size, const ResizeOptions& options = {});
/// The size that resize_shorter gives: {height, width}.
std::pair<int64_t, int64_t> shorter_size(int64_t height, int64_t width, int64_t size);

/// float32 [..., H, W] on the CPU to [..., height, width]; within 1e-6 of PyTorch for values in 0..1.
Tensor resize(const Tensor& images, int64_t height, int64_t width, const ResizeOptions& options = {});

}  // namespace tern::data
