// Reductions. Values are combined in fp32 (fp64, int64) over blocks of at most 4096 elements with 32 lanes each, and
// the blocks' results in fp64 (int64), in an order that depends only on the shape.

#include "tern/kernels/reduce.h"

#include "tern/kernels/cpu/reduce_ops.h"
#include "tern/kernels/cpu/short_rows.h"
#include "tern/kernels/cpu/tile.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kStage = 1024;       // elements in a staging buffer
constexpr int64_t kRun = 4096;         // maximum number of elements combined in the compute type
constexpr int64_t kBlock = 32768;      // elements per parallel block
constexpr int64_t kMaxParts = 256;     // maximum number of parts of one long row
constexpr int64_t kRowBlock = 128;     // a multiple of every op's kRows
constexpr int64_t kMaxSplits = 32;     // maximum number of parts of tall columns
constexpr int64_t kMinNeighbours = 8;  // fewer short rows are combined one by one

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// Results per parallel block, a multiple of `unit`, each of `length` elements.
constexpr int64_t results_per_block(int64_t length, int64_t unit) {
  return std::max<int64_t>(1, kBlock / std::max<int64_t>(length, 1) / unit) * unit;
}

/// The kept and the reduced dimensions of x, each coalesced. Operand 0 is x, operand 1 the result.
struct Split {
  Layout<2> kept, reduced;
  bool inner_reduced = false;  // x's smallest stride belongs to a reduced dimension

  /// True when rows are combined in blocks of neighbours.
  bool has_short_rows() const {
    const int64_t length = reduced.numel();
    return inner_reduced && length > 0 && length <= kShortRow && kept.inner() >= kMinNeighbours;
  }
};

Split split_dims(ConstView x, uint32_t dims, View y) {
  int64_t result_strides[kMaxDims];
  for (int d = 0; d < x.dims; ++d) result_strides[d] = dims >> d & 1 ? 0 : y.strides[d];
  const Layout<2> all = make_layout(x.dims, x.shape, {x.strides, result_strides});
  Split split;
  for (int d = 0; d < all.dims; ++d) {
    const int64_t strides[] = {all.strides[0][d], all.strides[1][d]};
    split.inner_reduced = strides[1] == 0;
    (split.inner_reduced ? split.reduced : split.kept).append(all.shape[d], strides);
  }
  for (Layout<2>* layout : {&split.kept, &split.reduced}) {
    layout->merge();
    layout->finish();
  }
  return split;
}

/// The memory of x; loads elements in the compute type.
template <class F>
struct Source {
  const void* data;
  DType dtype;
  /// A pointer to n elements from `offset` on: into x, or to `tile` after filling it with them (then n <= kStage).
  const F* load(int64_t offset, int64_t stride, int64_t n, F* tile) const {
    if (is_direct(stride)) return static_cast<const F*>(data) + offset;
    load_tile(dtype, data, offset, stride, n, tile);
    return tile;
  }
  bool is_direct(int64_t stride) const { return dtype == dtype_of<F>() && stride == 1; }
};

/// The columns of a block of short rows.
template <class F>
class ColumnsOfRows {
 public:
  /// n <= kBlockRows rows, x_stride apart from `offset` on.
  void load(const Source<F>& x, const Layout<2>& reduced, int64_t offset, int64_t x_stride, int64_t n) {
    const int64_t length = reduced.numel(), inner = reduced.inner();
    if (reduced.is_linear(0) && x_stride == length) {
      const F* rows = static_cast<const F*>(x.data) + offset;
      if (!x.is_direct(1)) {
        load_tile(x.dtype, x.data, offset, 1, n * length, rows_);
        rows = rows_;
      }
      return rows_to_columns(rows, n, length, columns_);
    }
    for (int64_t k = 0; k < length; ++k) {
      const int64_t at = offset + reduced.row_offset(0, k / inner) + k % inner * reduced.inner_stride(0);
      load_tile(x.dtype, x.data, at, x_stride, n, columns_ + k * kBlockRows<F>);
    }
  }
  const F* column(int64_t c) const { return columns_ + c * kBlockRows<F>; }

