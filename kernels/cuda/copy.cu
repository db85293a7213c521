// Copies, casts, fills and random fills.

#include "tern/kernels/copy.h"

#include "tern/kernels/bits.h"
#include "tern/kernels/cuda/strided.h"
#include "tern/kernels/math/math.h"
#include "tern/kernels/random_fill.h"

namespace tern::kernels::cuda {
namespace {

namespace ew = elementwise;

template <class F>
struct Identity {
  static constexpr int kInputs = 1;
  static constexpr bool reads(int) { return true; }
  __device__ F operator()(const F* in) const { return in[0]; }
};

template <class F>
struct Constant {
  static constexpr int kInputs = 0;
  static constexpr bool reads(int) { return false; }
  F value;
  __device__ F operator()(const F*) const { return value; }
};

/// Calls f.template operator()<Bits>() with the unsigned type of the dtype's size.
template <class Function>
void with_bits(DType dtype, const Function& f) {
  switch (size_of(dtype)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

/// Selects the register type of a conversion: an integer for the unchanged bits of equal dtypes, otherwise a type that
/// holds every value of `from` and converts to `to` with the same result as a direct conversion. bool is never moved as
/// bits: it becomes 0 or 1.
template <class Function>
void with_carrier(DType from, DType to, const Function& f) {
  if (from == to && from != DType::kBool) return with_bits(from, f);
  switch (from) {
    case DType::kFloat64:
      return f.template operator()<double>();
    case DType::kInt64:
    case DType::kInt32:
      return f.template operator()<int64_t>();
    default:
      return f.template operator()<float>();
  }
}

// --- transposition ---

using CopyLayout = Layout<2>;  // operand 0 is y, operand 1 is x

/// Side of the tiles in shared memory: rows are at least 64 bytes in both directions.
template <class F>
inline constexpr int kSide = sizeof(F) <= 2 ? 64 : 32;
inline constexpr int64_t kNarrowest = 8;  // with fewer rows or columns most of a tile would be idle

/// The dimension along which x is contiguous if it is not y's innermost one; -1 if there is none.
int transposed_dim(const CopyLayout& layout) {
  if (layout.inner_stride(0) != 1 || layout.inner_stride(1) <= 1 || layout.inner() < kNarrowest) return -1;
  for (int d = layout.dims - 2; d >= 0; --d)
    if (layout.strides[1][d] == 1) return layout.shape[d] >= kNarrowest ? d : -1;
  return -1;
}

struct TransposeCall {
  Operand x, y;                               // strides of the dimensions around the matrices
  Space outer;                                // one element per matrix
  int64_t rows, columns, x_stride, y_stride;  // x is contiguous along rows, y along columns
  Divider tiles_down, tiles_across;
};

template <class F>
__global__ void __launch_bounds__(ew::kThreads) transpose_kernel(TERN_GRID_CONSTANT(TransposeCall) call) {
  constexpr int kTile = kSide<F>, kLines = ew::kThreads / kTile, kPerThread = kTile / kLines;
  // Padding by one word or element puts the elements of a column into different banks.
  constexpr int kPitch = kTile + (sizeof(F) < 4 ? 4 / static_cast<int>(sizeof(F)) : 1);
  TERN_SHARED(F, tile, [kTile][kPitch]);
  const uint32_t tile_row = call.tiles_across.quotient(blockIdx.x), matrix = call.tiles_down.quotient(tile_row);
  const int64_t row = int64_t{tile_row - matrix * call.tiles_down.divisor} * kTile;
  const int64_t column = int64_t{blockIdx.x - tile_row * call.tiles_across.divisor} * kTile;
  const int lane = static_cast<int>(threadIdx.x) % kTile, line = static_cast<int>(threadIdx.x) / kTile;

  if (row + lane < call.rows) {
    const int64_t from = ew::offset_of(call.outer, call.x, matrix) + row + lane + column * call.x_stride;
    F values[kPerThread] = {};  // all loads are issued before the first store
    ew::with_storage<F>(call.x.dtype, [&]<class T>() {
      const auto* x = static_cast<const Stored<T>*>(call.x.data) + from;
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int c = line + i * kLines;
        if (column + c < call.columns) values[i] = convert<T, F>(load_vector<1>(x + c * call.x_stride).v[0]);
      }
    });
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) tile[line + i * kLines][lane] = values[i];
  }
  block_barrier();
  if (column + lane < call.columns) {
    const int64_t to = ew::offset_of(call.outer, call.y, matrix) + column + lane + row * call.y_stride;
    ew::with_storage<F>(call.y.dtype, [&]<class T>() {
      auto* y = static_cast<Stored<T>*>(call.y.data) + to;
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int r = line + i * kLines;
        if (row + r < call.rows)
          store_vector(y + r * call.y_stride, Vector<Stored<T>, 1>{{convert<F, T>(tile[lane][r])}});
      }
    });
  }
}

template <class F>
void launch_transpose(Stream stream, CopyLayout layout, int dim, ConstView x, View y) {
  layout.swap_dims(dim, layout.dims - 2);
  const int last = layout.dims - 1, other = layout.dims - 2;
  TransposeCall call;
  call.rows = layout.shape[other];
  call.columns = layout.shape[last];
  call.x_stride = layout.strides[1][last];
  call.y_stride = layout.strides[0][other];
  const int64_t down = (call.rows + kSide<F> - 1) / kSide<F>, across = (call.columns + kSide<F> - 1) / kSide<F>;
  layout.dims -= 2;
  layout.finish();
  const unsigned blocks = grid_blocks(layout.numel() * down * across);
  call.tiles_down = Divider(static_cast<uint32_t>(down));
  call.tiles_across = Divider(static_cast<uint32_t>(across));
  call.outer = ew::make_space(layout);
  call.x = ew::make_operand<F>(layout, 1, x.data, x.dtype);
  call.y = ew::make_operand<F>(layout, 0, y.data, y.dtype);
  launch(transpose_kernel<F>, dim3(blocks), dim3(ew::kThreads), 0, stream, call);
}

// --- fills ---

template <class T>
void fill_with(Stream stream, T value, View y) {
  dispatch_any(y.dtype, [&]<class To>() {
    const Stored<To> stored = convert<T, To>(value);
    with_bits(y.dtype, [&]<class Bits>() {
      if constexpr (sizeof(Bits) == sizeof(stored))
        ew::run<Bits>(stream, nullptr, y, Constant<Bits>{std::bit_cast<Bits>(stored)});
    });
  });
}

__global__ void __launch_bounds__(ew::kThreads)
    arange_kernel(double start, double step, void* y, DType dtype, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * ew::kThreads + threadIdx.x;
  if (i >= count) return;
  const double value = start + static_cast<double>(i) * step;
  ew::with_storage<double>(dtype, [&]<class T>() {
    store_vector(static_cast<Stored<T>*>(y) + i, Vector<Stored<T>, 1>{{convert<double, T>(value)}});
  });
}

template <class Word>
__global__ void __launch_bounds__(ew::kThreads)
    triangle_kernel(const Word* x, int64_t n, int64_t rows, int64_t cols, int64_t diagonal, bool lower, Word* y) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * ew::kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * ew::kThreads + threadIdx.x; i < n; i += step) {
    const int64_t above = i % cols - i / cols % rows;  // the main diagonal
    y[i] = (lower ? above <= diagonal : above >= diagonal) ? x[i] : Word(0);
  }
}

