// Batch normalisation: column sums in two stages, and passes over memory by vectors of neighbouring channels. A thread
// keeps its channels, whose numbers it has in registers, and goes through rows.

#include "tern/kernels/batch_norm.h"

#include <algorithm>

#include "tern/kernels/cuda/support/column_parts.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 2;  // rows that a thread loads at a time

/// BatchNormMap.
template <class F>
struct Map {
  const F *mean, *scale, *shift;
  ImageActivation activation;
  explicit Map(const BatchNormMap& m)
      : mean(m.mean.as<F>()),
        scale(m.scale.as<F>()),
        shift(m.shift ? m.shift.as<F>() : nullptr),
        activation(m.activation) {}
};

/// Numbers of the channels from `channel` on; 0 for those that do not exist, and if there are none.
template <int kWidth, class F>
__device__ Vector<F, kWidth> numbers_of(const F* numbers, int64_t channel, int64_t channels) {
  Vector<F, kWidth> result{};
  if (numbers == nullptr) return result;
#pragma unroll
  for (int k = 0; k < kWidth; ++k)
    if (channel + k < channels) result.v[k] = load_one(numbers + channel + k);
  return result;
}

/// The map of a thread's channels.
template <class F, int kWidth>
struct ChannelMap {
  Vector<F, kWidth> mean, scale, shift;
  ImageActivation activation;
  __device__ ChannelMap(const Map<F>& map, int64_t channel, int64_t channels)
      : mean(numbers_of<kWidth>(map.mean, channel, channels)),
        scale(numbers_of<kWidth>(map.scale, channel, channels)),
        shift(numbers_of<kWidth>(map.shift, channel, channels)),
        activation(map.activation) {}

  __device__ F centered(F x, int k) const { return x - mean.v[k]; }
  __device__ F affine(F centered, int k) const { return centered * scale.v[k] + shift.v[k]; }
  __device__ F activate(F z) const {
    return with_image_activation(activation, [&](const auto& act) { return act.forward(z); });
  }
  __device__ F backward(F z, F dy) const {
    return with_image_activation(activation, [&](const auto& act) { return act.backward(z, dy); });
  }
};

// --- column sums ---------------------------------------------------------------------------------------------------

/// The rows and the columns of a thread of a first stage, by ColumnCut. column_parts_kernel computes them for itself:
/// with this struct it takes more registers than it has.
struct PartOfThread {
  int lane, height;
  int64_t column, first, end;
  __device__ PartOfThread(const ColumnCut& cut, int64_t rows, int width) {
    const int thread = static_cast<int>(threadIdx.x);
    lane = thread % cut.lanes;
    height = kRowThreads / cut.lanes;
    column = (static_cast<int64_t>(blockIdx.x) * cut.lanes + lane) * width;
    const int64_t begin = static_cast<int64_t>(blockIdx.y) * cut.rows_of_part;
    first = begin + thread / cut.lanes;
    end = begin + cut.rows_of_part < rows ? begin + cut.rows_of_part : rows;
  }
};

/// A mean of `count` values and the sum of their squared differences from it.
template <class F>
struct Moments {
  F count, mean, squares;
  /// Those of both sets (Chan, Golub & LeVeque, 1979).
  __device__ void join(F other_count, F other_mean, F other_squares) {
    const F total = count + other_count;
    if (total == 0) return;
    const F apart = other_mean - mean, share = other_count / total;
    mean += apart * share;
    squares += other_squares + apart * apart * (count * share);
    count = total;
  }
};

