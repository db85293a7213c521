// Copies, casts, fills and random fills.

#include "tern/kernels/copy.h"

#include <cstring>

#include "tern/kernels/bits.h"
#include "tern/kernels/cpu/simd/tile.h"
#include "tern/kernels/math/math.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/random_fill.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlock = 65536;  // elements per parallel block
constexpr int64_t kSquare = 32;    // side of a transposed block; source and result fit into the L1 cache
constexpr int64_t kFewColumns = 8;
constexpr int64_t kManyRows = 1024;  // so many rows of few columns fit into the L1 cache
constexpr int64_t kRandomTile = 1024;

using CopyLayout = Layout<2>;  // operand 0 is y, operand 1 is x

/// The dimension along which x is contiguous if it is not y's innermost one; -1 if there is none.
int transposed_dim(const CopyLayout& layout) {
  if (layout.inner_stride(1) == 1 || layout.inner_stride(1) == 0) return -1;
  for (int d = layout.dims - 2; d >= 0; --d)
    if (layout.strides[1][d] == 1) return d;
  return -1;
}

/// Rows of n elements whose neighbours, and whose next rows, are this many elements away.
struct Rows {
  int64_t x_stride, y_stride, x_next, y_next;
};

/// y[r * y_next + i * y_stride] = x[r * x_next + i * x_stride] for `count` rows of n elements, converted.
using ConvertFunction = void (*)(const void* x, void* y, const Rows& rows, int64_t count, int64_t n);

template <class From, class To>
void convert_rows(const void* x, void* y, const Rows& rows, int64_t count, int64_t n) {
  const auto* from = static_cast<const Stored<From>*>(x);
  auto* to = static_cast<Stored<To>*>(y);
  if (n == 3 && n < count && rows.x_next == 1 && rows.y_stride == 1 && rows.y_next == 3) {  // three planes, as of RGB
#pragma GCC ivdep
    for (int64_t r = 0; r < count; ++r) {
      to[3 * r] = convert<From, To>(from[r]);
      to[3 * r + 1] = convert<From, To>(from[r + rows.x_stride]);
      to[3 * r + 2] = convert<From, To>(from[r + 2 * rows.x_stride]);
    }
    return;
  }
  if (n <= kFewColumns && n < count) {  // a loop over so few elements costs more than they do
    for (int64_t i = 0; i < n; ++i)
      convert_strided<From, To>(from + i * rows.x_stride, rows.x_next, to + i * rows.y_stride, rows.y_next, count);
    return;
  }
  for (int64_t r = 0; r < count; ++r, from += rows.x_next, to += rows.y_next) {
    if (std::is_same_v<From, To> && rows.x_stride == -1 && rows.y_stride == 1)
      for (int64_t i = 0; i < n; ++i) to[i] = convert<From, To>(from[-i]);
    else
      convert_strided<From, To>(from, rows.x_stride, to, rows.y_stride, n);
  }
}

/// The conversion of one copy. A function pointer keeps the 64 pairs of dtypes out of the surrounding loops.
struct Conversion {
  ConvertFunction convert = nullptr;
  int64_t x_size = 0, y_size = 0;  // bytes per element
  bool same = false;               // elements may be copied as bytes

  void row(const void* x, void* y, int64_t n) const { convert(x, y, {1, 1, 0, 0}, 1, n); }
};

Conversion conversion_of(DType from, DType to) {
  Conversion conversion{nullptr, size_of(from), size_of(to),
                        from == to && from != DType::kBool};  // a bool becomes 0 or 1
  dispatch_any(
      from, [&]<class From>() { dispatch_any(to, [&]<class To>() { conversion.convert = convert_rows<From, To>; }); });
  return conversion;
}

/// Transposes a kSquare x kSquare block. A perfect shuffle rotates the bits of the index (row, column) by one, so
/// log2(kSquare) shuffles swap row and column. Each interleaves two arrays, which vectorises for every element size.
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

/// Prefetches the lines of the next square: their addresses are too far apart for the hardware prefetcher.
void prefetch_row(const char* row, int64_t bytes, bool for_writing) {
  for (int64_t line = 0; line < bytes; line += 64) {
    if (for_writing)
      __builtin_prefetch(row + line, 1);
    else
      __builtin_prefetch(row + line, 0);
  }
}