 private:
  alignas(64) F rows_[kBlockRows<F> * kShortRow];
  alignas(64) F columns_[kBlockRows<F> * kShortRow];
};

/// Writes results.
struct Sink {
  View y;
  int64_t mean_of = 0;  // > 0: the divisor of a mean
  bool mean = false;
  bool accumulate = false;

  /// Of n <= kStage states, `stride` apart from `offset` on.
  template <class Op, class State>
  void store(int64_t offset, int64_t stride, const State* states, int64_t n) const {
    using W = decltype(Op::result(states[0]));
    alignas(64) W values[kStage];
    for (int64_t i = 0; i < n; ++i) values[i] = Op::result(states[i]);
    if (accumulate) {
      alignas(64) W present[kStage];
      load_tile(y.dtype, y.data, offset, stride, n, present);
      for (int64_t i = 0; i < n; ++i) values[i] += present[i];
    }
    if (mean) {
      alignas(64) double means[kStage];
      for (int64_t i = 0; i < n; ++i) means[i] = static_cast<double>(values[i]) / static_cast<double>(mean_of);
      return store_tile(y.dtype, y.data, offset, stride, n, means);
    }
    store_tile(y.dtype, y.data, offset, stride, n, values);
  }
};

/// Combines elements [begin, end) of the reduced dimensions, in order, for the result at x offset `base`.
template <class Op, class F>
typename Op::template State<F> reduce_range(const Source<F>& x, const Layout<2>& reduced, int64_t base, int64_t begin,
                                            int64_t end) {
  alignas(64) F tile[kStage];
  const int64_t inner = reduced.inner(), stride = reduced.inner_stride(0);
  // bfloat16 is converted in registers, without a staging buffer.
  constexpr bool kTakesBFloat16 = Op::kTakesBFloat16 && std::is_same_v<F, float>;
  const bool narrow = kTakesBFloat16 && x.dtype == DType::kBFloat16 && stride == 1;
  const int64_t run = x.is_direct(stride) || narrow ? kRun : kStage;
  const auto state_of = [&](int64_t offset, int64_t n) {
    if constexpr (kTakesBFloat16)
      if (narrow) return Op::of(static_cast<const BFloat16*>(x.data) + offset, n);
    return Op::of(x.load(offset, stride, n, tile), n);
  };
  auto total = Op::template none<F>();
  int64_t row = begin == 0 ? 0 : begin / inner, column = begin - row * inner;
  for (int64_t i = begin; i < end;) {
    const int64_t n = std::min({run, inner - column, end - i});
    const int64_t offset = base + reduced.row_offset(0, row) + column * stride;
    total = Op::join(total, state_of(offset, n));
    i += n;
    column += n;
    if (column < inner) continue;
    column = 0;
    ++row;
  }
  return total;
}

/// Results that are neighbours in x and in y.
struct Neighbours {
  int64_t x_offset, x_stride, y_offset, y_stride, count;
};
/// Calls body for the kept elements [begin, end), at most kStage at a time.
template <class Body>
void for_neighbours(const Layout<2>& kept, int64_t begin, int64_t end, const Body& body) {
  const int64_t inner = kept.inner(), x_stride = kept.inner_stride(0), y_stride = kept.inner_stride(1);
  for (int64_t i = begin; i < end;) {
    const int64_t row = i / inner, column = i % inner, n = std::min({kStage, inner - column, end - i});
    body(Neighbours{kept.row_offset(0, row) + column * x_stride, x_stride, kept.row_offset(1, row) + column * y_stride,
                    y_stride, n});
    i += n;
  }
}

