// The copies between images and the columns of their convolution: each moves an element once, by 16 bytes at a time
// where channels allow it.

#include "tern/kernels/convolution/convolution.h"

#include <algorithm>

#include "tern/kernels/cuda/support/convert.h"
#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/support/vector.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // a thread then takes several items

/// Place of a pixel in three dimensions.
struct Pixel {
  int64_t at[3];
  __device__ static Pixel of(int64_t index, const std::array<int64_t, 3>& size) {
    const int64_t plane = size[1] * size[2], rest = index % plane;
    return {{index / plane, rest / size[2], rest % size[2]}};
  }
};

/// The input pixel that output pixel `out` reads for position k of the kernel; -1 outside of the image.
__device__ inline int64_t input_pixel(const ConvolutionShape& s, const Pixel& out, const Pixel& k) {
  int64_t index = 0;
  bool inside = true;
  for (int d = 0; d < 3; ++d) {
    const int64_t place = out.at[d] * s.stride[d] - s.padding[d] + k.at[d] * s.dilation[d];
    inside = inside && place >= 0 && place < s.in[d];
    index = index * s.in[d] + place;
  }
  return inside ? index : -1;
}

/// The output pixel that reads input pixel `in` for position k; -1 if none does.
__device__ inline int64_t output_pixel(const ConvolutionShape& s, const Pixel& in, const Pixel& k) {
  int64_t index = 0;
  bool found = true;
  for (int d = 0; d < 3; ++d) {
    const int64_t scaled = in.at[d] + s.padding[d] - k.at[d] * s.dilation[d], place = scaled / s.stride[d];
    found = found && scaled >= 0 && scaled % s.stride[d] == 0 && place < s.out[d];
    index = index * s.out[d] + place;
  }
  return found ? index : -1;
}

/// Each thread copies kWidth channels of one column.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    images_to_columns_kernel(TERN_GRID_CONSTANT(ConvolutionShape) s, const T* x, T* columns, int64_t items) {
  const int64_t chunks = s.group_in() / kWidth, positions = s.kernel_size(), pixels = s.out_pixels();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const int64_t c = i % chunks, k = i / chunks % positions, g = i / (chunks * positions) % s.groups;
    const int64_t pixel = i / (chunks * positions * s.groups), image = pixel / pixels;
    const int64_t from = input_pixel(s, Pixel::of(pixel % pixels, s.out), Pixel::of(k, s.kernel));
    Vector<T, kWidth> value{};
    if (from >= 0)
      value = load_vector<kWidth>(x + (image * s.in_pixels() + from) * s.in_channels + g * s.group_in() + c * kWidth);
    store_vector(columns + i * kWidth, value);
  }
}

/// Each thread sums kWidth channels of one input pixel.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    columns_to_images_kernel(TERN_GRID_CONSTANT(ConvolutionShape) s, const T* columns, T* dx, int64_t items) {
  using F = ComputeType<T>;
  const int64_t chunks = s.group_in() / kWidth, positions = s.kernel_size(), pixels = s.in_pixels();
  const int64_t row = s.groups * positions * s.group_in(), step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const int64_t c = i % chunks, g = i / chunks % s.groups, pixel = i / (chunks * s.groups), image = pixel / pixels;
    const Pixel in = Pixel::of(pixel % pixels, s.in);
    Vector<F, kWidth> sums{};
    for (int64_t k = 0; k < positions; ++k) {
      const int64_t out = output_pixel(s, in, Pixel::of(k, s.kernel));
      if (out < 0) continue;
      const T* from = columns + (image * s.out_pixels() + out) * row + (g * positions + k) * s.group_in() + c * kWidth;
      const Vector<F, kWidth> value = to_compute(load_vector<kWidth>(from));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums.v[j] += value.v[j];
    }
    store_vector(dx + i * kWidth, from_compute<T>(sums));
  }
}

dim3 grid_of(int64_t items) {
  return dim3(static_cast<unsigned>(std::min((items + kThreads - 1) / kThreads, kMaxBlocks)));
}

/// run<kWidth>() with the widest accesses that channels and addresses allow.
template <class T, class Run>
void with_width(const ConvolutionShape& s, const void* a, const void* b, const Run& run) {
  constexpr int kWide = vector_width<T>;
  if (s.group_in() % kWide == 0 && aligned16(a) && aligned16(b)) return run.template operator()<kWide>();
  run.template operator()<1>();
}

}  // namespace

void images_to_columns(Stream stream, const ConvolutionShape& shape, ConstView x, View columns) {
  if (columns.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    with_width<T>(shape, x.data, columns.data, [&]<int kWidth>() {
      const int64_t items = columns.numel() / kWidth;
      launch(images_to_columns_kernel<T, kWidth>, grid_of(items), dim3(kThreads), 0, stream, shape, x.as<T>(),
             columns.as<T>(), items);
    });
  });
}

void columns_to_images(Stream stream, const ConvolutionShape& shape, ConstView columns, View dx) {
  if (dx.numel() == 0) return;
  dispatch_float(dx.dtype, [&]<class T>() {
    with_width<T>(shape, columns.data, dx.data, [&]<int kWidth>() {
      const int64_t items = dx.numel() / kWidth;
      launch(columns_to_images_kernel<T, kWidth>, grid_of(items), dim3(kThreads), 0, stream, shape, columns.as<T>(),
             dx.as<T>(), items);
    });
  });
}

}  // namespace tern::kernels::cuda
