// Distances of rows, in blocks of pairs. Columns of a block are rows of z (of x, for its gradient), which are
// transposed so that neighbouring pairs are the lanes of a vector.

#include "tern/kernels/cdist.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/distance_orders.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kSide = 64;  // rows and columns of a block, and elements of a row that are added up at a time
constexpr int kRowsTogether = 4, kVectorsTogether = 2;  // as many sums as are added up in registers

/// A vector as wide as a register, with the functions that distance_orders.h names.
template <class F>
struct Wide {
  static constexpr int kLanes = kRegisterBytes / sizeof(F);
  using Native = Vector<F, kRegisterBytes>;
  using Mask = decltype(Native{} > Native{});
  Native v;

  Wide() = default;
  Wide(Native native) : v(native) {}  // NOLINT: converts by intent
  explicit Wide(F value) : v(Native{} + value) {}
  static Wide load(const F* x) { return load_vector<kRegisterBytes>(x); }
  void store(F* x) const { store_vector(x, v); }

  friend Wide operator+(Wide a, Wide b) { return a.v + b.v; }
  friend Wide operator-(Wide a, Wide b) { return a.v - b.v; }
  friend Wide operator*(Wide a, Wide b) { return a.v * b.v; }
  friend Mask operator>(Wide a, Wide b) { return a.v > b.v; }
  friend Mask operator<(Wide a, Wide b) { return a.v < b.v; }
  friend Mask operator==(Wide a, Wide b) { return a.v == b.v; }
  friend Mask operator!=(Wide a, Wide b) { return a.v != b.v; }
  friend Wide select(Mask mask, Wide a, Wide b) { return mask ? a.v : b.v; }
  friend Wide abs(Wide x) {
    constexpr auto kAllButSign = std::numeric_limits<std::make_signed_t<Word>>::max();
    return reinterpret_cast<Native>(reinterpret_cast<Mask>(x.v) & kAllButSign);
  }
  friend Wide pow(Wide x, Wide y) {
    F bases[kLanes], exponents[kLanes];
    x.store(bases);
    y.store(exponents);
    for (int l = 0; l < kLanes; ++l) bases[l] = math::pow(bases[l], exponents[l]);
    return load(bases);
  }

 private:
  using Word = std::conditional_t<sizeof(F) == 8, int64_t, int32_t>;
};

/// rows x cols elements of a matrix with rows of `stride` elements, in the compute type; 0 outside of the matrix.
template <class F>
struct Block {
  alignas(64) F at[kSide][kSide];

  template <class T>
  void load(const T* from, int64_t stride, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; ++r) {
      const T* const row = from + r * stride;
      if constexpr (!std::is_same_v<T, F>)
        widen(row, at[r], cols);
      else if (cols == kSide)
        std::memcpy(at[r], row, sizeof at[r]);  // of known size, which saves calls
      else
        std::memcpy(at[r], row, static_cast<size_t>(cols) * sizeof(F));
      std::fill(at[r] + cols, at[r] + kSide, F(0));
    }
    for (int64_t r = rows; r < kSide; ++r) std::fill_n(at[r], kSide, F(0));
  }
  /// The same elements, at[c][r] that of row r and column c.
  template <class T>
  void load_transposed(const T* from, int64_t stride, int64_t rows, int64_t cols) {
    if (rows < kSide || cols < kSide) std::fill_n(&at[0][0], kSide * kSide, F(0));
    for (int64_t r = 0; r < rows; ++r) {
      alignas(64) F buffer[kSide] = {};  // zeros, since GCC 12 warns at level v3 that it might be read uninitialized
      const F* const row = widen(from + r * stride, buffer, cols);
      for (int64_t c = 0; c < cols; ++c) at[c][r] = row[c];
    }
  }
};
/// One matrix of the batch.
template <class T>
struct Matrix {
  const T* data;
  int64_t rows, cols;
  const T* row(int64_t r, int64_t column = 0) const { return data + r * cols + column; }
};

/// Calls body(batch, row, column) for each block of a batch of matrices, the blocks of a matrix in order of rows.
template <class Body>
void for_each_block(int64_t batch, int64_t rows, int64_t cols, const Body& body) {
  const int64_t down = (rows + kSide - 1) / kSide, across = (cols + kSide - 1) / kSide;
  parallel_for(batch * down * across, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i / (down * across), i / across % down * kSide, i % across * kSide);
  });
}

/// The states of a block of pairs.
template <class F, class State>
struct States {
  State of[kSide][kSide / Wide<F>::kLanes];
};

/// Adds `depth` differences of the rows [r, r + kRowsTogether) of x to the states of the columns from vector v on.
template <class F, class State, class Order>
void add_differences(const Order& order, const Block<F>& x, const Block<F>& z, int64_t depth, int64_t r, int64_t v,
                     States<F, State>& states) {
  State sums[kRowsTogether][kVectorsTogether];
  for (int64_t m = 0; m < depth; ++m)
    for (int c = 0; c < kVectorsTogether; ++c) {
      const Wide<F> column = Wide<F>::load(z.at[m] + (v + c) * Wide<F>::kLanes);
      for (int i = 0; i < kRowsTogether; ++i) sums[i][c].add(Wide<F>(x.at[r + i][m]) - column, order);
    }
  for (int i = 0; i < kRowsTogether; ++i)
    for (int c = 0; c < kVectorsTogether; ++c) states.of[r + i][v + c].join(sums[i][c]);
}

