// Copies, casts, fills and random fills.

#include "tern/kernels/copy.h"

#include <cstring>

#include "tern/kernels/cpu/tile.h"
#include "tern/kernels/math.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/random_fill.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlock = 65536;  // elements per parallel block
constexpr int64_t kSquare = 32;    // side of a transposed block: both sides of it stay in the first-level cache
constexpr int64_t kRandomTile = 1024;

using CopyLayout = Layout<2>;  // operand 0 is y, operand 1 is x

/// The dimension along which x is contiguous when that is not y's innermost one; -1 when there is none.
int transposed_dim(const CopyLayout& layout) {
  if (layout.inner_stride(1) == 1 || layout.inner_stride(1) == 0) return -1;
  for (int d = layout.dims - 2; d >= 0; --d)
    if (layout.strides[1][d] == 1) return d;
  return -1;
}

/// The bits of an element: moving unsigned integers vectorises, moving structs does not.
template <size_t kBytes>
using BitsOf =
    std::conditional_t<kBytes == 1, uint8_t,
                       std::conditional_t<kBytes == 2, uint16_t, std::conditional_t<kBytes == 4, uint32_t, uint64_t>>>;

/// Transposes a kSquare x kSquare block: a perfect shuffle of its elements rotates the bits of (row, column) by one, so
/// log2(kSquare) of them swap row and column. Each is an interleaving of two arrays, which vectorises for every size.
template <class Bits>
const Bits* transpose_block(Bits* block, Bits* other) {
  constexpr int64_t kHalf = kSquare * kSquare / 2;
  for (int64_t bit = 1; bit < kSquare; bit *= 2) {
#pragma GCC ivdep
    for (int64_t i = 0; i < kHalf; ++i) {
      other[2 * i] = block[i];
      other[2 * i + 1] = block[kHalf + i];
    }
    std::swap(block, other);
  }
  return block;
}

/// The lines that the next square will touch: their addresses are too far apart for the processor to guess.
template <class T>
void prefetch_row(const T* row, bool for_writing) {
  const char* bytes = reinterpret_cast<const char*>(row);
  for (size_t line = 0; line < kSquare * sizeof(T); line += 64) {
    if (for_writing)
      __builtin_prefetch(bytes + line, 1);
    else
      __builtin_prefetch(bytes + line, 0);
  }
}

/// One square of a transposition: x is contiguous along `rows`, y along `columns`. Both are touched in whole lines.
template <class From, class To>
void transpose_square(const Stored<From>* x, int64_t x_stride, Stored<To>* y, int64_t y_stride, int64_t rows,
                      int64_t columns, bool more) {
  using Bits = BitsOf<sizeof(To)>;
  alignas(64) Bits block[kSquare * kSquare] = {}, other[kSquare * kSquare];
  for (int64_t c = 0; c < columns; ++c) {
    if (more) prefetch_row(x + (c + kSquare) * x_stride, false);
    convert_strided<From, To>(x + c * x_stride, 1, reinterpret_cast<Stored<To>*>(block + c * kSquare), 1, rows);
  }
  const Bits* transposed = transpose_block(block, other);
  for (int64_t r = 0; r < rows; ++r) {
    if (more) prefetch_row(y + r * y_stride + kSquare, true);
    std::memcpy(static_cast<void*>(y + r * y_stride), transposed + r * kSquare, columns * sizeof(Bits));
  }
}

template <class From, class To>
void copy_transposed(CopyLayout layout, int dim, const void* x, void* y) {
  layout.swap_dims(dim, layout.dims - 2);
  const int last = layout.dims - 1, other = layout.dims - 2;
  const int64_t down = (layout.shape[other] + kSquare - 1) / kSquare,
                across = (layout.shape[last] + kSquare - 1) / kSquare;
  CopyLayout outer = layout;
  outer.dims = layout.dims - 2;
  const int64_t matrices = outer.numel();
  const int64_t unused[2] = {};
  outer.append(1, unused);
  parallel_for(matrices * down * across, kBlock / (kSquare * kSquare), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t matrix = index / (down * across), row = index / across % down * kSquare,
                    column = index % across * kSquare;
      const auto* from =
          static_cast<const Stored<From>*>(x) + outer.row_offset(1, matrix) + row + column * layout.strides[1][last];
      auto* to = static_cast<Stored<To>*>(y) + outer.row_offset(0, matrix) + row * layout.strides[0][other] + column;
      transpose_square<From, To>(
          from, layout.strides[1][last], to, layout.strides[0][other], std::min(kSquare, layout.shape[other] - row),
          std::min(kSquare, layout.shape[last] - column), column + 2 * kSquare <= layout.shape[last]);
    }
  });
}