/// Statistics of the rows of each part: parts[0] the means, parts[1] the squares, [parts, cols] each. A thread adds
/// differences from the mean of its first rows, so that no digits are lost where the mean is large.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    moments_kernel(const T* x, int64_t rows, int64_t cols, const ColumnCut cut, ComputeType<T>* parts) {
  using F = ComputeType<T>;
  constexpr int kWidth = vector_width<T>;
  TERN_SHARED(F, means, [kRowThreads][kWidth]);
  TERN_SHARED(F, squares, [kRowThreads][kWidth]);
  TERN_SHARED(F, counts, [kRowThreads]);
  const int thread = static_cast<int>(threadIdx.x);
  const PartOfThread own(cut, rows, kWidth);
  const bool inside = own.column < cols;
  Vector<F, kWidth> base{}, sum{}, sum_of_squares{};
  F count = 0;
  int64_t row = own.first;
  while (inside && row < own.end) {
    Vector<F, kWidth> run{}, run_of_squares{};
    for (int done = 0; done < kRunRows && row < own.end; done += kAhead, row += kAhead * own.height) {
      Vector<T, kWidth> raw[kAhead] = {};
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        if (row + a * own.height < own.end) raw[a] = load_columns(x + (row + a * own.height) * cols, own.column, cols);
      if (count == 0) {
        base = to_compute(raw[0]);
        if (row + own.height < own.end) {
          const Vector<F, kWidth> second = to_compute(raw[1]);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) base.v[k] += (second.v[k] - base.v[k]) / 2;
        }
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (row + a * own.height >= own.end) continue;
        const Vector<F, kWidth> value = to_compute(raw[a]);
        count += 1;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          const F apart = value.v[k] - base.v[k];
          run.v[k] += apart;
          run_of_squares.v[k] += apart * apart;
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      sum.v[k] += run.v[k];
      sum_of_squares.v[k] += run_of_squares.v[k];
    }
  }
  counts[thread] = count;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const F mean = count == 0 ? F(0) : sum.v[k] / count, rest = sum_of_squares.v[k] - sum.v[k] * mean;
    means[thread][k] = base.v[k] + mean;
    squares[thread][k] = rest < 0 ? F(0) : rest;
  }
  for (int half = own.height / 2; half > 0; half /= 2) {
    block_barrier();
    if (thread / cut.lanes >= half) continue;
    const int other = thread + half * cut.lanes;
    Moments<F> all{};
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      all = {counts[thread], means[thread][k], squares[thread][k]};
      all.join(counts[other], means[other][k], squares[other][k]);
      means[thread][k] = all.mean;
      squares[thread][k] = all.squares;
    }
    counts[thread] = all.count;
  }
  if (thread >= cut.lanes || !inside) return;
  F* const to = parts + blockIdx.y * cols + own.column;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    if (own.column + k >= cols) break;
    store_one(to + k, means[thread][k]);
    store_one(to + cut.parts * cols + k, squares[thread][k]);
  }
}

/// Joins the parts in a fixed order: a warp those of 32 columns and every n-th part, n being the block's warps, a power
/// of two; then the warps.
template <class F>
__global__ void __launch_bounds__(kMaxPartWarps* kWarpSize)
    join_moments_kernel(const F* parts, int64_t rows, int64_t cols, const ColumnCut cut, F* mean, F* squares) {
  TERN_SHARED(Moments<F>, of_warps, [kMaxPartWarps][kWarpSize]);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
  Moments<F> own{};
  if (column < cols) {
#pragma unroll 4
    for (int64_t part = warp; part < cut.parts; part += warps) {
      const int64_t left = rows - part * cut.rows_of_part;
      own.join(static_cast<F>(left < cut.rows_of_part ? left : cut.rows_of_part),
               load_one(parts + part * cols + column), load_one(parts + (cut.parts + part) * cols + column));
    }
  }
  of_warps[warp][lane] = own;
  for (int half = warps / 2; half > 0; half /= 2) {
    block_barrier();
    if (warp >= half) continue;
    const Moments<F> other = of_warps[warp + half][lane];
    of_warps[warp][lane].join(other.count, other.mean, other.squares);
  }
  if (warp > 0 || column >= cols) return;
  store_one(mean + column, of_warps[0][lane].mean);
  store_one(squares + column, of_warps[0][lane].squares);
}

/// Sums over the rows of each part: parts[0] those of g, parts[1] those of g * (x - mean), [parts, cols] each; and g.
template <class T>
__global__ void __launch_bounds__(kRowThreads)
    gradient_parts_kernel(const T* dy, const T* y, const T* x, const Map<ComputeType<T>> map, T* g, int64_t rows,
                          int64_t cols, const ColumnCut cut, ComputeType<T>* parts) {
  using F = ComputeType<T>;
  constexpr int kWidth = vector_width<T>;
  TERN_SHARED(F, shared, [2][kRowThreads][kWidth]);
  const int thread = static_cast<int>(threadIdx.x);
  const PartOfThread own(cut, rows, kWidth);
  const bool inside = own.column < cols;
  Vector<F, kWidth> total{}, total_product{};
  if (inside) {
    const ChannelMap<F, kWidth> channels(map, own.column, cols);
    int64_t row = own.first;
    while (row < own.end) {
      Vector<F, kWidth> run{}, run_product{};
      for (int done = 0; done < kRunRows && row < own.end; ++done, row += own.height) {  // one at a time: registers
        const int64_t at = row * cols;
        const Vector<F, kWidth> d = to_compute(load_columns(dy + at, own.column, cols));
        const Vector<F, kWidth> v = to_compute(load_columns(x + at, own.column, cols));
        Vector<F, kWidth> z{}, gradient;
        if (y != nullptr) z = to_compute(load_columns(y + at, own.column, cols));
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          const F centered = channels.centered(v.v[k], k);
          gradient.v[k] = channels.backward(y != nullptr ? z.v[k] : channels.affine(centered, k), d.v[k]);
          run.v[k] += gradient.v[k];
          run_product.v[k] += gradient.v[k] * centered;
        }
        if (g != nullptr) store_columns(g + at, own.column, cols, from_compute<T>(gradient));
      }
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        total.v[k] += run.v[k];
        total_product.v[k] += run_product.v[k];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    shared[0][thread][k] = total.v[k];
    shared[1][thread][k] = total_product.v[k];
  }
  for (int half = own.height / 2; half > 0; half /= 2) {
    block_barrier();
    if (thread / cut.lanes >= half) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      for (int sum = 0; sum < 2; ++sum) shared[sum][thread][k] += shared[sum][thread + half * cut.lanes][k];
  }
  if (thread >= cut.lanes || !inside) return;
#pragma unroll
  for (int k = 0; k < kWidth; ++k)
    for (int sum = 0; sum < 2; ++sum)
      if (own.column + k < cols)
        store_one(parts + (sum * cut.parts + blockIdx.y) * cols + own.column + k, shared[sum][thread][k]);
}

