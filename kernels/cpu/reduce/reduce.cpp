// Reductions. Values are combined in fp32 (fp64, int64) over blocks of at most 4096 elements with 32 lanes each, and
// the blocks' results in fp64 (int64), in an order that depends only on the shape.

#include "tern/kernels/reduce.h"

#include "tern/kernels/cpu/reduce/ops.h"
#include "tern/kernels/cpu/reduce/source.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kRowBlock = 128;  // a multiple of every op's kRows
constexpr int64_t kMaxSplits = 32;  // maximum number of parts of tall columns

/// Writes results.
struct Sink {
  View y;
  int64_t mean_of = 0;  // > 0: the divisor of a mean
  bool mean = false;
  bool accumulate = false;

  /// n <= kStage values, `stride` apart from `offset` on.
  template <class W>
  void store(int64_t offset, int64_t stride, W* values, int64_t n) const {
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

/// Where Op::join_rows reads rows: in x, or in columns of short rows.
template <class F>
struct RowsOf {
  const Source<F>& x;
  const Layout<2>& reduced;
  int64_t base, stride, columns;
  const ColumnsOfRows<F>* transposed = nullptr;

  int64_t offset_of(int64_t row) const {
    const int64_t inner = reduced.inner(), inner_stride = reduced.inner_stride(0);
    const int64_t within =
        reduced.dims == 1 ? row * inner_stride : reduced.row_offset(0, row / inner) + row % inner * inner_stride;
    return base + within;
  }
  const F* operator()(int64_t row, F* tile) const {
    return transposed ? transposed->column(row) : x.load(offset_of(row), stride, columns, tile);
  }
};
/// The same for bfloat16, which is converted in registers.
struct BFloat16RowsOf {
  const RowsOf<float>& rows;
  const BFloat16* operator()(int64_t row, float*) const {
    return static_cast<const BFloat16*>(rows.x.data) + rows.offset_of(row);
  }
};

/// An operation of kernels/cpu/reduce/ops.h on elements computed in F. What walks over x calls it by pointers, so that
/// it is compiled once for F and not for each operation. States are arrays of state_bytes each.
template <class F>
struct Steps {
  int64_t columns;      // Op::kColumns
  int64_t state_bytes;  // at most kStateBytes
  /// The state of elements [begin, end) of the reduced dimensions, in order, for the result at x offset `base`.
  void (*range)(const Source<F>& x, const Layout<2>& reduced, int64_t base, int64_t begin, int64_t end, void* state);
  /// The states of rows.columns columns of rows [begin, end).
  void (*rows)(const RowsOf<F>& rows, int64_t begin, int64_t end, void* totals);
  /// Joins n states, `others`, to those of `totals`; null: makes `totals` those of no elements.
  void (*join)(void* totals, const void* others, int64_t n);
  /// Writes the results of n <= kStage states, `stride` apart from `offset` on.
  void (*store)(const Sink& sink, int64_t offset, int64_t stride, const void* states, int64_t n);
};
constexpr int64_t kStateBytes = 24;
constexpr int64_t kColumnsBytes = 512 * kStateBytes;  // at least the states of an operation's columns

template <class Op, class F>
struct StepsOf {
  using State = typename Op::template State<F>;
  static_assert(sizeof(State) <= kStateBytes && Op::kColumns * sizeof(State) <= kColumnsBytes &&
                Op::kColumns <= kStage);

  static void range(const Source<F>& x, const Layout<2>& reduced, int64_t base, int64_t begin, int64_t end, void* to) {
    alignas(64) F tile[kStage];
    const int64_t inner = reduced.inner(), stride = reduced.inner_stride(0);
    const bool narrow = takes_bfloat16<Op>(x, stride);
    const int64_t run = x.is_direct(stride) || narrow ? kRun : kStage;
    const auto state_of = [&](int64_t offset, int64_t n) {
      if constexpr (kTakesBFloat16<Op, F>)
        if (narrow) return Op::of(static_cast<const BFloat16*>(x.data) + offset, n);
      return Op::of(x.load(offset, stride, n, tile), n);
    };
    State total = Op::template none<F>();
    int64_t row = begin == 0 ? 0 : begin / inner, column = begin - row * inner;
    for (int64_t i = begin; i < end;) {
      const int64_t n = std::min({run, inner - column, end - i});
      total = Op::join(total, state_of(base + reduced.row_offset(0, row) + column * stride, n));
      i += n;
      column += n;
      if (column < inner) continue;
      column = 0;
      ++row;
    }
    *static_cast<State*>(to) = total;
  }
  static void rows(const RowsOf<F>& rows, int64_t begin, int64_t end, void* to) {
    State* const totals = static_cast<State*>(to);
    join(totals, nullptr, rows.columns);
    const auto join_blocks = [&](const auto& load_row) {
      for (int64_t block = begin; block < end; block += Op::kRows)
        Op::template join_rows<F>(load_row, block, std::min(end, block + Op::kRows), rows.columns, totals);
    };
    if constexpr (kTakesBFloat16<Op, F>)
      if (!rows.transposed && takes_bfloat16<Op>(rows.x, rows.stride)) return join_blocks(BFloat16RowsOf{rows});
    join_blocks(rows);
  }
  static void join(void* to, const void* from, int64_t n) {
    State* const totals = static_cast<State*>(to);
    if (!from) {
      std::fill_n(totals, n, Op::template none<F>());
      return;
    }
    for (int64_t i = 0; i < n; ++i) totals[i] = Op::join(totals[i], static_cast<const State*>(from)[i]);
  }
  static void store(const Sink& sink, int64_t offset, int64_t stride, const void* from, int64_t n) {
    const State* const states = static_cast<const State*>(from);
    alignas(64) decltype(Op::result(states[0])) values[kStage];
    for (int64_t i = 0; i < n; ++i) values[i] = Op::result(states[i]);
    sink.store(offset, stride, values, n);
  }
  static constexpr Steps<F> steps{Op::kColumns, sizeof(State), range, rows, join, store};
};

/// The dimension of x's smallest stride is reduced: one result at a time, a long one in parts.
template <class F>
void reduce_inner(const Steps<F>& op, const Source<F>& x, const Split& split, const Sink& sink) {
  const int64_t results = split.kept.numel(), length = split.reduced.numel();
  if (!is_divided(split, length)) {
    return parallel_for(results, results_per_block(length, 1), [&](int64_t b, int64_t e) {
      alignas(64) char states[kStage * kStateBytes];
      for_neighbours(split.kept, b, e, [&](const Neighbours& to) {
        for (int64_t i = 0; i < to.count; ++i)
          op.range(x, split.reduced, to.x_offset + i * to.x_stride, 0, length, states + i * op.state_bytes);
        op.store(sink, to.y_offset, to.y_stride, states, to.count);
      });
    });
  }
  const int64_t part = part_of(length);
  for_neighbours(split.kept, 0, results, [&](const Neighbours& to) {
    for (int64_t i = 0; i < to.count; ++i) {
      alignas(64) char parts[kMaxParts * kStateBytes], total[kStateBytes];
      parallel_for(length, part, [&](int64_t b, int64_t e) {
        op.range(x, split.reduced, to.x_offset + i * to.x_stride, b, e, parts + b / part * op.state_bytes);
      });
      op.join(total, nullptr, 1);
      for (int64_t p = 0; p < ceil_div(length, part); ++p) op.join(total, parts + p * op.state_bytes, 1);
      op.store(sink, to.y_offset + i * to.y_stride, 0, total, 1);
    }
  });
}

/// Short rows: blocks of them are transposed, and then their columns are combined as those of reduce_outer.
template <class F>
void reduce_short(const Steps<F>& op, const Source<F>& x, const Split& split, const Sink& sink) {
  constexpr int64_t kRows = kBlockRows<F>;
  const int64_t length = split.reduced.numel();
  parallel_for(split.kept.numel(), results_per_block(length, kRows), [&](int64_t b, int64_t e) {
    alignas(64) char totals[kRows * kStateBytes];
    ColumnsOfRows<F> columns;
    for_neighbours(split.kept, b, e, [&](const Neighbours& all) {
      for (int64_t first = 0; first < all.count; first += kRows) {
        const int64_t n = std::min(kRows, all.count - first);
        columns.load(x, split.reduced, all.x_offset + first * all.x_stride, all.x_stride, n);
        op.rows({x, split.reduced, 0, 0, n, &columns}, 0, length, totals);
        op.store(sink, all.y_offset + first * all.y_stride, all.y_stride, totals, n);
      }
    });
  });
}

/// The dimension of x's smallest stride is kept: many results together; tall columns in parts if there are few.
template <class F>
void reduce_outer(const Steps<F>& op, const Source<F>& x, const Split& split, const Sink& sink) {
  const int64_t inner = split.kept.inner(), length = split.reduced.numel();
  const int64_t chunks = ceil_div(inner, op.columns), tasks = split.kept.numel() / inner * chunks;
  const int64_t x_stride = split.kept.inner_stride(0), y_stride = split.kept.inner_stride(1);
  struct Task {
    int64_t y_offset;
    RowsOf<F> rows;
  };
  const auto task_at = [&](int64_t task) {
    const int64_t row = task / chunks, column = task % chunks * op.columns;
    return Task{split.kept.row_offset(1, row) + column * y_stride,
                {x, split.reduced, split.kept.row_offset(0, row) + column * x_stride, x_stride,
                 std::min(op.columns, inner - column)}};
  };
  const int64_t width = std::min(inner, op.columns);
  if (tasks >= 16 || length * width < 2 * kBlock) {
    return parallel_for(tasks, std::max<int64_t>(1, kBlock / std::max<int64_t>(length * width, 1)),
                        [&](int64_t b, int64_t e) {
                          alignas(64) char totals[kColumnsBytes];
                          for (int64_t t = b; t < e; ++t) {
                            const Task task = task_at(t);
                            op.rows(task.rows, 0, length, totals);
                            op.store(sink, task.y_offset, y_stride, totals, task.rows.columns);
                          }
                        });
  }
  const int64_t part = std::max({kRowBlock, ceil_div(ceil_div(length, kMaxSplits), kRowBlock) * kRowBlock});
  for (int64_t t = 0; t < tasks; ++t) {
    alignas(64) char parts[kMaxSplits][kColumnsBytes], totals[kColumnsBytes];
    const Task task = task_at(t);
    parallel_for(length, part, [&](int64_t b, int64_t e) { op.rows(task.rows, b, e, parts[b / part]); });
    op.join(totals, nullptr, task.rows.columns);
    for (int64_t p = 0; p < ceil_div(length, part); ++p) op.join(totals, parts[p], task.rows.columns);
    op.store(sink, task.y_offset, y_stride, totals, task.rows.columns);
  }
}

template <class F>
void reduce_with(const Steps<F>& op, ConstView x, const Split& split, const Sink& sink) {
  const Source<F> source{x.data, x.dtype};
  if (split.has_short_rows())
    reduce_short(op, source, split, sink);
  else if (split.inner_reduced)
    reduce_inner(op, source, split, sink);
  else
    reduce_outer(op, source, split, sink);
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
  dispatch_compute(x.dtype, [&]<class F>() {
    with_op<F>(reduction, [&]<class Op>(Op) { reduce_with(StepsOf<Op, F>::steps, x, split, sink); });
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
  dispatch_compute(x.dtype, [&]<class F>() {
    reduce_outer(StepsOf<Numbers<Sum>, F>::steps, Source<F>{x.data, x.dtype}, split, sink);
  });
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
