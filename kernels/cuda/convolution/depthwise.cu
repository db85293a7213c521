// Depthwise convolutions of images with their channels last.

#include "tern/kernels/cuda/convolution/depthwise.h"

#include <algorithm>
#include <bit>

#include "tern/kernels/copy.h"
#include "tern/kernels/cuda/support/convert.h"
#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/cuda/support/vector.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // a thread then takes several items
constexpr int kPositions = 9;            // of the kernel, whose gradients a thread sums at a time
constexpr int64_t kPixelsOfPart = 512, kMaxParts = 256;

/// Neighbouring pixels of a row that a thread computes: of fp64 fewer, which take more registers.
template <class T>
constexpr int kStripOf = sizeof(T) == 8 ? 2 : 4;

/// Channels of a thread when it sums a weight's gradient: of fp32 those of a 16-byte access, of 16 bits as many, since
/// more would take too many registers.
template <class T>
constexpr int kWeightWidth = std::min(4, vector_width<T>);

/// Parts of the pixels whose sums are added afterwards. A function of the shape alone.
int64_t parts_of(const ConvolutionShape& s) {
  return std::clamp<int64_t>(s.batch * s.out_pixels() / kPixelsOfPart, 1, kMaxParts);
}

/// N values, by accesses of 16 bytes where that is less than all.
template <int N, class F>
__device__ Vector<F, N> load_wide(const F* from) {
  constexpr int kPiece = std::min(N, vector_width<F>);
  Vector<F, N> result;
#pragma unroll
  for (int i = 0; i < N; i += kPiece) {
    const Vector<F, kPiece> piece = load_readonly<kPiece>(from + i);
#pragma unroll
    for (int j = 0; j < kPiece; ++j) result.v[i + j] = piece.v[j];
  }
  return result;
}

/// The place that a result reads along a dimension of `size` for position k of the kernel, or -1. kBack: the result is
/// the gradient of the input, which reads that of the output.
template <bool kBack>
__device__ int64_t source(const ConvolutionShape& s, int d, int64_t place, int64_t k, int64_t size) {
  if constexpr (kBack) {
    const int64_t scaled = place + s.padding[d] - k * s.dilation[d], found = scaled / s.stride[d];
    return scaled >= 0 && scaled == found * s.stride[d] && found < size ? found : -1;
  } else {
    const int64_t found = place * s.stride[d] - s.padding[d] + k * s.dilation[d];
    return found >= 0 && found < size ? found : -1;
  }
}

/// A thread's result: a strip of pixels of a row, kWidth channels. weight: [kernel, channels]. The bias may be absent.
template <class T, int kWidth, bool kBack>
__global__ void __launch_bounds__(kThreads)
    depthwise_kernel(TERN_GRID_CONSTANT(ConvolutionShape) s, const T* x, const ComputeType<T>* weight,
                     const ComputeType<T>* bias, T* y, int64_t items) {
  using F = ComputeType<T>;
  constexpr int kStrip = kStripOf<T>;
  const std::array<int64_t, 3>&from = kBack ? s.out : s.in, &to = kBack ? s.in : s.out;
  const int64_t chunks = s.groups / kWidth, strips = (to[2] + kStrip - 1) / kStrip;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const int64_t channel = i % chunks * kWidth, first = i / chunks % strips * kStrip, row = i / (chunks * strips);
    const int64_t h = row % to[1], d = row / to[1] % to[0], image = row / (to[1] * to[0]);
    Vector<F, kWidth> sums[kStrip] = {};
    if (bias) {
#pragma unroll
      for (int p = 0; p < kStrip; ++p) sums[p] = load_wide<kWidth>(bias + channel);
    }
    int64_t k = 0;
    for (int64_t a = 0; a < s.kernel[0]; ++a) {
      const int64_t depth = source<kBack>(s, 0, d, a, from[0]);
      for (int64_t b = 0; b < s.kernel[1]; ++b) {
        const int64_t height = source<kBack>(s, 1, h, b, from[1]);
        const T* const line = x + ((image * from[0] + depth) * from[1] + height) * from[2] * s.groups + channel;
        for (int64_t c = 0; c < s.kernel[2]; ++c, ++k) {
          if (depth < 0 || height < 0) continue;
          const Vector<F, kWidth> factor = load_wide<kWidth>(weight + k * s.groups + channel);
#pragma unroll
          for (int p = 0; p < kStrip; ++p) {
            const int64_t place = source<kBack>(s, 2, first + p, c, from[2]);
            if (place < 0 || first + p >= to[2]) continue;
            const Vector<F, kWidth> value = to_compute(load_readonly<kWidth>(line + place * s.groups));
#pragma unroll
            for (int j = 0; j < kWidth; ++j) sums[p].v[j] += value.v[j] * factor.v[j];
          }
        }
      }
    }
#pragma unroll
    for (int p = 0; p < kStrip; ++p)
      if (first + p < to[2]) store_vector(y + (row * to[2] + first + p) * s.groups + channel, from_compute<T>(sums[p]));
  }
}

