// Running sums and extremes, and the positions of set flags, in three steps: the sum of each part of fixed size, the
// sums of all parts before each part in order, and the scan of each part from that start value.

#include "tern/kernels/scan.h"

#include <algorithm>
#include <utility>

#include "tern/kernels/convert.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kBlock = 32768;  // elements per parallel block
constexpr int64_t kPart = 4112;    // of a long row: parts whose distance is a power of two would share few cache lines
constexpr int64_t kParts = 8;      // of a parallel block of a long row
constexpr int64_t kGroup = 16;     // elements of a row that are compared with its extreme at a time
constexpr int64_t kShortRun = 64;  // rows of fewer elements than these are scanned in step
constexpr int64_t kManyRows = 64;  // number of rows that occupies all threads
constexpr int64_t kFlagTile = 256;
constexpr int64_t kTogether = 4;  // rows that are scanned in step: each alone would wait for its last operation

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Running sums or products of elements of T. Those of integers wrap.
template <class T, bool kProduct>
struct Combination {
  using State = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  using Result = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  const Stored<T>* x;
  Result* y;

  static State none() { return kProduct ? 1 : 0; }
  void take(State& total, int64_t place, int64_t) const {
    if constexpr (std::is_integral_v<T>)
      join(total, static_cast<State>(convert<T, int64_t>(x[place])));
    else
      join(total, convert<T, double>(x[place]));
  }
  static void join(State& total, State later) { total = kProduct ? total * later : total + later; }
  void store(int64_t place, State total) const {
    if constexpr (std::is_integral_v<T>)
      y[place] = static_cast<int64_t>(total);
    else
      y[place] = convert<double, T>(total);
  }
};

/// a * (the last value) + b; `shift` is the distance from b's element to a's.
template <class T>
struct Recurrence {
  using State = double;
  const T *a, *b;
  T* y;
  int64_t shift;

  static State none() { return 0; }
  void take(State& value, int64_t place, int64_t column) const {
    const double term = convert<T, double>(b[place]);
    value = column == 0 ? term : convert<T, double>(a[place + shift]) * value + term;
  }
  void store(int64_t place, State value) const { y[place] = convert<double, T>(value); }
};

/// The largest (smallest) element so far, the last of those that equal it, and its column. A NaN exceeds all others.
template <class T, bool kLargest>
struct CumulativeExtreme {
  using Value = std::conditional_t<std::is_same_v<T, bool>, uint8_t, ComputeType<T>>;
  struct State {
    Value value;
    int64_t column;  // -1: no element yet
  };
  const Stored<T>* x;
  Stored<T>* y;
  int64_t* columns;

  static State none() { return {Value(0), -1}; }
  static bool replaces(Value later, const State& best) {
    return best.column < 0 || later != later || (kLargest ? later >= best.value : later <= best.value);
  }
  Value value_at(int64_t place) const {
    if constexpr (std::is_same_v<T, bool>)
      return x[place] != 0;
    else
      return static_cast<Value>(x[place]);
  }
  void take(State& best, int64_t place, int64_t column) const {
    const Value value = value_at(place);
    if (replaces(value, best)) best = {value, column};
  }
  static void join(State& best, const State& later) {
    if (later.column >= 0 && replaces(later.value, best)) best = later;
  }
  void store(int64_t place, const State& best) const {
    y[place] = static_cast<Stored<T>>(best.value);
    columns[place] = best.column;
  }
  /// take() and store() of n neighbours. Most groups of a long row exceed nothing: they get the extreme before them.
  template <bool kStores>
  void scan_run(State& before, int64_t place, int64_t column, int64_t n) const {
    State best = before;  // a copy, which stores to y cannot change
    const auto scan = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        take(best, place + i, column + i);
        if constexpr (kStores) store(place + i, best);
      }
    };
    int64_t i = std::min(n, kGroup);
    scan(0, i);
    for (; i + kGroup <= n; i += kGroup) {
      if (any_exceeds(place + i, best.value)) {
        scan(i, i + kGroup);
      } else if constexpr (kStores) {
        std::fill_n(y + place + i, kGroup, static_cast<Stored<T>>(best.value));
        std::fill_n(columns + place + i, kGroup, best.column);
      }
    }
    scan(i, n);
    before = best;
  }

 private:
  /// Whether one of kGroup elements is above `best`.
  bool any_exceeds(int64_t place, Value best) const {
    int32_t any = 0;
    for (int64_t k = 0; k < kGroup; ++k) {
      const Value value = value_at(place + k);
      any |= ((value != value) | (kLargest ? value >= best : value <= best)) ? 1 : 0;
    }
    return any != 0;
  }
};