/// Transposes one square: x is contiguous along `rows`, y along `columns`; the strides are those of the other
/// dimension. Both are accessed in whole cache lines. Bits: an unsigned integer of the size of y's elements, because
/// moves of integers vectorise and moves of structs do not.
template <class Bits>
void transpose_square(const Conversion& conversion, const char* x, int64_t x_stride, char* y, int64_t y_stride,
                      int64_t rows, int64_t columns, bool more) {
  alignas(64) Bits block[kSquare * kSquare] = {}, other[kSquare * kSquare];
  const int64_t x_bytes = x_stride * conversion.x_size, y_bytes = y_stride * conversion.y_size;
  for (int64_t c = 0; c < columns; ++c) {
    if (more) prefetch_row(x + (c + kSquare) * x_bytes, kSquare * conversion.x_size, false);
    conversion.row(x + c * x_bytes, block + c * kSquare, rows);
  }
  const Bits* transposed = transpose_block(block, other);
  for (int64_t r = 0; r < rows; ++r) {
    if (more) prefetch_row(y + r * y_bytes + kSquare * conversion.y_size, kSquare * conversion.y_size, true);
    std::memcpy(y + r * y_bytes, transposed + r * kSquare, columns * sizeof(Bits));
  }
}

template <class Bits>
void copy_transposed(CopyLayout layout, int dim, const Conversion& conversion, const void* x, void* y) {
  layout.swap_dims(dim, layout.dims - 2);
  const int last = layout.dims - 1, side = layout.dims - 2;
  const int64_t x_stride = layout.strides[1][last], y_stride = layout.strides[0][side];
  const int64_t down = (layout.shape[side] + kSquare - 1) / kSquare,
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
      const int64_t from = outer.row_offset(1, matrix) + row + column * x_stride;
      const int64_t to = outer.row_offset(0, matrix) + row * y_stride + column;
      transpose_square<Bits>(
          conversion, static_cast<const char*>(x) + from * conversion.x_size, x_stride,
          static_cast<char*>(y) + to * conversion.y_size, y_stride, std::min(kSquare, layout.shape[side] - row),
          std::min(kSquare, layout.shape[last] - column), column + 2 * kSquare <= layout.shape[last]);
    }
  });
}

/// Iterates over the rows of a layout without a division per row.
class RowWalk {
 public:
  RowWalk(const CopyLayout& layout, int64_t row) : layout_(layout) {
    for (int k = 0; k < 2; ++k) offset_[k] = layout.row_offset(k, row);
    for (int d = layout.dims - 2; d >= 0; --d) {
      index_[d] = row % layout.shape[d];
      row /= layout.shape[d];
    }
  }
  int64_t offset(int operand) const { return offset_[operand]; }
  /// The number of rows from this one on that are equally far from each other.
  int64_t run() const { return layout_.dims < 2 ? 1 : layout_.shape[layout_.dims - 2] - index_[layout_.dims - 2]; }
  /// Goes on by `count` <= run() rows.
  void skip(int64_t count) {
    for (int d = layout_.dims - 2; d >= 0; --d, count = 1) {
      index_[d] += count;
      const bool carry = index_[d] == layout_.shape[d];
      const int64_t steps = carry ? count - layout_.shape[d] : count;
      for (int k = 0; k < 2; ++k) offset_[k] += steps * layout_.strides[k][d];
      if (!carry) return;
      index_[d] = 0;
    }
  }

 private:
  const CopyLayout& layout_;
  int64_t index_[kMaxDims] = {}, offset_[2];
};

/// Copies `count` rows, or a part of one, of n elements.
void copy_run(const Conversion& conversion, const char* x, char* y, const Rows& rows, int64_t count, int64_t n) {
  const bool bytes = conversion.same && rows.y_stride == 1 && rows.x_stride == 1 && n > kFewColumns;
  if (!bytes) return conversion.convert(x, y, rows, count, n);
  const int64_t x_next = rows.x_next * conversion.x_size, y_next = rows.y_next * conversion.y_size;
  for (int64_t r = 0; r < count; ++r) copy_bytes(x + r * x_next, y + r * y_next, n * conversion.y_size);
}