/// The dimension of x's smallest stride is reduced: one result at a time, a long one in parts.
template <class Op, class F>
void reduce_inner(const Source<F>& x, const Split& split, const Sink& sink) {
  using State = typename Op::template State<F>;
  const int64_t results = split.kept.numel(), length = split.reduced.numel();
  if (results >= 64 || length < 2 * kBlock) {
    return parallel_for(results, results_per_block(length, 1), [&](int64_t b, int64_t e) {
      State states[kStage];
      for_neighbours(split.kept, b, e, [&](const Neighbours& to) {
        for (int64_t i = 0; i < to.count; ++i)
          states[i] = reduce_range<Op>(x, split.reduced, to.x_offset + i * to.x_stride, 0, length);
        sink.template store<Op>(to.y_offset, to.y_stride, states, to.count);
      });
    });
  }
  const int64_t part = std::max(kBlock, ceil_div(ceil_div(length, kMaxParts), kRun) * kRun);
  for_neighbours(split.kept, 0, results, [&](const Neighbours& to) {
    for (int64_t i = 0; i < to.count; ++i) {
      State parts[kMaxParts];
      parallel_for(length, part, [&](int64_t b, int64_t e) {
        parts[b / part] = reduce_range<Op>(x, split.reduced, to.x_offset + i * to.x_stride, b, e);
      });
      State total = Op::template none<F>();
      for (int64_t p = 0; p < ceil_div(length, part); ++p) total = Op::join(total, parts[p]);
      sink.template store<Op>(to.y_offset + i * to.y_stride, 0, &total, 1);
    }
  });
}

/// Short rows: blocks of them are transposed, and then their columns are combined as those of reduce_outer.
template <class Op, class F>
void reduce_short(const Source<F>& x, const Split& split, const Sink& sink) {
  constexpr int64_t kRows = kBlockRows<F>;
  const int64_t length = split.reduced.numel();
  parallel_for(split.kept.numel(), results_per_block(length, kRows), [&](int64_t b, int64_t e) {
    typename Op::template State<F> totals[kRows];
    ColumnsOfRows<F> columns;
    for_neighbours(split.kept, b, e, [&](const Neighbours& all) {
      for (int64_t first = 0; first < all.count; first += kRows) {
        const int64_t n = std::min(kRows, all.count - first);
        columns.load(x, split.reduced, all.x_offset + first * all.x_stride, all.x_stride, n);
        const auto load_column = [&](int64_t column, F*) { return columns.column(column); };
        std::fill_n(totals, n, Op::template none<F>());
        for (int64_t block = 0; block < length; block += Op::kRows)
          Op::template join_rows<F>(load_column, block, std::min(length, block + Op::kRows), n, totals);
        sink.template store<Op>(all.y_offset + first * all.y_stride, all.y_stride, totals, n);
      }
    });
  });
}

/// totals[c] = the combination of rows [begin, end) of the reduced dimensions; `columns` columns from x offset `base`.
template <class Op, class F>
void reduce_rows(const Source<F>& x, const Layout<2>& reduced, int64_t base, int64_t stride, int64_t columns,
                 int64_t begin, int64_t end, typename Op::template State<F>* totals) {
  const int64_t inner = reduced.inner(), inner_stride = reduced.inner_stride(0);
  const auto load_row = [&](int64_t row, F* tile) {
    const int64_t offset =
        reduced.dims == 1 ? row * inner_stride : reduced.row_offset(0, row / inner) + row % inner * inner_stride;
    return x.load(base + offset, stride, columns, tile);
  };
  std::fill_n(totals, columns, Op::template none<F>());
  for (int64_t block = begin; block < end; block += Op::kRows)
    Op::template join_rows<F>(load_row, block, std::min(end, block + Op::kRows), columns, totals);
}

