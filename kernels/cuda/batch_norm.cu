// Batch normalisation: column sums in two stages, and passes over memory by vectors of neighbouring channels.

#include "tern/kernels/batch_norm.h"

#include <algorithm>

#include "tern/kernels/cuda/support/column_parts.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // a thread then takes several items
constexpr int kAheadOfSums = 1;

/// BatchNormMap, with the numbers of one channel by operator().
template <class F>
struct Map {
  const F *mean, *scale, *shift;
  ImageActivation activation;
  explicit Map(const BatchNormMap& m)
      : mean(m.mean.as<F>()),
        scale(m.scale.as<F>()),
        shift(m.shift ? m.shift.as<F>() : nullptr),
        activation(m.activation) {}

  __device__ F centered(F x, int64_t c) const { return x - load_one(mean + c); }
  __device__ F affine(F centered, int64_t c) const {
    return centered * load_one(scale + c) + (shift == nullptr ? F(0) : load_one(shift + c));
  }
  __device__ F activate(F z) const {
    return with_image_activation(activation, [&](const auto& act) { return act.forward(z); });
  }
  __device__ F backward(F z, F dy) const {
    return with_image_activation(activation, [&](const auto& act) { return act.backward(z, dy); });
  }
};

/// The terms of one of the two sums of the backward pass. The first sum writes g as well.
template <class Element, bool kTimesInput>
struct BackwardTerms {
  using T = Element;
  using F = ComputeType<T>;
  static constexpr int kWidth = vector_width<T>;
  static constexpr int kAhead = kAheadOfSums;
  struct Raw {
    Vector<T, kWidth> dy, y, x;
  };
  const T *dy, *y, *x;
  Map<F> map;
  T* g;
  int64_t cols;

  __device__ bool reads_input() const {
    return kTimesInput || (y == nullptr && map.activation != ImageActivation::kNone);
  }
  __device__ Raw load(int64_t row, int64_t column) const {
    Raw raw{};
    raw.dy = load_columns(dy + row * cols, column, cols);
    if (y != nullptr) raw.y = load_columns(y + row * cols, column, cols);
    if (reads_input()) raw.x = load_columns(x + row * cols, column, cols);
    return raw;
  }
  __device__ Vector<F, kWidth> value(const Raw& raw, int64_t row, int64_t column) const {
    const Vector<F, kWidth> given = to_compute(raw.dy), result = to_compute(raw.y), input = to_compute(raw.x);
    Vector<F, kWidth> sum{};
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const int64_t c = column + k;
      if (c >= cols) break;
      const F centered = reads_input() ? map.centered(input.v[k], c) : F(0);
      const F z = y != nullptr ? result.v[k] : reads_input() ? map.affine(centered, c) : F(0);
      const F gradient = map.backward(z, given.v[k]);
      if (!kTimesInput && g != nullptr) store_one(g + row * cols + c, from_compute<T>(gradient));
      sum.v[k] = kTimesInput ? gradient * centered : gradient;
    }
    return sum;
  }
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    apply_kernel(const T* x, Map<ComputeType<T>> map, const T* residual, T* y, int64_t items, int64_t chunks) {
  using F = ComputeType<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const int64_t c = i % chunks * kWidth, at = i * kWidth;
    Vector<F, kWidth> value = to_compute(load_vector<kWidth>(x + at)), added{};
    if (residual != nullptr) added = to_compute(load_vector<kWidth>(residual + at));
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      value.v[k] = map.activate(map.affine(map.centered(value.v[k], c + k), c + k) + added.v[k]);
    store_vector(y + at, from_compute<T>(value));
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    backward_apply_kernel(const T* dy, const T* x, Map<ComputeType<T>> map, const ComputeType<T>* offset,
                          const ComputeType<T>* slope, T* dx, int64_t items, int64_t chunks) {
  using F = ComputeType<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const bool reads_input = slope != nullptr || map.activation != ImageActivation::kNone;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < items; i += step) {
    const int64_t c = i % chunks * kWidth, at = i * kWidth;
    const Vector<F, kWidth> given = to_compute(load_vector<kWidth>(dy + at));
    Vector<F, kWidth> value{}, result;
    if (reads_input) value = to_compute(load_vector<kWidth>(x + at));
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const F centered = reads_input ? map.centered(value.v[k], c + k) : F(0);
      const F z = map.activation != ImageActivation::kNone ? map.affine(centered, c + k) : F(0);
      result.v[k] = load_one(map.scale + c + k) * map.backward(z, given.v[k]);
      if (slope != nullptr) result.v[k] += load_one(offset + c + k) + load_one(slope + c + k) * centered;
    }
    store_vector(dx + at, from_compute<T>(result));
  }
}