/// The states of a block of pairs: rows of x from `row` on and rows of z from `column` on.
template <class State, class F, class T, class Order>
void run_block(const Order& order, const Matrix<T>& x, const Matrix<T>& z, int64_t row, int64_t column,
               States<F, State>& states) {
  const int64_t rows = std::min(kSide, x.rows - row), cols = std::min(kSide, z.rows - column);
  for (auto& of_row : states.of) std::fill(std::begin(of_row), std::end(of_row), State{});
  Block<F> from_x, from_z;
  for (int64_t m = 0; m < x.cols; m += kSide) {
    const int64_t depth = std::min(kSide, x.cols - m);
    from_x.load(x.row(row, m), x.cols, rows, depth);
    from_z.load_transposed(z.row(column, m), z.cols, cols, depth);
    for (int64_t r = 0; r < rows; r += kRowsTogether)
      for (int64_t v = 0; v * Wide<F>::kLanes < cols; v += kVectorsTogether)
        add_differences(order, from_x, from_z, depth, r, v, states);
  }
}

/// The numbers value(state) of a row of states.
template <class F, class State, class Value>
void read_states(const State* row, F* to, const Value& value) {
  for (int64_t v = 0; v < kSide / Wide<F>::kLanes; ++v) value(row[v]).store(to + v * Wide<F>::kLanes);
}

template <class T, class Order>
void run_forward(const Order& order, ConstView x, ConstView z, View y) {
  using F = ComputeType<T>;
  using State = typename Order::template State<Wide<F>>;
  const int64_t rows = y.size(1), cols = y.size(2), depth = x.size(2);
  for_each_block(y.size(0), rows, cols, [&](int64_t b, int64_t row, int64_t column) {
    States<F, State> states;
    run_block(order, Matrix<T>{x.as<T>() + b * rows * depth, rows, depth},
              Matrix<T>{z.as<T>() + b * cols * depth, cols, depth}, row, column, states);
    for (int64_t r = row; r < std::min(row + kSide, rows); ++r) {
      alignas(64) F values[kSide];
      read_states(states.of[r - row], values, [](const State& s) { return s.value(); });
      map_row<F>(
          y.as<T>() + (b * rows + r) * cols + column, std::min(kSide, cols - column),
          [&](F value) { return order.finish(value); }, values);
    }
  });
}

/// The weights and scales of all pairs.
template <class F>
struct Pairs {
  F *weights, *scales;
};

template <class F, class T, class Order>
void find_pairs(const Order& order, ConstView x, ConstView z, ConstView y, ConstView dy, const Pairs<F>& pairs) {
  const int64_t rows = y.size(1), cols = y.size(2), depth = x.size(2);
  const auto write = [order, pairs, gradients = dy.as<T>()](int64_t i, F value, F count) {
    const distance::Pair<F> pair = order.pair(value, count, static_cast<F>(gradients[i]));
    pairs.weights[i] = pair.weight;
    if constexpr (Order::kUsesScale) pairs.scales[i] = pair.scale;
  };
  if constexpr (!Order::kNeedsState) {
    parallel_for(y.numel(), kSide * kSide, [write, distances = y.as<T>()](int64_t begin, int64_t end) {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) write(i, static_cast<F>(distances[i]), F(0));
    });
  } else {
    using State = typename Order::template Backward<Wide<F>>;
    for_each_block(y.size(0), rows, cols, [&](int64_t b, int64_t row, int64_t column) {
      States<F, State> states;
      run_block(order, Matrix<T>{x.as<T>() + b * rows * depth, rows, depth},
                Matrix<T>{z.as<T>() + b * cols * depth, cols, depth}, row, column, states);
      for (int64_t r = row; r < std::min(row + kSide, rows); ++r) {
        alignas(64) F values[kSide], counts[kSide];
        read_states(states.of[r - row], values, [](const State& s) { return s.value(); });
        read_states(states.of[r - row], counts, [](const State& s) { return s.count(); });
        for (int64_t c = 0; c < std::min(kSide, cols - column); ++c)
          write((b * rows + r) * cols + column + c, values[c], counts[c]);
      }
    });
  }
}

/// Blocks of a gradient: weights and scales of pairs, rows of the other matrix, and transposed the own rows and the
/// sums.
template <class F>
struct GradientBlocks {
  Block<F> weights, scales, others, own, sums;
};