/// The dimension of x's smallest stride is kept: many results together; tall columns in parts if there are few.
template <class Op, class F>
void reduce_outer(const Source<F>& x, const Split& split, const Sink& sink) {
  using State = typename Op::template State<F>;
  constexpr int64_t kColumns = Op::kColumns;
  const int64_t inner = split.kept.inner(), length = split.reduced.numel();
  const int64_t chunks = ceil_div(inner, kColumns), tasks = split.kept.numel() / inner * chunks;
  const int64_t x_stride = split.kept.inner_stride(0), y_stride = split.kept.inner_stride(1);
  struct Task {
    int64_t x_offset, y_offset, columns;
  };
  const auto task_at = [&](int64_t task) {
    const int64_t row = task / chunks, column = task % chunks * kColumns;
    return Task{split.kept.row_offset(0, row) + column * x_stride, split.kept.row_offset(1, row) + column * y_stride,
                std::min(kColumns, inner - column)};
  };
  const int64_t width = std::min(inner, kColumns);
  if (tasks >= 16 || length * width < 2 * kBlock) {
    return parallel_for(tasks, std::max<int64_t>(1, kBlock / std::max<int64_t>(length * width, 1)),
                        [&](int64_t b, int64_t e) {
                          State totals[kColumns];
                          for (int64_t t = b; t < e; ++t) {
                            const Task task = task_at(t);
                            reduce_rows<Op>(x, split.reduced, task.x_offset, x_stride, task.columns, 0, length, totals);
                            sink.template store<Op>(task.y_offset, y_stride, totals, task.columns);
                          }
                        });
  }
  const int64_t part = std::max({kRowBlock, ceil_div(ceil_div(length, kMaxSplits), kRowBlock) * kRowBlock});
  for (int64_t t = 0; t < tasks; ++t) {
    State parts[kMaxSplits][kColumns];
    const Task task = task_at(t);
    parallel_for(length, part, [&](int64_t b, int64_t e) {
      reduce_rows<Op>(x, split.reduced, task.x_offset, x_stride, task.columns, b, e, parts[b / part]);
    });
    State totals[kColumns];
    std::fill_n(totals, task.columns, Op::template none<F>());
    for (int64_t p = 0; p < ceil_div(length, part); ++p)
      for (int64_t c = 0; c < task.columns; ++c) totals[c] = Op::join(totals[c], parts[p][c]);
    sink.template store<Op>(task.y_offset, y_stride, totals, task.columns);
  }
}

template <class Op, class F>
void reduce_with(ConstView x, const Split& split, const Sink& sink) {
  const Source<F> source{x.data, x.dtype};
  if (split.has_short_rows())
    reduce_short<Op>(source, split, sink);
  else if (split.inner_reduced)
    reduce_inner<Op>(source, split, sink);
  else
    reduce_outer<Op>(source, split, sink);
}

/// Calls f with the compute type of a dtype: float, double or int64_t.
template <class Body>
void dispatch_compute(DType dtype, Body&& body) {
  if (dtype == DType::kFloat64)
    body.template operator()<double>();
  else if (is_floating(dtype))
    body.template operator()<float>();
  else
    body.template operator()<int64_t>();
}

/// True when a precedes b as the largest (smallest): NaN precedes everything except NaN.
template <class F>
bool beats(bool largest, F a, F b) {
  return (largest ? a > b : a < b) | ((a != a) & (b == b));
}

/// Position of the first extreme element among `length` elements `stride` apart.
template <class F>
int64_t extreme_of_row(const Source<F>& x, bool largest, int64_t base, int64_t stride, int64_t length) {
  alignas(64) F tile[kStage];
  F best{};
  int64_t position = -1;
  for (int64_t start = 0; start < length; start += kStage) {
    const int64_t n = std::min(kStage, length - start);
    const F* values = x.load(base + start * stride, stride, n, tile);
    const F extreme = largest ? reduce_contiguous<Largest>(values, n) : reduce_contiguous<Smallest>(values, n);
    if (position >= 0 && !beats(largest, extreme, best)) continue;
    best = extreme;
    position = 0;
    while (extreme == extreme ? values[position] != extreme : values[position] == values[position]) ++position;
    position += start;
  }
  return position;
}

