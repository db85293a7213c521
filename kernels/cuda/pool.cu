// Pooling: a thread computes the windows of one pixel for a few neighbouring channels.

#include "tern/kernels/pool.h"

#include <algorithm>
#include <limits>

#include "tern/kernels/cuda/support/convert.h"
#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/support/vector.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // a thread then takes several items

/// Item i of a thread: image, pixel and first channel.
struct Item {
  int64_t image, pixel, channel;
  __device__ Item(int64_t i, int64_t pixels, int64_t chunks, int width)
      : image(i / chunks / pixels), pixel(i / chunks % pixels), channel(i % chunks * width) {}
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(TERN_GRID_CONSTANT(PoolShape) s, const T* x, T* y, int64_t* index, int64_t items) {
  using F = ComputeType<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const Item item(i, s.out_pixels(), s.channels / kWidth, kWidth);
    const T* from = x + item.image * s.in_pixels() * s.channels + item.channel;
    Vector<F, kWidth> best;
    Vector<int64_t, kWidth> place;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      best.v[k] = -std::numeric_limits<F>::infinity();
      place.v[k] = kNoPlace;
    }
    bool first = true;
    PoolPlace(item.pixel, s.out).inputs(s).for_each(s.in, [&](int64_t pixel) {
      const Vector<F, kWidth> value = to_compute(load_vector<kWidth>(from + pixel * s.channels));
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const bool wins = first || value.v[k] > best.v[k] || value.v[k] != value.v[k];
        best.v[k] = wins ? value.v[k] : best.v[k];
        place.v[k] = wins ? pixel : place.v[k];
      }
      first = false;
    });
    store_vector(y + i * kWidth, from_compute<T>(best));
    if (index == nullptr) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) index[i * kWidth + k] = place.v[k];
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    max_pool_backward_kernel(TERN_GRID_CONSTANT(PoolShape) s, const T* dy, const int64_t* index, T* dx, int64_t items) {
  using F = ComputeType<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const Item item(i, s.in_pixels(), s.channels / kWidth, kWidth);
    const int64_t image = item.image * s.out_pixels() * s.channels + item.channel;
    Vector<F, kWidth> sums{};
    PoolPlace(item.pixel, s.in).outputs(s).for_each(s.out, [&](int64_t out) {
      const Vector<F, kWidth> gradient = to_compute(load_vector<kWidth>(dy + image + out * s.channels));
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        sums.v[k] += index[image + out * s.channels + k] == item.pixel ? gradient.v[k] : F(0);
    });
    store_vector(dx + i * kWidth, from_compute<T>(sums));
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    mean_pool_kernel(TERN_GRID_CONSTANT(PoolShape) s, PoolDivisor divisor, const T* x, T* y, int64_t items) {
  using F = ComputeType<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const Item item(i, s.out_pixels(), s.channels / kWidth, kWidth);
    const T* from = x + item.image * s.in_pixels() * s.channels + item.channel;
    const PoolPlace out(item.pixel, s.out);
    const F size = static_cast<F>(pool_divisor(s, divisor, out.at));
    Vector<F, kWidth> sums{};
    out.inputs(s).for_each(s.in, [&](int64_t pixel) {
      const Vector<F, kWidth> value = to_compute(load_vector<kWidth>(from + pixel * s.channels));
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums.v[k] += value.v[k];
    });
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums.v[k] /= size;
    store_vector(y + i * kWidth, from_compute<T>(sums));
  }
}

/// With one block per multiprocessor as the minimum, since ptxas would otherwise spill registers for eight channels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 1)
    mean_pool_backward_kernel(TERN_GRID_CONSTANT(PoolShape) s, PoolDivisor divisor, const T* dy, T* dx, int64_t items) {
  using F = ComputeType<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const Item item(i, s.in_pixels(), s.channels / kWidth, kWidth);
    const T* from = dy + item.image * s.out_pixels() * s.channels + item.channel;
    const PoolPlace in(item.pixel, s.in);
    Vector<F, kWidth> sums{};
    in.outputs(s).for_each(s.out, [&](int64_t pixel) {
      const PoolPlace out(pixel, s.out);
      if (!out.reads(s, in)) return;
      const F size = static_cast<F>(pool_divisor(s, divisor, out.at));
      const Vector<F, kWidth> gradient = to_compute(load_vector<kWidth>(from + pixel * s.channels));
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums.v[k] += gradient.v[k] / size;
    });
    store_vector(dx + i * kWidth, from_compute<T>(sums));
  }
}

dim3 grid_of(int64_t items) {
  return dim3(static_cast<unsigned>(std::min((items + kThreads - 1) / kThreads, kMaxBlocks)));
}

/// run<T, kWidth>() with the widest accesses that channels and addresses allow.
template <class Run>
void dispatch(const PoolShape& s, DType dtype, const void* a, const void* b, const Run& run) {
  dispatch_float(dtype, [&]<class T>() {
    constexpr int kWide = vector_width<T>;
    if (s.channels % kWide == 0 && aligned16(a) && aligned16(b)) return run.template operator()<T, kWide>();
    run.template operator()<T, 1>();
  });
}

}  // namespace

void max_pool(Stream stream, const PoolShape& s, ConstView x, View y, View index) {
  if (y.numel() == 0) return;
  dispatch(s, x.dtype, x.data, y.data, [&]<class T, int kWidth>() {
    const int64_t items = y.numel() / kWidth;
    launch(max_pool_kernel<T, kWidth>, grid_of(items), dim3(kThreads), 0, stream, s, x.as<T>(), y.as<T>(),
           index ? index.as<int64_t>() : nullptr, items);
  });
}

void max_pool_backward(Stream stream, const PoolShape& s, ConstView dy, ConstView index, View dx) {
  if (dx.numel() == 0) return;
  dispatch(s, dx.dtype, dy.data, dx.data, [&]<class T, int kWidth>() {
    const int64_t items = dx.numel() / kWidth;
    launch(max_pool_backward_kernel<T, kWidth>, grid_of(items), dim3(kThreads), 0, stream, s, dy.as<T>(),
           index.as<int64_t>(), dx.as<T>(), items);
  });
}

void mean_pool(Stream stream, const PoolShape& s, PoolDivisor divisor, ConstView x, View y) {
  if (y.numel() == 0) return;
  dispatch(s, x.dtype, x.data, y.data, [&]<class T, int kWidth>() {
    const int64_t items = y.numel() / kWidth;
    launch(mean_pool_kernel<T, kWidth>, grid_of(items), dim3(kThreads), 0, stream, s, divisor, x.as<T>(), y.as<T>(),
           items);
  });
}

void mean_pool_backward(Stream stream, const PoolShape& s, PoolDivisor divisor, ConstView dy, View dx) {
  if (dx.numel() == 0) return;
  dispatch(s, dx.dtype, dy.data, dx.data, [&]<class T, int kWidth>() {
    const int64_t items = dx.numel() / kWidth;
    launch(mean_pool_backward_kernel<T, kWidth>, grid_of(items), dim3(kThreads), 0, stream, s, divisor, dy.as<T>(),
           dx.as<T>(), items);
  });
}

}  // namespace tern::kernels::cuda
