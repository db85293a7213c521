// Resizing along an axis: a thread computes a few neighbouring elements of one output.

#include "tern/kernels/resample.h"

#include <algorithm>

#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/cuda/values.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // a thread then takes several items

template <class F>
__global__ void __launch_bounds__(kThreads)
    resample_table_kernel(TERN_GRID_CONSTANT(ResampleAxis) axis, int32_t* first, F* weights, int64_t taps) {
  const int64_t o = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (o >= axis.out) return;
  first[o] = static_cast<int32_t>(ResampleWeights<F>(axis, o, weights + o * taps).first);
}

/// The sizes of a call and its table.
template <class F>
struct Axis {
  int64_t in, out, inner, taps;
  const int32_t* first;
  const F* weights;
};

/// kTransposed: the inputs are those that `first` and `weights` have a row for.
template <bool kTransposed, class F, class X, class Y, int kWidth>
__global__ void __launch_bounds__(kThreads)
    resample_kernel(TERN_GRID_CONSTANT(Axis<F>) a, const X* x, Y* y, int64_t items) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads, chunks = a.inner / kWidth;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; item < items; item += step) {
    const int64_t o = item / chunks % a.out, outer = item / chunks / a.out, column = item % chunks * kWidth;
    const int64_t begin = kTransposed ? resample_after(a.first, a.in, o - a.taps) : a.first[o];
    const int64_t end = kTransposed ? resample_after(a.first, a.in, o) : begin + a.taps;
    F sums[kWidth] = {}, values[kWidth];
    for (int64_t i = begin; i < end; ++i) {
      const F weight = kTransposed ? a.weights[i * a.taps + o - a.first[i]] : a.weights[o * a.taps + i - begin];
      if (weight == F(0)) continue;
      load_values(x + (outer * a.in + i) * a.inner + column, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += weight * values[k];
    }
    store_values(y + item * kWidth, sums);
  }
}

template <bool kTransposed, class F, class X, class Y>
void launch_resample(Stream stream, const ConstView& x, const ConstView& first, const ConstView& weights,
                     const View& y) {
  const Axis<F> axis{x.shape[1], y.shape[1], x.shape[2], weights.shape[1], first.as<int32_t>(), weights.as<F>()};
  const auto run = [&]<int kWidth>() {
    const int64_t items = y.numel() / kWidth;
    const dim3 grid(static_cast<unsigned>(std::min(ceil_div(items, kThreads), kMaxBlocks)));
    launch(resample_kernel<kTransposed, F, X, Y, kWidth>, grid, dim3(kThreads), 0, stream, axis, x.as<X>(), y.as<Y>(),
           items);
  };
  constexpr int kWide = std::min(vector_width<X>, vector_width<Y>);
  if (axis.inner % kWide == 0 && aligned16(x.data) && aligned16(y.data)) return run.template operator()<kWide>();
  run.template operator()<1>();
}

/// For the dtypes of x, y and the weights.
template <bool kTransposed>
void dispatch_resample(Stream stream, const ConstView& x, const ConstView& first, const ConstView& weights,
                       const View& y) {
  if (y.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class X>() {
    using F = ComputeType<X>;
    if (y.dtype == dtype_of<X>()) return launch_resample<kTransposed, F, X, X>(stream, x, first, weights, y);
    if constexpr (std::is_same_v<X, float>) {
      dispatch_float(y.dtype, [&]<class Y>() {
        if constexpr (sizeof(Y) == 2) launch_resample<kTransposed, F, X, Y>(stream, x, first, weights, y);
      });
    } else if constexpr (sizeof(X) == 2) {
      launch_resample<kTransposed, F, X, F>(stream, x, first, weights, y);
    }
  });
}

}  // namespace

void resample_table(Stream stream, const ResampleAxis& axis, View first, View weights) {
  const dim3 grid(grid_blocks(ceil_div(axis.out, kThreads)));
  dispatch_float(weights.dtype, [&]<class F>() {
    if constexpr (std::is_same_v<ComputeType<F>, F>)
      launch(resample_table_kernel<F>, grid, dim3(kThreads), 0, stream, axis, first.as<int32_t>(), weights.as<F>(),
             weights.shape[1]);
  });
}

int64_t resample_workspace(Stream, ConstView, ConstView, ConstView, View) { return 0; }
void resample(Stream stream, ConstView x, ConstView first, ConstView weights, View y, void*) {
  dispatch_resample<false>(stream, x, first, weights, y);
}

int64_t resample_transposed_workspace(Stream, ConstView, ConstView, ConstView, View) { return 0; }
void resample_transposed(Stream stream, ConstView dy, ConstView first, ConstView weights, View dx, void*) {
  dispatch_resample<true>(stream, dy, first, weights, dx);
}

}  // namespace tern::kernels::cuda