/// Like the function above, for `columns` <= kStage neighbouring columns; load(k, tile) reads their elements k.
template <class F, class Load>
void extreme_of_columns(const Load& load, bool largest, int64_t columns, int64_t length, int64_t* positions) {
  alignas(64) F tile[kStage], best[kStage];
  for (int64_t k = 0; k < length; ++k) {
    const F* values = load(k, tile);
#pragma GCC ivdep
    for (int64_t c = 0; c < columns; ++c) {
      const bool better = k == 0 || beats(largest, values[c], best[c]);
      best[c] = better ? values[c] : best[c];
      positions[c] = better ? k : positions[c];
    }
  }
}

/// Positions of the extremes of some neighbouring rows, along x's dimension of size `length` and stride `stride`.
template <class F>
void extremes_of(const Source<F>& x, const Split& split, bool largest, int64_t stride, int64_t length,
                 const Neighbours& to, int64_t* positions) {
  if (split.has_short_rows()) {
    constexpr int64_t kRows = kBlockRows<F>;
    ColumnsOfRows<F> columns;
    for (int64_t first = 0; first < to.count; first += kRows) {
      const int64_t n = std::min(kRows, to.count - first);
      columns.load(x, split.reduced, to.x_offset + first * to.x_stride, to.x_stride, n);
      extreme_of_columns<F>([&](int64_t k, F*) { return columns.column(k); }, largest, n, length, positions + first);
    }
  } else if (split.inner_reduced || to.count == 1) {
    for (int64_t i = 0; i < to.count; ++i)
      positions[i] = extreme_of_row(x, largest, to.x_offset + i * to.x_stride, stride, length);
  } else {
    const auto load = [&](int64_t k, F* tile) { return x.load(to.x_offset + k * stride, to.x_stride, to.count, tile); };
    extreme_of_columns<F>(load, largest, to.count, length, positions);
  }
}

}  // namespace

int64_t reduce_workspace(Stream, ConstView, uint32_t, View) { return 0; }

void reduce(Stream, Reduction reduction, ConstView x, uint32_t dims, void*, View y) {
  if (y.numel() == 0) return;
  check_reduction(reduction, x);
  const Split split = split_dims(x, dims, y);
  Sink sink{y};
  sink.mean = reduction == Reduction::kMean;
  sink.mean_of = split.reduced.numel();
  dispatch_compute(
      x.dtype, [&]<class F>() { with_op<F>(reduction, [&]<class Op>(Op) { reduce_with<Op, F>(x, split, sink); }); });
}

int64_t arg_extreme_workspace(Stream, ConstView, int, View) { return 0; }

void arg_extreme(Stream, bool largest, ConstView x, int dim, void*, View index) {
  if (index.numel() == 0) return;
  const Split split = split_dims(x, 1u << dim, index);
  const int64_t length = x.shape[dim], stride = x.strides[dim];
  dispatch_compute(x.dtype, [&]<class F>() {
    const Source<F> source{x.data, x.dtype};
    const int64_t unit = split.has_short_rows() ? kBlockRows<F> : split.inner_reduced ? 1 : kStage;
    parallel_for(split.kept.numel(), results_per_block(length, unit), [&](int64_t begin, int64_t end) {
      int64_t positions[kStage];
      for_neighbours(split.kept, begin, end, [&](const Neighbours& to) {
        extremes_of(source, split, largest, stride, length, to, positions);
        store_tile(DType::kInt64, index.data, to.y_offset, to.y_stride, to.count, positions);
      });
    });
  });
}

int64_t column_sum_workspace(Stream, int64_t, int64_t, DType) { return 0; }  // partial sums fit on the stack

