// Rotary embeddings: a thread computes the sines of a few neighbouring pairs and rotates these pairs in several heads.

#include "tern/kernels/rotary.h"

#include <algorithm>
#include <numbers>

#include "tern/kernels/cuda/values.h"
#include "tern/kernels/math/math.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 4;  // of a thread

struct RotaryCall {
  RotaryParams params;
  const void *x, *positions;
  void* y;
  bool wide_positions;  // int64
  int64_t tokens, heads, head_dim, token_stride, head_stride;
  IndexFault* fault;

  __device__ int64_t position(int64_t token) const {
    return wide_positions ? static_cast<const int64_t*>(positions)[token]
                          : static_cast<const int32_t*>(positions)[token];
  }
};

/// The place of a thread: kWidth pairs, or as many elements behind the rotated ones, of the heads first .. last - 1.
struct RotaryPlace {
  int64_t token, first, last, column;
  bool rotated;
  template <int kWidth>
  __device__ static RotaryPlace of(const RotaryCall& call, int64_t item, int64_t columns) {
    const int64_t groups = (call.heads + kHeads - 1) / kHeads, row = item / columns, chunk = item - row * columns;
    const int64_t token = row / groups, first = (row - token * groups) * kHeads;
    const int64_t pairs = call.params.pairs, column = chunk * kWidth;
    const int64_t last = first + kHeads < call.heads ? first + kHeads : call.heads;
    return {token, first, last, column < pairs ? column : column + pairs, column < pairs};
  }
};

/// The rotation of kWidth pairs from `first` on.
template <class F, int kWidth>
struct PairRotation {
  F cosines[kWidth], sines[kWidth];
  __device__ PairRotation(const RotaryParams& params, int64_t position, int64_t first) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const double turns = static_cast<double>(position) * params.turns[first + j];
      const F angle = static_cast<F>(2 * std::numbers::pi * (turns - rint(turns)));
      cosines[j] = math::cos(angle);
      sines[j] = params.inverse ? -math::sin(angle) : math::sin(angle);
    }
  }
  /// Two halves of kWidth elements each: the first and the second elements of the pairs or, interleaved, the pairs.
  __device__ void rotate(F (&x)[2][kWidth], bool interleaved) const {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      F& first = interleaved ? x[2 * j / kWidth][2 * j % kWidth] : x[0][j];
      F& second = interleaved ? x[(2 * j + 1) / kWidth][(2 * j + 1) % kWidth] : x[1][j];
      const F x0 = first, x1 = second;
      first = x0 * cosines[j] - x1 * sines[j];
      second = x0 * sines[j] + x1 * cosines[j];
    }
  }
};

/// The pairs and the elements behind them are multiples of kWidth, and so are strides and addresses.
template <class T, int kWidth, bool kInterleaved>
__global__ void __launch_bounds__(kThreads) rotary_kernel(TERN_GRID_CONSTANT(RotaryCall) call, int64_t columns) {
  using F = ComputeType<T>;
  const int64_t groups = (call.heads + kHeads - 1) / kHeads;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= call.tokens * groups * columns) return;
  const RotaryPlace place = RotaryPlace::of<kWidth>(call, item, columns);
  const int64_t position = call.position(place.token);
  const bool good = position >= 0;
  if (!good && place.first == 0 && item % columns == 0) call.fault->report(place.token);
  const T* x = static_cast<const T*>(call.x) + place.token * call.token_stride;
  T* y = static_cast<T*>(call.y) + place.token * call.heads * call.head_dim;
  if (!place.rotated) {
    for (int64_t h = place.first; h < place.last; ++h) {
      Vector<T, kWidth> value{};
      if (good) value = load_vector<kWidth>(x + h * call.head_stride + place.column);
      store_vector(y + h * call.head_dim + place.column, value);
    }
    return;
  }
  const PairRotation<F, kWidth> rotation(call.params, good ? position : 0, place.column);
  const int64_t begin = kInterleaved ? 2 * place.column : place.column;
  const int64_t distance = kInterleaved ? kWidth : call.params.pairs;
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    const int64_t h = place.first + i;
    if (h >= place.last) return;
    F values[2][kWidth] = {};
    if (good) {
      load_values(x + h * call.head_stride + begin, values[0]);
      load_values(x + h * call.head_stride + begin + distance, values[1]);
    }
    rotation.rotate(values, kInterleaved);
    store_values(y + h * call.head_dim + begin, values[0]);
    store_values(y + h * call.head_dim + begin + distance, values[1]);
  }
}

template <class T, int kWidth>
void launch_rotary(Stream stream, const RotaryCall& call) {
  const int64_t columns = (call.head_dim - call.params.pairs) / kWidth;
  const int64_t items = call.tokens * ((call.heads + kHeads - 1) / kHeads) * columns;
  const dim3 grid(grid_blocks((items + kThreads - 1) / kThreads));
  if (call.params.interleaved)
    launch(rotary_kernel<T, kWidth, true>, grid, dim3(kThreads), 0, stream, call, columns);
  else
    launch(rotary_kernel<T, kWidth, false>, grid, dim3(kThreads), 0, stream, call, columns);
}

}  // namespace

void rotary(Stream stream, const RotaryParams& params, ConstView x, ConstView positions, View y, IndexFault* fault) {
  if (y.numel() == 0) return;
  const RotaryCall call{.params = params,
                        .x = x.data,
                        .positions = positions.data,
                        .y = y.data,
                        .wide_positions = positions.dtype == DType::kInt64,
                        .tokens = x.shape[0],
                        .heads = x.shape[1],
                        .head_dim = x.shape[2],
                        .token_stride = x.strides[0],
                        .head_stride = x.strides[1],
                        .fault = fault};
  dispatch_float(x.dtype, [&]<class T>() {
    constexpr int kWidth = vector_width<T> < 4 ? vector_width<T> : 4;
    const auto fits = [](int64_t n) { return n % kWidth == 0; };
    if (aligned16(x.data) && aligned16(y.data) && fits(params.pairs) && fits(call.head_dim) &&
        fits(call.token_stride) && fits(call.head_stride))
      launch_rotary<T, kWidth>(stream, call);
    else
      launch_rotary<T, 1>(stream, call);
  });
}

}  // namespace tern::kernels::cuda