/// Sums of dy times x for kPositions positions of the kernel over a part of the pixels: partial[part, kernel,
/// channels]. A block has `lanes` threads side by side for neighbouring channels, and the others for pixels, whose sums
/// it adds in order. Grid: channels, positions, parts.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) depthwise_weight_kernel(TERN_GRID_CONSTANT(ConvolutionShape) s, const T* dy,
                                                                    const T* x, ComputeType<T>* partial, int lanes) {
  using F = ComputeType<T>;
  TERN_SHARED(int64_t, reach, [kPositions][3]);
  TERN_SHARED(F, shared, [kThreads * kWidth]);
  const int64_t positions = s.kernel_size(), begin = static_cast<int64_t>(blockIdx.y) * kPositions;
  if (threadIdx.x < kPositions) {
    const int64_t k = begin + threadIdx.x;
    reach[threadIdx.x][0] = k / (s.kernel[1] * s.kernel[2]) * s.dilation[0];
    reach[threadIdx.x][1] = k / s.kernel[2] % s.kernel[1] * s.dilation[1];
    reach[threadIdx.x][2] = k % s.kernel[2] * s.dilation[2];
  }
  block_barrier();
  const int lane = static_cast<int>(threadIdx.x) % lanes, row = static_cast<int>(threadIdx.x) / lanes;
  const int rows = kThreads / lanes;
  const int64_t channel = (static_cast<int64_t>(blockIdx.x) * lanes + lane) * kWidth;
  const int64_t pixels = s.out_pixels(), all = s.batch * pixels;
  const int64_t of_part = (all + gridDim.z - 1) / gridDim.z, start = blockIdx.z * of_part;
  const int64_t end = start + of_part < all ? start + of_part : all;
  Vector<F, kWidth> sums[kPositions] = {};
  for (int64_t i = start + row; i < end && channel < s.groups; i += rows) {
    const int64_t place[] = {i % pixels / (s.out[1] * s.out[2]) * s.stride[0] - s.padding[0],
                             i / s.out[2] % s.out[1] * s.stride[1] - s.padding[1],
                             i % s.out[2] * s.stride[2] - s.padding[2]};
    const Vector<F, kWidth> gradient = to_compute(load_readonly<kWidth>(dy + i * s.groups + channel));
    const T* const image = x + i / pixels * s.in_pixels() * s.groups + channel;
#pragma unroll
    for (int j = 0; j < kPositions; ++j) {
      const int64_t d = place[0] + reach[j][0], h = place[1] + reach[j][1], w = place[2] + reach[j][2];
      const bool inside = d >= 0 && d < s.in[0] && h >= 0 && h < s.in[1] && w >= 0 && w < s.in[2];
      if (!inside || begin + j >= positions) continue;
      const Vector<F, kWidth> value =
          to_compute(load_readonly<kWidth>(image + ((d * s.in[1] + h) * s.in[2] + w) * s.groups));
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[j].v[k] += gradient.v[k] * value.v[k];
    }
  }
#pragma unroll
  for (int j = 0; j < kPositions; ++j) {
    F* const mine = shared + threadIdx.x * kWidth;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) mine[k] = sums[j].v[k];
    block_barrier();
    for (int half = rows / 2; half > 0; half /= 2) {
      if (row < half) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) mine[k] += mine[half * lanes * kWidth + k];
      }
      block_barrier();
    }
    if (row == 0 && channel < s.groups && begin + j < positions) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        store_one(partial + (blockIdx.z * positions + begin + j) * s.groups + channel + k, mine[k]);
    }
    block_barrier();
  }
}

/// dweight [channels, kernel] = the parts' sums, added in order. Out is T or its compute type.
template <class F, class Out>
__global__ void __launch_bounds__(kThreads)
    depthwise_sum_kernel(const F* partial, int64_t parts, int64_t positions, int64_t channels, Out* dweight) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, size = positions * channels;
  if (i >= size) return;
  F sum = 0;
  for (int64_t p = 0; p < parts; ++p) sum += load_one(partial + p * size + i);
  store_one(dweight + i % channels * positions + i / channels, static_cast<Out>(sum));
}