/// Scans the rows of a matrix with an operation like those above.
template <class Op>
class RowScan {
 public:
  using State = typename Op::State;

  RowScan(const Op& op, ConstView x, bool reverse) : op_(op), rows_(x.rows()), cols_(x.cols()), reverse_(reverse) {}

  /// Elements are combined in their order.
  void run_in_order() const { scan_rows(); }
  /// `parts` has one element per part of a row, unless there are many rows or each is one part.
  void run(void* parts) const {
    if (rows_ >= kManyRows || cols_ <= kPart)
      scan_rows();
    else
      scan_long_rows(static_cast<State*>(parts));
  }

 private:
  /// Index of the i-th element of a row in the order of the scan.
  int64_t place(int64_t row, int64_t i) const { return row * cols_ + (reverse_ ? cols_ - 1 - i : i); }

  /// True when the operation has a separate loop for a row.
  static constexpr bool kHasRuns = requires(const Op& op, State& state) {
    op.template scan_run<true>(state, int64_t(), int64_t(), int64_t());
  };

  /// Elements [begin, end) of a row; the state is the one before them, then the one after them.
  template <bool kStores>
  void scan(int64_t row, int64_t begin, int64_t end, State& state) const {
    if constexpr (kHasRuns) return op_.template scan_run<kStores>(state, place(row, begin), begin, end - begin);
    for (int64_t i = begin; i < end; ++i) {
      op_.take(state, place(row, i), i);
      if constexpr (kStores) op_.store(place(row, i), state);
    }
  }
  void scan_rows() const {
    parallel_for(rows_, std::max<int64_t>(1, kBlock / cols_), [&](int64_t begin, int64_t end) {
      int64_t r = begin;
      for (; r + kTogether <= end && !(kHasRuns && cols_ > kShortRun); r += kTogether) scan_together(r);
      for (; r < end; ++r) {
        State state = Op::none();
        scan<true>(r, 0, cols_, state);
      }
    });
  }
  void scan_together(int64_t row) const {
    const Op op = op_;  // a copy, which stores to y cannot change
    const int64_t cols = cols_, step = reverse_ ? -1 : 1;
    State states[kTogether];
    std::fill_n(states, kTogether, Op::none());
    int64_t at = place(row, 0);
    for (int64_t i = 0; i < cols; ++i, at += step)
      for (int64_t t = 0; t < kTogether; ++t) {
        op.take(states[t], at + t * cols, i);
        op.store(at + t * cols, states[t]);
      }
  }
  /// The kParts parts of a row from column `begin` on, in step.
  template <bool kStores>
  void scan_parts_together(int64_t row, int64_t begin, State* states) const {
    const Op op = op_;
    const int64_t step = reverse_ ? -1 : 1;
    State now[kParts];
    std::copy_n(states, kParts, now);
    int64_t at = place(row, begin);
    for (int64_t i = begin; i < begin + kPart; ++i, at += step)
      for (int64_t t = 0; t < kParts; ++t) {
        op.take(now[t], at + t * step * kPart, i + t * kPart);
        if constexpr (kStores) op.store(at + t * step * kPart, now[t]);
      }
    std::copy_n(now, kParts, states);
  }
  /// The parts of a parallel block [begin, end) of a row, whose states are states[0], ...
  template <bool kStores>
  void scan_parts(int64_t row, int64_t begin, int64_t end, State* states) const {
    if constexpr (!kHasRuns)
      if (end - begin == kParts * kPart) return scan_parts_together<kStores>(row, begin, states);
    for (; begin < end; begin += kPart) scan<kStores>(row, begin, std::min(end, begin + kPart), *states++);
  }
  /// All threads work on one row at a time.
  void scan_long_rows(State* parts) const {
    constexpr int64_t kRowBlock = kParts * kPart;
    const int64_t count = ceil_div(cols_, kPart);
    for (int64_t r = 0; r < rows_; ++r) {
      std::fill_n(parts, count, Op::none());
      parallel_for(cols_, kRowBlock,
                   [&](int64_t begin, int64_t end) { scan_parts<false>(r, begin, end, parts + begin / kPart); });
      State before = Op::none();
      for (int64_t p = 0; p < count; ++p) {
        State until = before;
        Op::join(until, parts[p]);
        parts[p] = std::exchange(before, until);
      }
      parallel_for(cols_, kRowBlock,
                   [&](int64_t begin, int64_t end) { scan_parts<true>(r, begin, end, parts + begin / kPart); });
    }
  }