// --- random fills ---

template <class F>
struct UniformNumbers {
  F offset, width, last;
  /// Uses fused multiply-add, like the CPU levels that have it: equal bits.
  __device__ void operator()(const Philox4& words, F (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const F value = std::fma(width, static_cast<F>(uniform(words.word[i])), offset);
      values[i] = value > last ? last : value;
    }
  }
};

template <class F>
struct NormalNumbers {
  F mean, standard_deviation;
  __device__ void operator()(const Philox4& words, F (&values)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const F u = F(1) - static_cast<F>(uniform(words.word[i]));  // in (0, 1]
      const F radius = standard_deviation * math::sqrt(F(-2) * math::log(u));
      float sine, cosine;
      sin_cos_turns(uniform(words.word[i + 1]), &sine, &cosine);
      values[i] = mean + radius * F(cosine);
      values[i + 1] = mean + radius * F(sine);
    }
  }
};

/// A thread computes the four elements of one Philox call.
template <class T, class Make>
__global__ void __launch_bounds__(ew::kThreads) random_kernel(RandomKey key, T* y, int64_t count, Make make) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * ew::kThreads + threadIdx.x, first = 4 * block;
  if (first >= count) return;
  ComputeType<T> values[4];
  make(philox(philox_key(key), static_cast<uint64_t>(block) >> 32, 0, static_cast<uint32_t>(block)), values);
  constexpr int kWidth = vector_width<T> < 4 ? vector_width<T> : 4;
  if (first + 4 <= count && reinterpret_cast<uintptr_t>(y) % (kWidth * sizeof(T)) == 0) {
#pragma unroll
    for (int i = 0; i < 4; i += kWidth) {
      Vector<T, kWidth> stored;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) stored.v[j] = from_compute<T>(values[i + j]);
      store_vector(y + first + i, stored);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + i < count) store_vector(y + first + i, Vector<T, 1>{{from_compute<T>(values[i])}});
  }
}