/// Adds the gradients of `count` rows of the other matrix to kRowsTogether elements from m on, at vector v of own rows.
template <class Order, class F>
void add_gradients(const Order& order, GradientBlocks<F>& blocks, int64_t count, int64_t m, int64_t v) {
  const int64_t at = v * Wide<F>::kLanes;
  Wide<F> sums[kRowsTogether][kVectorsTogether], own[kRowsTogether][kVectorsTogether];
  for (int i = 0; i < kRowsTogether; ++i)
    for (int c = 0; c < kVectorsTogether; ++c) {
      sums[i][c] = Wide<F>(F(0));
      own[i][c] = Wide<F>::load(blocks.own.at[m + i] + at + c * Wide<F>::kLanes);
    }
  for (int64_t r = 0; r < count; ++r)
    for (int c = 0; c < kVectorsTogether; ++c) {
      const int64_t place = at + c * Wide<F>::kLanes;
      const Wide<F> weight = Wide<F>::load(blocks.weights.at[r] + place);
      const Wide<F> scale = Order::kUsesScale ? Wide<F>::load(blocks.scales.at[r] + place) : weight;
      for (int i = 0; i < kRowsTogether; ++i)
        sums[i][c] = sums[i][c] + order.gradient(own[i][c] - Wide<F>(blocks.others.at[r][m + i]), weight, scale);
    }
  for (int i = 0; i < kRowsTogether; ++i)
    for (int c = 0; c < kVectorsTogether; ++c) {
      F* const to = blocks.sums.at[m + i] + at + c * Wide<F>::kLanes;
      (Wide<F>::load(to) + sums[i][c]).store(to);
    }
}

/// The gradient of `own`, whose rows are the rows of the matrix of pairs, or its columns.
template <class T, class Order, class F>
void run_gradient(const Order& order, bool own_are_rows, ConstView own, ConstView others, const Pairs<F>& pairs,
                  View gradient) {
  const int64_t rows = own.size(1), depth = own.size(2), count = others.size(1);
  for_each_block(own.size(0), rows, depth, [&](int64_t b, int64_t row, int64_t column) {
    const int64_t height = std::min(kSide, rows - row), width = std::min(kSide, depth - column);
    GradientBlocks<F> blocks;
    blocks.own.load_transposed(own.as<T>() + (b * rows + row) * depth + column, depth, height, width);
    std::fill_n(&blocks.sums.at[0][0], kSide * kSide, F(0));
    for (int64_t other = 0; other < count; other += kSide) {
      const int64_t part = std::min(kSide, count - other);
      blocks.others.load(others.as<T>() + (b * count + other) * depth + column, depth, part, width);
      const auto load = [&](Block<F>& to, const F* from) {
        from += b * rows * count;
        if (own_are_rows)
          to.load_transposed(from + row * count + other, count, height, part);
        else
          to.load(from + other * rows + row, rows, part, height);
      };
      load(blocks.weights, pairs.weights);
      if constexpr (Order::kUsesScale) load(blocks.scales, pairs.scales);
      for (int64_t m = 0; m < width; m += kRowsTogether)
        for (int64_t v = 0; v * Wide<F>::kLanes < height; v += kVectorsTogether)
          add_gradients(order, blocks, part, m, v);
    }
    for (int64_t r = 0; r < height; ++r) {
      alignas(64) F values[kSide];
      for (int64_t c = 0; c < width; ++c) values[c] = blocks.sums.at[c][r];
      narrow(values, gradient.as<T>() + (b * rows + row + r) * depth + column, width);
    }
  });
}

int64_t pairs_bytes(ConstView y) {
  return y.numel() * static_cast<int64_t>(y.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float));
}

}  // namespace

void cdist_forward(Stream, double order, ConstView x, ConstView z, View y) {
  distance::with_order(
      order, [&](const auto& of) { dispatch_float(y.dtype, [&]<class T>() { run_forward<T>(of, x, z, y); }); });
}

int64_t cdist_backward_workspace(Stream, double order, ConstView y) {
  int64_t bytes = 0;
  distance::with_order(order, [&]<class Order>(const Order&) {
    bytes = Order::kHasGradient ? (Order::kUsesScale ? 2 : 1) * pairs_bytes(y) : 0;
  });
  return bytes;
}

void cdist_backward(Stream, double order, ConstView x, ConstView z, ConstView y, ConstView dy, void* workspace, View dx,
                    View dz) {
  distance::with_order(order, [&]<class Order>(const Order& of) {
    dispatch_float(y.dtype, [&]<class T>() {
      using F = ComputeType<T>;
      if constexpr (!Order::kHasGradient) {
        for (const View& gradient : {dx, dz})
          if (gradient) std::fill_n(gradient.as<T>(), gradient.numel(), T(F(0)));
      } else {
        const Pairs<F> pairs{static_cast<F*>(workspace), static_cast<F*>(workspace) + y.numel()};
        find_pairs<F, T>(of, x, z, y, dy, pairs);
        if (dx) run_gradient<T>(of, true, x, z, pairs, dx);
        if (dz) run_gradient<T>(of, false, z, x, pairs, dz);
      }
    });
  });
}

}  // namespace tern::kernels::TERN_CPU