  Op op_;
  int64_t rows_, cols_;
  bool reverse_;
};

int64_t parts_of(int64_t rows, int64_t cols) { return rows >= kManyRows || cols <= kPart ? 0 : ceil_div(cols, kPart); }

}  // namespace

int64_t cumulative_sum_workspace(Stream, int64_t rows, int64_t cols, DType) { return parts_of(rows, cols) * 8; }

void cumulative_sum(Stream, ConstView x, bool reverse, void* workspace, View y) {
  if (x.numel() == 0) return;
  dispatch_any(x.dtype, [&]<class T>() {
    using Op = Combination<T, false>;
    RowScan(Op{x.as<Stored<T>>(), y.as<typename Op::Result>()}, x, reverse).run(workspace);
  });
}

void cumulative_product(Stream, ConstView x, View y) {
  if (x.numel() == 0) return;
  dispatch_any(x.dtype, [&]<class T>() {
    using Op = Combination<T, true>;
    RowScan(Op{x.as<Stored<T>>(), y.as<typename Op::Result>()}, x, false).run_in_order();
  });
}

void linear_recurrence(Stream, ConstView a, ConstView b, bool reverse, View y) {
  if (y.numel() == 0) return;
  dispatch_float(y.dtype, [&]<class T>() {
    RowScan(Recurrence<T>{a.as<T>(), b.as<T>(), y.as<T>(), reverse ? 1 : 0}, y, reverse).run_in_order();
  });
}

int64_t cumulative_extreme_workspace(Stream, int64_t rows, int64_t cols, DType) { return parts_of(rows, cols) * 16; }

void cumulative_extreme(Stream, bool largest, ConstView x, void* workspace, View y, View index) {
  if (x.numel() == 0) return;
  dispatch_any(x.dtype, [&]<class T>() {
    const auto run = [&]<class Op>() {
      RowScan(Op{x.as<Stored<T>>(), y.as<Stored<T>>(), index.as<int64_t>()}, x, false).run(workspace);
    };
    if (largest)
      run.template operator()<CumulativeExtreme<T, true>>();
    else
      run.template operator()<CumulativeExtreme<T, false>>();
  });
}

int64_t select_positions_workspace(Stream, int64_t n) { return ceil_div(n, kBlock) * 8; }

void select_positions(Stream, ConstView mask, void* workspace, View positions) {
  const auto* const flags = mask.as<uint8_t>();
  const int64_t n = mask.numel();
  auto* const counts = static_cast<int64_t*>(workspace);
  parallel_for(n, kBlock, [&](int64_t begin, int64_t end) {
    counts[begin / kBlock] = std::count_if(flags + begin, flags + end, [](uint8_t flag) { return flag != 0; });
  });
  int64_t before = 0;
  for (int64_t b = 0; b < ceil_div(n, kBlock); ++b) before += std::exchange(counts[b], before);
  parallel_for(n, kBlock, [&](int64_t begin, int64_t end) {
    int64_t* to = positions.as<int64_t>() + counts[begin / kBlock];
    // Every position is written and kept if its flag is set: branches on flags would be mispredicted.
    int64_t kept[kFlagTile];
    for (int64_t first = begin; first < end; first += kFlagTile) {
      const int64_t last = std::min(end, first + kFlagTile);
      int64_t count = 0;
      for (int64_t i = first; i < last; ++i) {
        kept[count] = i;
        count += flags[i] != 0 ? 1 : 0;
      }
      to = std::copy_n(kept, count, to);
    }
  });
}

void unravel_positions(Stream, ConstView positions, int dims, const int64_t* shape, View y) {
  if (dims == 0) return;
  const int last = dims - 1;
  parallel_for(positions.numel(), kBlock, [&](int64_t begin, int64_t end) {
    int64_t row = 0, row_index[kMaxDims] = {};  // the first position of a row, and its indices
    for (int64_t i = begin; i < end; ++i) {
      const int64_t position = positions.as<int64_t>()[i];
      if (position < row || position >= row + shape[last]) {  // neighbours are mostly in one row
        int64_t rest = position / shape[last];
        row = rest * shape[last];
        for (int d = last - 1; d >= 0; --d) {
          row_index[d] = rest % shape[d];
          rest /= shape[d];
        }
      }
      int64_t* const to = y.as<int64_t>() + i * dims;
      for (int d = 0; d < last; ++d) to[d] = row_index[d];
      to[last] = position - row;
    }
  });
}

}  // namespace tern::kernels::TERN_CPU