/// A thread computes the two elements of one Philox call.
template <class T>
__global__ void __launch_bounds__(ew::kThreads)
    random_integers_kernel(RandomKey key, int64_t low, uint64_t range, Stored<T>* y, int64_t count) {
  const int64_t pair = static_cast<int64_t>(blockIdx.x) * ew::kThreads + threadIdx.x;
  const Philox4 words = philox(philox_key(key), static_cast<uint64_t>(pair) >> 32, 0, static_cast<uint32_t>(pair));
#pragma unroll
  for (int k = 0; k < 2; ++k)
    if (2 * pair + k < count)
      store_vector(y + 2 * pair + k, Vector<Stored<T>, 1>{{convert<int64_t, T>(random_integer(words, k, low, range))}});
}

template <class T, class Make>
void fill_random(Stream stream, RandomKey key, View y, const Make& make) {
  const int64_t count = y.numel(), per_block = 4 * ew::kThreads;
  if (count == 0) return;
  const unsigned blocks = grid_blocks((count + per_block - 1) / per_block);
  launch(random_kernel<T, Make>, dim3(blocks), dim3(ew::kThreads), 0, stream, key, y.as<T>(), count, make);
}

}  // namespace

void copy(Stream stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  const int64_t* strides[2] = {y.strides, x.strides};
  const CopyLayout layout = make_layout(y.dims, y.shape, strides);
  const int transposed = transposed_dim(layout);
  with_carrier(x.dtype, y.dtype, [&]<class F>() {
    if (transposed >= 0)
      launch_transpose<F>(stream, layout, transposed, x, y);
    else
      ew::run<F>(stream, &x, y, Identity<F>());
  });
}

void fill(Stream stream, double value, View y) { fill_with(stream, value, y); }
void fill_integer(Stream stream, int64_t value, View y) { fill_with(stream, value, y); }

void triangle(Stream stream, ConstView x, int64_t diagonal, bool lower, View y) {
  const int64_t n = y.numel();
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((n + ew::kThreads - 1) / ew::kThreads, 1 << 16));
  dispatch_size(size_of(y.dtype), [&]<class Word>() {
    launch(triangle_kernel<Word>, dim3(blocks), dim3(ew::kThreads), 0, stream, x.as<Word>(), n, y.size(-2), y.cols(),
           diagonal, lower, y.as<Word>());
  });
}

void arange(Stream stream, double start, double step, View y) {
  const int64_t count = y.numel();
  if (count == 0) return;
  const unsigned blocks = grid_blocks((count + ew::kThreads - 1) / ew::kThreads);
  launch(arange_kernel, dim3(blocks), dim3(ew::kThreads), 0, stream, start, step, y.data, y.dtype, count);
}

void fill_uniform(Stream stream, RandomKey key, double low, double high, View y) {
  dispatch_float(y.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    fill_random<T>(stream, key, y,
                   UniformNumbers<F>{static_cast<F>(low), static_cast<F>(high - low), largest_below<T>(high)});
  });
}

void fill_random_integers(Stream stream, RandomKey key, int64_t low, uint64_t range, View y) {
  const int64_t count = y.numel(), per_block = 2 * ew::kThreads;
  if (count == 0) return;
  dispatch_any(y.dtype, [&]<class T>() {
    launch(random_integers_kernel<T>, dim3(grid_blocks((count + per_block - 1) / per_block)), dim3(ew::kThreads), 0,
           stream, key, low, range, y.as<Stored<T>>(), count);
  });
}

void fill_normal(Stream stream, RandomKey key, double mean, double standard_deviation, View y) {
  dispatch_float(y.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    fill_random<T>(stream, key, y, NormalNumbers<F>{static_cast<F>(mean), static_cast<F>(standard_deviation)});
  });
}

}  // namespace tern::kernels::cuda
