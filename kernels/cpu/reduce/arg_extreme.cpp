// Positions of extremes.

#include "tern/kernels/cpu/reduce/ops.h"
#include "tern/kernels/cpu/reduce/source.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// True when a precedes b as the largest (smallest): NaN precedes everything except NaN.
template <class F>
bool beats(bool largest, F a, F b) {
  return (largest ? a > b : a < b) | ((a != a) & (b == b));
}

/// The first extreme element of some, and its position; -1 of none.
template <class F>
struct Extreme {
  F value{};
  int64_t position = -1;

  /// Joins that of later elements.
  void join(bool largest, const Extreme& later) {
    if (position < 0 || (later.position >= 0 && beats(largest, later.value, value))) *this = later;
  }
};

/// The position of the first of n elements that equals `value`, or is NaN if it is; there is one.
template <class F>
int64_t position_of(F value, const F* x, int64_t n) {
  const bool is_nan = value != value;
  const auto matches = [=](F element) { return (element == value) | ((element != element) & is_nan); };
  constexpr int64_t kGroup = 64;
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    int32_t any = 0;
    for (int64_t k = 0; k < kGroup; ++k) any |= matches(x[i + k]) ? 1 : 0;
    if (any != 0) break;
  }
  while (!matches(x[i])) ++i;
  return i;
}

/// The first extreme element among elements [begin, end), `stride` apart, of the row at `base`.
template <class F>
Extreme<F> extreme_of_row(const Source<F>& x, bool largest, int64_t base, int64_t stride, int64_t begin, int64_t end) {
  alignas(64) F tile[kStage];
  const auto value_of = [&](int64_t offset, int64_t n) {
    const auto reduce = [&](const auto* values) {
      return largest ? reduce_contiguous<Largest>(values, n) : reduce_contiguous<Smallest>(values, n);
    };
    if constexpr (kTakesBFloat16<Numbers<Largest>, F>)
      if (takes_bfloat16<Numbers<Largest>>(x, stride)) return reduce(static_cast<const BFloat16*>(x.data) + offset);
    return reduce(x.load(offset, stride, n, tile));
  };
  Extreme<F> best;
  for (int64_t start = begin; start < end; start += kStage) {
    const int64_t n = std::min(kStage, end - start), offset = base + start * stride;
    const F value = value_of(offset, n);
    if (best.position >= 0 && !beats(largest, value, best.value)) continue;
    best = {value, start + position_of(value, x.load(offset, stride, n, tile), n)};
  }
  return best;
}

/// The same of a whole long row, by all threads.
template <class F>
Extreme<F> extreme_of_long_row(const Source<F>& x, bool largest, int64_t base, int64_t stride, int64_t length) {
  const int64_t part = part_of(length);
  Extreme<F> parts[kMaxParts], best;
  parallel_for(length, part,
               [&](int64_t b, int64_t e) { parts[b / part] = extreme_of_row(x, largest, base, stride, b, e); });
  for (int64_t p = 0; p < ceil_div(length, part); ++p) best.join(largest, parts[p]);
  return best;
}

/// The positions of the extremes of `columns` <= kStage neighbouring columns; load(k, tile) reads their elements
/// k.
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
    for (int64_t i = 0; i < to.count; ++i) {
      const int64_t base = to.x_offset + i * to.x_stride;
      positions[i] = (is_divided(split, length) ? extreme_of_long_row(x, largest, base, stride, length)
                                                : extreme_of_row(x, largest, base, stride, 0, length))
                         .position;
    }
  } else {
    const auto load = [&](int64_t k, F* tile) { return x.load(to.x_offset + k * stride, to.x_stride, to.count, tile); };
    extreme_of_columns<F>(load, largest, to.count, length, positions);
  }
}

}  // namespace

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

}  // namespace tern::kernels::TERN_CPU