void column_sum(Stream, ConstView x, bool accumulate, void*, View y) {
  const int64_t columns = x.cols();
  if (columns == 0) return;
  const int64_t rows = x.rows();
  Split split;
  const int64_t kept_strides[] = {1, 1}, reduced_strides[] = {columns, 0};
  split.kept.append(columns, kept_strides);
  split.reduced.append(rows, reduced_strides);
  Sink sink{y};
  sink.accumulate = accumulate;
  dispatch_compute(x.dtype, [&]<class F>() { reduce_outer<Numbers<Sum>>(Source<F>{x.data, x.dtype}, split, sink); });
}

namespace {

constexpr int64_t kNormBlock = kGradientNormBlockOnCpu;

/// The sum of squares of one block: not finite exactly when an element is not.
template <class F>
double block_norm(const void* data, DType dtype, int64_t begin, int64_t end) {
  alignas(64) F tile[kStage];
  const Source<F> x{data, dtype};
  const int64_t run = x.is_direct(1) ? kRun : kStage;
  double total = 0;
  for (int64_t i = begin; i < end; i += run) {
    const int64_t n = std::min(run, end - i);
    const F* values = x.load(i, 1, n, tile);
    const F sum = reduce_contiguous<SumOfSquares>(values, n);
    if (math::isfinite(sum)) {
      total += static_cast<double>(sum);
      continue;
    }
    // Squares of large finite values overflow fp32. In fp64 only elements that are not finite give such a sum.
    for (int64_t j = 0; j < n; ++j) {
      const double value = static_cast<double>(values[j]);
      total += math::isfinite(value) ? std::min(value * value, 1e300) : value - value;
    }
  }
  return total;
}

int64_t count_blocks(const ConstView* tensors, int64_t count) {
  int64_t blocks = 0;
  for (int64_t t = 0; t < count; ++t) blocks += ceil_div(tensors[t].numel(), kNormBlock);
  return blocks;
}

}  // namespace

int64_t gradient_norm_workspace(Stream, int64_t elements, int64_t count) {
  return (elements / kNormBlock + count) * static_cast<int64_t>(sizeof(GradientBlock));
}

void gradient_norm_blocks(Stream, const ConstView* tensors, int64_t count, GradientBlock* blocks) {
  const auto blocks_of = [&](int64_t t) { return ceil_div(tensors[t].numel(), kNormBlock); };
  parallel_for(count_blocks(tensors, count), 16, [&](int64_t begin, int64_t end) {
    int64_t t = 0, first = 0;  // first: index of the tensor's first block
    for (int64_t b = begin; b < end; ++b) {
      while (b >= first + blocks_of(t)) first += blocks_of(t++);
      const ConstView& x = tensors[t];
      const int64_t start = (b - first) * kNormBlock, stop = std::min(start + kNormBlock, x.numel());
      const double sum = x.dtype == DType::kFloat64 ? block_norm<double>(x.data, x.dtype, start, stop)
                                                    : block_norm<float>(x.data, x.dtype, start, stop);
      blocks[b] = {sum, t};
    }
  });
}

/// order may be null: the blocks' order.
void gradient_norm_fold(Stream, const GradientBlock* blocks, const int64_t* order, int64_t count,
                        GradientNorm* result) {
  *result = {0, 0, -1};
  for (int64_t k = 0; k < count; ++k) {
    const GradientBlock& block = blocks[order ? order[k] : k];
    result->sum_of_squares += block.sum;
    if (math::isfinite(block.sum) || result->first_bad >= 0) continue;
    result->non_finite = 1;
    result->first_bad = static_cast<int32_t>(block.tensor);
  }
}

void gradient_norm(Stream stream, const ConstView* tensors, int64_t count, void* workspace, void*,
                   GradientNorm* result) {
  auto* blocks = static_cast<GradientBlock*>(workspace);
  gradient_norm_blocks(stream, tensors, count, blocks);
  gradient_norm_fold(stream, blocks, nullptr, count_blocks(tensors, count), result);
}

}  // namespace tern::kernels::TERN_CPU