template <class From, class To>
void copy_rows(const CopyLayout& layout, const void* x, void* y) {
  const int64_t inner = layout.inner(), rows = layout.numel() / inner;
  const int64_t chunks = (inner + kBlock - 1) / kBlock;
  // bool is not copied as bytes: it becomes 0 or 1.
  constexpr bool kSame = std::is_same_v<From, To> && !std::is_same_v<From, bool>;
  const bool bytes = kSame && layout.inner_stride(0) == 1 && layout.inner_stride(1) == 1;
  parallel_for(rows * chunks, std::max<int64_t>(1, kBlock / inner), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t row = index / chunks, column = index % chunks * kBlock, n = std::min(kBlock, inner - column);
      const auto* from =
          static_cast<const Stored<From>*>(x) + layout.row_offset(1, row) + column * layout.inner_stride(1);
      auto* to = static_cast<Stored<To>*>(y) + layout.row_offset(0, row) + column * layout.inner_stride(0);
      if (bytes)
        std::memcpy(static_cast<void*>(to), from, n * sizeof(Stored<From>));
      else
        convert_strided<From, To>(from, layout.inner_stride(1), to, layout.inner_stride(0), n);
    }
  });
}

/// A scalar written everywhere: a copy from a view of stride 0.
template <class T>
void fill_with(T value, View y) {
  Stored<T> stored = value;
  const int64_t zeros[kMaxDims] = {};
  copy({}, ConstView(&stored, dtype_of<T>(), y.dims, y.shape, zeros), y);
}

/// The random words of elements [4 * first, 4 * first + kRandomTile), in order.
void random_words(uint64_t key, uint64_t first, uint32_t (&words)[kRandomTile]) {
  constexpr int64_t kBlocks = kRandomTile / 4;
  uint32_t planes[4][kBlocks];
  for (int64_t b = 0; b < kBlocks; ++b) {
    const Philox4 result = philox(key, first >> 32, 0, static_cast<uint32_t>(first) + static_cast<uint32_t>(b));
    for (int j = 0; j < 4; ++j) planes[j][b] = result.word[j];
  }
  for (int64_t b = 0; b < kBlocks; ++b)
    for (int j = 0; j < 4; ++j) words[4 * b + j] = planes[j][b];
}

/// make(words, values) turns the random words of a tile into values of y's compute type.
template <class T, class Make>
void fill_random(RandomKey random, View y, const Make& make) {
  using F = ComputeType<T>;
  const uint64_t key = philox_key(random);
  const int64_t n = y.numel();
  const int64_t tiles = (n + kRandomTile - 1) / kRandomTile;
  parallel_for(tiles, 16, [&](int64_t begin, int64_t end) {
    uint32_t words[kRandomTile];
    F values[kRandomTile];
    for (int64_t tile = begin; tile < end; ++tile) {
      random_words(key, static_cast<uint64_t>(tile) * (kRandomTile / 4), words);
      make(words, values);
      const int64_t start = tile * kRandomTile;
      convert_strided<F, T>(values, 1, y.as<Stored<T>>() + start, 1, std::min(kRandomTile, n - start));
    }
  });
}

}  // namespace

void copy(Stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  const CopyLayout layout = make_layout(y.dims, y.shape, {y.strides, x.strides});
  const int transposed = layout.inner_stride(0) == 1 ? transposed_dim(layout) : -1;
  dispatch_any(x.dtype, [&]<class From>() {
    dispatch_any(y.dtype, [&]<class To>() {
      if (transposed >= 0)
        copy_transposed<From, To>(layout, transposed, x.data, y.data);
      else
        copy_rows<From, To>(layout, x.data, y.data);
    });
  });
}

void fill(Stream, double value, View y) { fill_with(value, y); }
void fill_integer(Stream, int64_t value, View y) { fill_with(value, y); }

void arange(Stream, double start, double step, View y) {
  dispatch_any(y.dtype, [&]<class T>() {
    parallel_for(y.numel(), kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        y.as<Stored<T>>()[i] = convert<double, T>(start + static_cast<double>(i) * step);
    });
  });
}

void fill_uniform(Stream, RandomKey key, double low, double high, View y) {
  dispatch_float(y.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    const F offset = static_cast<F>(low), width = static_cast<F>(high - low), last = largest_below<T>(high);
    fill_random<T>(key, y, [=](const uint32_t* words, F* values) {
      for (int64_t i = 0; i < kRandomTile; ++i) {
        const F value = offset + width * static_cast<F>(uniform(words[i]));
        values[i] = value > last ? last : value;
      }
    });
  });
}

void fill_normal(Stream, RandomKey key, double mean, double standard_deviation, View y) {
  dispatch_float(y.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    fill_random<T>(key, y, [=](const uint32_t* words, F* values) {
      // Planes of sines and cosines, then interleaved: the loops vectorise apart.
      constexpr int64_t kPairs = kRandomTile / 2;
      F radius[kPairs];
      float even[kPairs], odd[kPairs];
      for (int64_t i = 0; i < kPairs; ++i) {
        const F u = F(1) - static_cast<F>(uniform(words[2 * i]));  // in (0, 1]
        radius[i] = static_cast<F>(standard_deviation) * math::sqrt(F(-2) * math::log(u));
      }
      for (int64_t i = 0; i < kPairs; ++i) sin_cos_turns(uniform(words[2 * i + 1]), &odd[i], &even[i]);
      for (int64_t i = 0; i < kPairs; ++i) {
        values[2 * i] = static_cast<F>(mean) + radius[i] * F(even[i]);
        values[2 * i + 1] = static_cast<F>(mean) + radius[i] * F(odd[i]);
      }
    });
  });
}

void copy_many(Stream stream, const ConstView* x, const View* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) copy(stream, x[i], y[i]);
}

}  // namespace tern::kernels::TERN_CPU
