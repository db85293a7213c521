// Softmax and log-softmax over a dimension whose elements are not neighbours: blocks of columns, as those of short rows
// (kernels/cpu/short_rows.h), without a transposition.

#include "tern/kernels/cpu/short_rows.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/softmax.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Elements of a block that are kept in the compute type between passes; longer columns are read again.
template <class F>
constexpr int64_t kKeptElements = 262144 / sizeof(F);

/// The columns of contiguous [outer, size, inner], counted over outer and inner.
struct Columns {
  int64_t outer, size, inner;

  explicit Columns(const ConstView& x) : outer(x.shape[0]), size(x.shape[1]), inner(x.shape[2]) {}
  /// Calls body(first, n) for blocks of n <= width columns, in parallel.
  template <class Body>
  void for_blocks(int64_t width, const Body& body) const {
    const int64_t grain = std::max<int64_t>(1, 16384 / (width * size)) * width;
    parallel_for(outer * inner, grain, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += width) body(first, std::min(width, end - first));
    });
  }
};

/// Where a block of n columns is in memory.
template <class F>
class ColumnBlock {
 public:
  static constexpr int64_t kWidth = kBlockRows<F>;

  ColumnBlock(const Columns& columns, int64_t first, int64_t n) : inner_(columns.inner), n_(n) {
    for (int64_t c = first; c < first + n; c += pieces_[count_++].size) {
      const int64_t place = c % inner_;
      pieces_[count_] = {c / inner_ * columns.size * inner_ + place, std::min(inner_ - place, first + n - c)};
    }
  }
  /// row[c] = element k of column c, 0 where there is no column.
  template <class T>
  void read(const T* x, int64_t k, F* __restrict row) const {
    const T* __restrict const from = x + pieces_[0].offset + k * inner_;
    if (pieces_[0].size == kWidth) {
      for (int64_t i = 0; i < kWidth; ++i) row[i] = static_cast<F>(static_cast<ComputeType<T>>(from[i]));
      return;
    }
    for (int64_t p = 0, at = 0; p < count_; at += pieces_[p++].size)
      for (int64_t i = 0; i < pieces_[p].size; ++i)
        row[at + i] = static_cast<F>(static_cast<ComputeType<T>>(x[pieces_[p].offset + k * inner_ + i]));
    std::fill(row + n_, row + kWidth, F(0));
  }
  /// Element k of all columns in y, where they are kWidth neighbours of the compute type; otherwise null.
  template <class T>
  F* in_place(T* y, int64_t k) const {
    if constexpr (std::is_same_v<T, F>)
      return pieces_[0].size == kWidth ? y + pieces_[0].offset + k * inner_ : nullptr;
    else
      return nullptr;
  }
  template <class T>
  void write(const F* row, int64_t k, T* y) const {
    if (pieces_[0].size == kWidth) return narrow(row, y + pieces_[0].offset + k * inner_, kWidth);
    for (int64_t p = 0; p < count_; row += pieces_[p++].size)
      narrow(row, y + pieces_[p].offset + k * inner_, pieces_[p].size);
  }

 private:
  struct Piece {
    int64_t offset, size;  // neighbouring columns
  };
  int64_t inner_, n_, count_ = 0;
  Piece pieces_[kWidth];
};

/// `kept`: space for kKeptElements.
template <class T, class F>
void softmax_block(bool log, const T* x, const ColumnBlock<F>& block, int64_t size, F* kept, T* y) {
  constexpr int64_t kWidth = kBlockRows<F>;
  const bool keeps = size * kWidth <= kKeptElements<F>;
  alignas(64) F tile[kWidth], powers[kWidth], largest[kWidth], scale[kWidth];
  const auto row = [&](int64_t k, bool first) {
    F* const to = keeps ? kept + k * kWidth : tile;
    if (first || !keeps) block.read(x, k, to);
    return to;
  };
  std::fill_n(largest, kWidth, -std::numeric_limits<F>::infinity());
  for (int64_t k = 0; k < size; ++k) {
    const F* const values = row(k, true);
    for (int64_t c = 0; c < kWidth; ++c) largest[c] = values[c] > largest[c] ? values[c] : largest[c];
  }
  BlockSums<F> sums;
  for (int64_t k = 0; k < size; ++k) {
    F* const values = row(k, false);
    F* const to = keeps && !log ? values : powers;
#pragma GCC ivdep
    for (int64_t c = 0; c < kWidth; ++c) to[c] = math::exp_nonpositive(values[c] - largest[c]);
    sums.add(k, to);
  }
  const F* const sum = sums.totals(size);
  if (log)
    for (int64_t c = 0; c < kWidth; ++c) scale[c] = math::log(sum[c]);
  else
    for (int64_t c = 0; c < kWidth; ++c) scale[c] = F(1) / sum[c];
  for (int64_t k = 0; k < size; ++k) {
    const F* const values = row(k, false);
    F* const place = block.in_place(y, k);
    F* const to = place ? place : powers;
    if (log)
#pragma GCC ivdep
      for (int64_t c = 0; c < kWidth; ++c) to[c] = values[c] - largest[c] - scale[c];
    else if (keeps)
#pragma GCC ivdep
      for (int64_t c = 0; c < kWidth; ++c) to[c] = values[c] * scale[c];
    else
#pragma GCC ivdep
      for (int64_t c = 0; c < kWidth; ++c) to[c] = math::exp_nonpositive(values[c] - largest[c]) * scale[c];
    if (!place) block.write(powers, k, y);
  }
}

template <class T, class F>
void softmax_backward_block(bool log, const T* y, const T* dy, const ColumnBlock<F>& block, int64_t size, T* dx) {
  constexpr int64_t kWidth = kBlockRows<F>;
  alignas(64) F outputs[kWidth], gradients[kWidth], products[kWidth];
  BlockSums<F> sums;
  for (int64_t k = 0; k < size; ++k) {
    block.read(dy, k, products);
    if (!log) {
      block.read(y, k, outputs);
      for (int64_t c = 0; c < kWidth; ++c) products[c] *= outputs[c];
    }
    sums.add(k, products);
  }
  const F* const total = sums.totals(size);
  for (int64_t k = 0; k < size; ++k) {
    block.read(y, k, outputs);
    block.read(dy, k, gradients);
    if (log)
      for (int64_t c = 0; c < kWidth; ++c) products[c] = gradients[c] - math::exp(outputs[c]) * total[c];
    else
      for (int64_t c = 0; c < kWidth; ++c) products[c] = outputs[c] * (gradients[c] - total[c]);
    block.write(products, k, dx);
  }
}

}  // namespace

void softmax_columns_forward(Stream, bool log, ConstView x, View y) {
  if (x.numel() == 0) return;
  const Columns columns(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    columns.for_blocks(kBlockRows<F>, [&](int64_t first, int64_t n) {
      alignas(64) F kept[kKeptElements<F>];
      softmax_block(log, x.as<T>(), ColumnBlock<F>(columns, first, n), columns.size, kept, y.as<T>());
    });
  });
}

void softmax_columns_backward(Stream, bool log, ConstView y, ConstView dy, View dx) {
  if (y.numel() == 0) return;
  const Columns columns(y);
  dispatch_float(y.dtype, [&]<class T>() {
    using F = ComputeType<T>;
    columns.for_blocks(kBlockRows<F>, [&](int64_t first, int64_t n) {
      softmax_backward_block(log, y.as<T>(), dy.as<T>(), ColumnBlock<F>(columns, first, n), columns.size, dx.as<T>());
    });
  });
}

}  // namespace tern::kernels::TERN_CPU