// --- passes over rows ------------------------------------------------------------------------------------------------

/// The division of rows of `chunks` vectors: `lanes` threads along a row, `height` rows of a block at a time.
struct RowCut {
  int lanes, height;
  dim3 grid;
  RowCut(Stream stream, int64_t rows, int64_t chunks)
      : lanes(static_cast<int>(std::min<int64_t>(chunks, kThreads))), height(kThreads / lanes) {
    const int64_t enough = 8 * sm_count(stream);  // blocks
    const int64_t tiles = ceil_div(chunks, lanes), steps = ceil_div(rows, height);
    const int64_t rows_of_thread = std::clamp<int64_t>(ceil_div(steps * tiles, enough), 1, 32);
    grid = dim3(grid_blocks(tiles), static_cast<unsigned>(std::min<int64_t>(ceil_div(steps, rows_of_thread), 65535)));
  }
};

/// The rows of a thread of such a pass: `first`, `first + step` and so on.
struct RowsOfThread {
  int64_t channel, first, step;
  bool any;
  __device__ RowsOfThread(int lanes, int height, int64_t chunks, int width) {
    const int lane = static_cast<int>(threadIdx.x) % lanes, up = static_cast<int>(threadIdx.x) / lanes;
    const int64_t chunk = static_cast<int64_t>(blockIdx.x) * lanes + lane;
    channel = chunk * width;
    first = static_cast<int64_t>(blockIdx.y) * height + up;
    step = static_cast<int64_t>(gridDim.y) * height;
    any = up < height && chunk < chunks;
  }
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) apply_kernel(const T* x, const Map<ComputeType<T>> map, const T* residual,
                                                         T* y, int64_t rows, int64_t cols, int lanes, int height) {
  using F = ComputeType<T>;
  const RowsOfThread own(lanes, height, cols / kWidth, kWidth);
  if (!own.any) return;
  const ChannelMap<F, kWidth> channels(map, own.channel, cols);
  for (int64_t row = own.first; row < rows; row += kAhead * own.step) {
    Vector<T, kWidth> raw[kAhead] = {}, more[kAhead] = {};
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int64_t at = (row + a * own.step) * cols + own.channel;
      if (row + a * own.step >= rows) continue;
      raw[a] = load_vector<kWidth>(x + at);
      if (residual != nullptr) more[a] = load_vector<kWidth>(residual + at);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (row + a * own.step >= rows) continue;
      Vector<F, kWidth> value = to_compute(raw[a]);
      const Vector<F, kWidth> added = to_compute(more[a]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        value.v[k] = channels.activate(channels.affine(channels.centered(value.v[k], k), k) + added.v[k]);
      store_vector(y + (row + a * own.step) * cols + own.channel, from_compute<T>(value));
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    backward_apply_kernel(const T* dy, const T* x, const Map<ComputeType<T>> map, const ComputeType<T>* offset,
                          const ComputeType<T>* slope, T* dx, int64_t rows, int64_t cols, int lanes, int height) {
  using F = ComputeType<T>;
  const RowsOfThread own(lanes, height, cols / kWidth, kWidth);
  if (!own.any) return;
  const ChannelMap<F, kWidth> channels(map, own.channel, cols);
  const Vector<F, kWidth> offsets = numbers_of<kWidth>(offset, own.channel, cols);
  const Vector<F, kWidth> slopes = numbers_of<kWidth>(slope, own.channel, cols);
  const bool reads_input = slope != nullptr || map.activation != ImageActivation::kNone;
  for (int64_t row = own.first; row < rows; row += kAhead * own.step) {
    Vector<T, kWidth> given[kAhead] = {}, input[kAhead] = {};
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int64_t at = (row + a * own.step) * cols + own.channel;
      if (row + a * own.step >= rows) continue;
      given[a] = load_vector<kWidth>(dy + at);
      if (reads_input) input[a] = load_vector<kWidth>(x + at);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (row + a * own.step >= rows) continue;
      const Vector<F, kWidth> d = to_compute(given[a]), value = to_compute(input[a]);
      Vector<F, kWidth> result;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const F centered = reads_input ? channels.centered(value.v[k], k) : F(0);
        const F z = map.activation != ImageActivation::kNone ? channels.affine(centered, k) : F(0);
        result.v[k] = channels.scale.v[k] * channels.backward(z, d.v[k]);
        if (slope != nullptr) result.v[k] += offsets.v[k] + slopes.v[k] * centered;
      }
      store_vector(dx + (row + a * own.step) * cols + own.channel, from_compute<T>(result));
    }
  }
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

int64_t batch_norm_workspace(Stream, int64_t rows, int64_t channels, DType dtype) {
  int64_t bytes = 0;
  dispatch_float(dtype, [&]<class T>() {
    bytes = 2 * choose_column_cut<T>(rows, channels, kAhead).template workspace_bytes<T>(channels);
  });
  return bytes;
}

void batch_norm_statistics(Stream stream, ConstView x, View mean, View squares, void* workspace) {
  const int64_t rows = x.shape[0], channels = x.shape[1];
  if (channels == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* const parts = static_cast<F*>(workspace);
    const ColumnCut cut = choose_column_cut<T>(rows, channels, kAhead);
    launch(moments_kernel<T>, dim3(grid_blocks(cut.tiles), static_cast<unsigned>(cut.parts)), kRowThreads, 0, stream,
           x.as<T>(), rows, channels, cut, parts);
    int warps = 1;  // a thread joins about eight parts
    while (warps < kMaxPartWarps && warps * 8 < cut.parts) warps *= 2;
    launch(join_moments_kernel<F>, grid_blocks(ceil_div(channels, kWarpSize)), warps * kWarpSize, 0, stream, parts,
           rows, channels, cut, mean.as<F>(), squares.as<F>());
  });
}

void batch_norm_apply(Stream stream, ConstView x, const BatchNormMap& map, ConstView residual, View y) {
  if (x.numel() == 0) return;
  dispatch(x.dtype, x.shape[1], {x.data, residual.data, y.data}, [&]<class T, int kWidth>() {
    const RowCut cut(stream, x.shape[0], x.shape[1] / kWidth);
    launch(apply_kernel<T, kWidth>, cut.grid, dim3(kThreads), 0, stream, x.as<T>(), Map<ComputeType<T>>(map),
           residual ? residual.as<T>() : nullptr, y.as<T>(), x.shape[0], x.shape[1], cut.lanes, cut.height);
  });
}

void batch_norm_backward_sums(Stream stream, ConstView dy, ConstView y, ConstView x, const BatchNormMap& map, View sums,
                              View g, void* workspace) {
  const int64_t rows = x.shape[0], channels = x.shape[1];
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    F* const parts = static_cast<F*>(workspace);
    const ColumnCut cut = choose_column_cut<T>(rows, channels, kAhead);
    if (cut.parts > 0 && channels > 0)
      launch(gradient_parts_kernel<T>, dim3(grid_blocks(cut.tiles), static_cast<unsigned>(cut.parts)), kRowThreads, 0,
             stream, dy.as<T>(), y ? y.as<T>() : nullptr, x.as<T>(), Map<F>(map), g ? g.as<T>() : nullptr, rows,
             channels, cut, parts);
    add_parts<F>(stream, {parts, sums.data, sums.dtype},
                 {parts + cut.parts * channels, sums.as<F>() + channels, sums.dtype}, cut.parts, channels, channels,
                 false);
  });
}

void batch_norm_backward_apply(Stream stream, ConstView dy, ConstView x, const BatchNormMap& map, ConstView offset,
                               ConstView slope, View dx) {
  if (dx.numel() == 0) return;
  dispatch(dx.dtype, dx.shape[1], {dy.data, x.data, dx.data}, [&]<class T, int kWidth>() {
    using F = ComputeType<T>;
    const RowCut cut(stream, dx.shape[0], dx.shape[1] / kWidth);
    launch(backward_apply_kernel<T, kWidth>, cut.grid, dim3(kThreads), 0, stream, dy.as<T>(), x ? x.as<T>() : nullptr,
           Map<F>(map), offset ? offset.as<F>() : nullptr, slope ? slope.as<F>() : nullptr, dx.as<T>(), dx.shape[0],
           dx.shape[1], cut.lanes, cut.height);
  });
}

}  // namespace tern::kernels::cuda