dim3 grid_of(int64_t items) {
  return dim3(static_cast<unsigned>(std::min((items + kThreads - 1) / kThreads, kMaxBlocks)));
}

/// run<T, kWidth>() with the widest accesses that the number of channels and the addresses allow. Null is aligned.
template <class Run>
void dispatch(DType dtype, int64_t channels, std::initializer_list<const void*> pointers, const Run& run) {
  dispatch_float(dtype, [&]<class T>() {
    constexpr int kWide = vector_width<T>;
    const bool aligned = std::all_of(pointers.begin(), pointers.end(), [](const void* p) { return aligned16(p); });
    if (aligned && channels % kWide == 0) return run.template operator()<T, kWide>();
    run.template operator()<T, 1>();
  });
}

}  // namespace

int64_t batch_norm_workspace(Stream stream, int64_t rows, int64_t channels, DType dtype) {
  const int64_t sizes[] = {rows, channels}, steps[] = {channels, 1}, one[] = {1, channels};
  const DType wide = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const ConstView x(nullptr, dtype, 2, sizes, steps);
  const int64_t statistics = reduce_workspace(stream, x, 1, View(nullptr, wide, 2, one, steps));
  int64_t sums = 0;
  dispatch_float(dtype, [&]<class T>() {
    sums = choose_column_cut<T>(rows, channels, kAheadOfSums).template workspace_bytes<T>(channels);
  });
  return std::max(statistics, sums);
}

void batch_norm_statistics(Stream stream, ConstView x, View mean, View squares, void* workspace) {
  const int64_t one[] = {1, x.shape[1]}, steps[] = {x.shape[1], 1};
  reduce(stream, Reduction::kMean, x, 1, workspace, View(mean.data, mean.dtype, 2, one, steps));
  reduce(stream, Reduction::kDeviations, x, 1, workspace, View(squares.data, squares.dtype, 2, one, steps));
}

void batch_norm_apply(Stream stream, ConstView x, const BatchNormMap& map, ConstView residual, View y) {
  if (x.numel() == 0) return;
  dispatch(x.dtype, x.shape[1], {x.data, residual.data, y.data}, [&]<class T, int kWidth>() {
    const int64_t items = x.numel() / kWidth;
    launch(apply_kernel<T, kWidth>, grid_of(items), dim3(kThreads), 0, stream, x.as<T>(), Map<ComputeType<T>>(map),
           residual ? residual.as<T>() : nullptr, y.as<T>(), items, x.shape[1] / kWidth);
  });
}

void batch_norm_backward_sums(Stream stream, ConstView dy, ConstView y, ConstView x, const BatchNormMap& map, View sums,
                              View g, void* workspace) {
  const int64_t rows = x.shape[0], channels = x.shape[1];
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    const Map<F> m(map);
    const T* const result = y ? y.as<T>() : nullptr;
    View row = sums;
    row.data = sums.as<F>() + channels;
    const BackwardTerms<T, true> product{dy.as<T>(), result, x.as<T>(), m, nullptr, channels};
    sum_columns(stream, product, rows, channels, false, workspace, row);
    row.data = sums.data;
    const BackwardTerms<T, false> plain{dy.as<T>(), result, x.as<T>(), m, g ? g.as<T>() : nullptr, channels};
    sum_columns(stream, plain, rows, channels, false, workspace, row);
  });
}

void batch_norm_backward_apply(Stream stream, ConstView dy, ConstView x, const BatchNormMap& map, ConstView offset,
                               ConstView slope, View dx) {
  if (dx.numel() == 0) return;
  dispatch(dx.dtype, dx.shape[1], {dy.data, x.data, dx.data}, [&]<class T, int kWidth>() {
    using F = ComputeType<T>;
    const int64_t items = dx.numel() / kWidth;
    launch(backward_apply_kernel<T, kWidth>, grid_of(items), dim3(kThreads), 0, stream, dy.as<T>(),
           x ? x.as<T>() : nullptr, Map<F>(map), offset ? offset.as<F>() : nullptr, slope ? slope.as<F>() : nullptr,
           dx.as<T>(), items, dx.shape[1] / kWidth);
  });
}

}  // namespace tern::kernels::cuda