void copy_rows(const CopyLayout& layout, const Conversion& conversion, const void* x, void* y) {
  const int64_t inner = layout.inner(), rows = layout.numel() / inner;
  const int64_t chunks = (inner + kBlock - 1) / kBlock;
  const bool single = layout.dims < 2;
  const Rows steps{layout.inner_stride(1), layout.inner_stride(0), single ? 0 : layout.strides[1][layout.dims - 2],
                   single ? 0 : layout.strides[0][layout.dims - 2]};
  parallel_for(rows * chunks, std::max<int64_t>(1, kBlock / inner), [&](int64_t begin, int64_t end) {
    RowWalk walk(layout, begin / chunks);
    for (int64_t index = begin; index < end;) {
      const int64_t column = index % chunks * kBlock, n = std::min(kBlock, inner - column);
      const int64_t count = chunks > 1 ? 1 : std::min({walk.run(), end - index, kManyRows});
      const char* from = static_cast<const char*>(x) + (walk.offset(1) + column * steps.x_stride) * conversion.x_size;
      char* to = static_cast<char*>(y) + (walk.offset(0) + column * steps.y_stride) * conversion.y_size;
      copy_run(conversion, from, to, steps, count, n);
      index += count;
      if (index % chunks == 0) walk.skip(count);
    }
  });
}

/// Fills y with a scalar: a copy from a view of stride 0.
template <class T>
void fill_with(T value, View y) {
  Stored<T> stored = value;
  const int64_t zeros[kMaxDims] = {};
  copy({}, ConstView(&stored, dtype_of<T>(), y.dims, y.shape, zeros), y);
}

/// Computes the random words of elements [4 * first, 4 * first + kRandomTile), in order.
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

/// make(words, values) converts the random words of a tile to values of y's compute type.
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
  int transposed = layout.inner_stride(0) == 1 ? transposed_dim(layout) : -1;
  // Squares would be nearly empty: an image of few channels, which become the last in memory.
  if (transposed == layout.dims - 2 && layout.inner() <= kFewColumns) transposed = -1;
  const Conversion conversion = conversion_of(x.dtype, y.dtype);
  if (transposed < 0) return copy_rows(layout, conversion, x.data, y.data);
  switch (conversion.y_size) {
    case 1:
      return copy_transposed<uint8_t>(layout, transposed, conversion, x.data, y.data);
    case 2:
      return copy_transposed<uint16_t>(layout, transposed, conversion, x.data, y.data);
    case 4:
      return copy_transposed<uint32_t>(layout, transposed, conversion, x.data, y.data);
    default:
      return copy_transposed<uint64_t>(layout, transposed, conversion, x.data, y.data);
  }
}

void fill(Stream, double value, View y) { fill_with(value, y); }
void fill_integer(Stream, int64_t value, View y) { fill_with(value, y); }

void triangle(Stream, ConstView x, int64_t diagonal, bool lower, View y) {
  const int64_t rows = y.size(-2), cols = y.cols();
  if (y.numel() == 0) return;
  dispatch_size(size_of(y.dtype), [&]<class Word>() {
    parallel_for(y.rows(), std::max<int64_t>(1, kBlock / cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const Word* from = x.as<Word>() + r * cols;
        Word* to = y.as<Word>() + r * cols;
        const int64_t cut = std::clamp<int64_t>(r % rows + diagonal + (lower ? 1 : 0), 0, cols);
        std::fill_n(lower ? to + cut : to, lower ? cols - cut : cut, Word(0));
        if (lower)
          copy_bytes(from, to, cut * static_cast<int64_t>(sizeof(Word)));
        else
          copy_bytes(from + cut, to + cut, (cols - cut) * static_cast<int64_t>(sizeof(Word)));
      }
    });
  });
}

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

void fill_random_integers(Stream, RandomKey key, int64_t low, uint64_t count, View y) {
  const uint64_t draw = philox_key(key);
  dispatch_any(y.dtype, [&]<class T>() {
    parallel_for((y.numel() + 1) / 2, kBlock / 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Philox4 words = philox(draw, static_cast<uint64_t>(i) >> 32, 0, static_cast<uint32_t>(i));
        for (int k = 0; k < 2 && 2 * i + k < y.numel(); ++k)
          y.as<Stored<T>>()[2 * i + k] = convert<int64_t, T>(random_integer(words, k, low, count));
      }
    });
  });
}

void fill_normal(Stream, RandomKey key, double mean, double standard_deviation, View y) {
  dispatch_float(y.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    fill_random<T>(key, y, [=](const uint32_t* words, F* values) {
      // Sines and cosines are computed in separate arrays and then interleaved: separate loops vectorise.
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