/// run<kWidth>() with the widest accesses up to kWide that channels and addresses allow.
template <int kWide, class Run>
void with_width(const ConvolutionShape& s, const void* a, const void* b, const Run& run) {
  if (s.groups % kWide == 0 && aligned16(a) && aligned16(b)) return run.template operator()<kWide>();
  run.template operator()<1>();
}

/// The weight as [kernel, channels] and the bias, if there is one, in the compute type; they are behind each other.
template <class F>
struct Factors {
  F *weight, *bias;
  Factors(Stream stream, const ConvolutionShape& s, ConstView given, ConstView given_bias, void* memory)
      : weight(static_cast<F*>(memory)), bias(given_bias ? weight + s.kernel_size() * s.groups : nullptr) {
    const int64_t sizes[] = {s.kernel_size(), s.groups}, turned[] = {1, s.kernel_size()}, rows[] = {s.groups, 1};
    copy(stream, ConstView(given.data, given.dtype, 2, sizes, turned), View(weight, dtype_of<F>(), 2, sizes, rows));
    if (bias) copy(stream, given_bias, make_view(bias, s.groups));
  }
};

template <bool kBack>
void convolve(Stream stream, const ConvolutionShape& s, ConstView x, ConstView weight, ConstView bias, View y,
              void* workspace) {
  dispatch_float(x.dtype, [&]<class T>() {
    const Factors<ComputeType<T>> factors(stream, s, weight, bias, workspace);
    const std::array<int64_t, 3>& to = kBack ? s.in : s.out;
    with_width<vector_width<T>>(s, x.data, y.data, [&]<int kWidth>() {
      const int64_t items = s.batch * to[0] * to[1] * ceil_div(to[2], kStripOf<T>) * (s.groups / kWidth);
      const dim3 grid(static_cast<unsigned>(std::min(ceil_div(items, kThreads), kMaxBlocks)));
      launch(depthwise_kernel<T, kWidth, kBack>, grid, dim3(kThreads), 0, stream, s, x.as<T>(),
             static_cast<const ComputeType<T>*>(factors.weight), static_cast<const ComputeType<T>*>(factors.bias),
             y.as<T>(), items);
    });
  });
}

}  // namespace

int64_t depthwise_workspace(const ConvolutionShape& shape, DType dtype) {
  const int64_t rows = std::max(shape.kernel_size() + 1, parts_of(shape) * shape.kernel_size());
  return rows * shape.groups * (dtype == DType::kFloat64 ? 8 : 4);
}

void depthwise_forward(Stream stream, const ConvolutionShape& shape, ConstView x, ConstView weight, ConstView bias,
                       View y, void* workspace) {
  convolve<false>(stream, shape, x, weight, bias, y, workspace);
}

void depthwise_backward_input(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView weight, View dx,
                              void* workspace) {
  convolve<true>(stream, shape, dy, weight, {}, dx, workspace);
}

void depthwise_backward_weight(Stream stream, const ConvolutionShape& shape, ConstView dy, ConstView x, View dweight,
                               void* workspace) {
  const int64_t positions = shape.kernel_size(), channels = shape.groups, parts = parts_of(shape);
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* const partial = static_cast<F*>(workspace);
    with_width<kWeightWidth<T>>(shape, dy.data, x.data, [&]<int kWidth>() {
      const int64_t chunks = channels / kWidth;
      const auto lanes = static_cast<int>(std::min<uint64_t>(kWarpSize, std::bit_ceil(static_cast<uint64_t>(chunks))));
      const dim3 grid(grid_blocks(ceil_div(chunks, lanes)), static_cast<unsigned>(ceil_div(positions, kPositions)),
                      static_cast<unsigned>(parts));
      launch(depthwise_weight_kernel<T, kWidth>, grid, dim3(kThreads), 0, stream, shape, dy.as<T>(), x.as<T>(), partial,
             lanes);
    });
    const auto sum = [&]<class Out>(Out* to) {
      launch(depthwise_sum_kernel<F, Out>, dim3(grid_blocks(ceil_div(positions * channels, kThreads))), dim3(kThreads),
             0, stream, static_cast<const F*>(partial), parts, positions, channels, to);
    };
    if (dweight.dtype == x.dtype)
      sum(dweight.as<T>());
    else
      sum(dweight.as<F>());
  });
}

}  // namespace tern::kernels::cuda
