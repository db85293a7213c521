#pragma once
// The operations of reductions. An operation makes a state of some elements, joins states in a fixed order, and turns
// the last one into the result:
//   State<F>           the partial result of elements that are computed in F
//   none, join         the state of no elements, and of two sets of elements
//   of                 the state of n contiguous elements
//   kRows, kColumns    how many rows and columns join_rows takes at most
//   join_rows          joins rows [begin, end), which load(row, tile) reads, into the states of the columns
//   kTakesBFloat16     the elements of `of` and `join_rows` may be bfloat16, which are computed in float
//   result             the value of a state
// Included only by kernels/cpu.

#include <algorithm>

#include "tern/kernels/cpu/simd/vector.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::TERN_CPU {
namespace {

template <class F>
using Wide = std::conditional_t<std::is_same_v<F, float>, double, F>;

/// Rules of kernels/cpu/simd/vector.h, whose state is a number: fp32 runs are combined in fp64.
template <class Rule>
struct Numbers {
  static constexpr int64_t kRows = 128, kColumns = 1024;
  static constexpr bool kTakesBFloat16 = true;

  template <class F>
  using State = Wide<F>;
  template <class F>
  static State<F> none() {
    return Rule::template identity<Wide<F>>();
  }
  template <class T>
  static State<Combined<T>> of(const T* x, int64_t n) {
    return static_cast<Wide<Combined<T>>>(reduce_contiguous<Rule>(x, n));
  }
  template <class W>
  static W join(W a, W b) {
    return Rule::combine(a, b);
  }
  template <class W>
  static W result(W state) {
    return state;
  }
  template <class F, class Load>
  static void join_rows(const Load& load, int64_t begin, int64_t end, int64_t columns, State<F>* totals) {
    constexpr int kRowsAtOnce = 4;  // rows per pass over the sums
    alignas(64) F tiles[kRowsAtOnce][kColumns];
    alignas(64) F sums[kColumns];
    std::fill_n(sums, columns, Rule::template identity<F>());
    int64_t row = begin;
    using Row = decltype(load(row, tiles[0]));
    for (; row + kRowsAtOnce <= end; row += kRowsAtOnce) {
      Row rows[kRowsAtOnce];
      for (int r = 0; r < kRowsAtOnce; ++r) rows[r] = load(row + r, tiles[r]);
      combine_rows<Rule>(sums, rows, columns);
    }
    for (; row < end; ++row) {
      const Row single[] = {load(row, tiles[0])};
      combine_rows<Rule>(sums, single, columns);
    }
    for (int64_t c = 0; c < columns; ++c) totals[c] = Rule::combine(totals[c], static_cast<Wide<F>>(sums[c]));
  }
};

/// The rows [begin, end) of a block, read once.
template <int64_t kRows, int64_t kColumns, class F, class Load>
struct RowBlock {
  alignas(64) F tiles[kRows][kColumns];
  const F* rows[kRows];
  int64_t count, columns;
  RowBlock(const Load& load, int64_t begin, int64_t end, int64_t n) : count(end - begin), columns(n) {
    for (int64_t r = 0; r < count; ++r) rows[r] = load(begin + r, tiles[r]);
  }
  /// Calls pass with an array of four rows, or of one at the end. Four streams hide more of the latency of memory.
  template <class Pass>
  void for_rows(const Pass& pass) const {
    int64_t r = 0;
    for (; r + 4 <= count; r += 4) {
      const F* const four[] = {rows[r], rows[r + 1], rows[r + 2], rows[r + 3]};
      pass(four);
    }
    for (; r < count; ++r) {
      const F* const one[] = {rows[r]};
      pass(one);
    }
  }
};

/// The sum of the squared differences from the mean. Runs are joined as in Chan, Golub and LeVeque, "Updating Formulae
/// and a Pairwise Algorithm for Computing Sample Variances" (1979).
struct Deviations {
  static constexpr int64_t kRows = 32, kColumns = 512;
  static constexpr bool kTakesBFloat16 = false;

  template <class F>
  struct State {
    double count, mean, squares;
  };
  template <class F>
  static State<F> none() {
    return {0, 0, 0};
  }
  /// The state of values whose differences from `pivot` have these sums. The pivot is close to the mean, so that
  /// nothing is lost in the subtraction.
  template <class F>
  static State<F> about(double pivot, double count, double sum, double squares) {
    return {count, pivot + sum / count, squares - sum * sum / count};
  }
  template <class F>
  static State<F> of(const F* x, int64_t n) {
    const F share = F(1) / static_cast<F>(n);
    const F pivot = reduce_contiguous<Sum>(x, n, [=](auto v) { return v * share; });  // a sum of x could overflow
    const F sum = reduce_contiguous<Sum>(x, n, [=](auto v) { return v - pivot; });
    const F squares = reduce_contiguous<Sum>(x, n, [=](auto v) { return (v - pivot) * (v - pivot); });
    if (!holds(squares)) return of_wide<F>(n, [=](int64_t i) { return x[i]; });
    return about<F>(pivot, static_cast<double>(n), sum, squares);
  }
  template <class S>
  static S join(const S& a, const S& b) {
    const double count = a.count + b.count, difference = b.mean - a.mean;
    if (a.count == 0 || b.count == 0) return a.count == 0 ? b : a;
    return {count, a.mean + difference * (b.count / count),
            a.squares + b.squares + difference * difference * (a.count * b.count / count)};
  }
  template <class S>
  static double result(const S& state) {
    return state.squares;
  }
  template <class F, class Load>
  static void join_rows(const Load& load, int64_t begin, int64_t end, int64_t columns, State<F>* totals) {
    const RowBlock<kRows, kColumns, F, Load> block(load, begin, end, columns);
    const F share = F(1) / static_cast<F>(block.count);
    alignas(64) F pivots[kColumns] = {}, sums[kColumns] = {}, squares[kColumns] = {};
    block.for_rows([&](const auto& rows) { add_shares(rows, share, columns, pivots); });
    for (int64_t r = 0; r < block.count; ++r) add_differences(block.rows[r], pivots, columns, sums, squares);
    for (int64_t c = 0; c < columns; ++c) {
      const State<F> own = holds(squares[c])
                               ? about<F>(pivots[c], static_cast<double>(block.count), sums[c], squares[c])
                               : of_wide<F>(block.count, [&](int64_t r) { return block.rows[r][c]; });
      totals[c] = join(totals[c], own);
    }
  }

 private:
  /// Whether a sum of squares is right in F: none overflowed, and what may have underflowed is small beside the sum.
  template <class F>
  static bool holds(F squares) {
    return !std::is_same_v<F, float> || (squares > F(1e-30) && squares <= std::numeric_limits<F>::max());
  }
  /// The sum of at(i), in double.
  template <class F, class At>
  static State<F> of_wide(int64_t n, const At& at) {
    const double pivot = static_cast<double>(at(0));
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double difference = static_cast<double>(at(i)) - pivot;
      sum += difference;
      squares += difference * difference;
    }
    return about<F>(pivot, static_cast<double>(n), sum, squares);
  }
  // Not inlined: GCC 12 would join the loops over two rows, which then have no vectors.
  template <class F, int kCount>
  [[gnu::noinline]] static void add_shares(const F* const (&x)[kCount], F share, int64_t n, F* __restrict pivots) {
    for (int64_t c = 0; c < n; ++c) {
      F sum = F(0);
      for (int r = 0; r < kCount; ++r) sum += x[r][c] * share;
      pivots[c] += sum;
    }
  }
  template <class F>
  [[gnu::noinline]] static void add_differences(const F* __restrict x, const F* __restrict pivots, int64_t n,
                                                F* __restrict sums, F* __restrict squares) {
    for (int64_t c = 0; c < n; ++c) {
      const F difference = x[c] - pivots[c];
      sums[c] += difference;
      squares[c] += difference * difference;
    }
  }
};

/// log(sum(exp(x))), computed from the differences from the largest element.
struct LogSumExp {
  static constexpr int64_t kRows = 32, kColumns = 512;
  static constexpr bool kTakesBFloat16 = false;

  template <class F>
  struct State {
    using Compute = F;
    double largest, sum;  // the sum of exp(x - largest)
    State() = default;
    State(F largest_or_nan, F sum_of_exponentials)
        : largest(math::isnan(largest_or_nan) ? -std::numeric_limits<double>::infinity() : largest_or_nan),
          sum(sum_of_exponentials) {}
  };
  /// What is subtracted: with an infinite one, exp(inf - inf) would be NaN.
  template <class F>
  static F finite(F largest) {
    return math::isfinite(largest) ? largest : F(0);
  }
  /// exp(x - shift), at most 1. An element exceeds the shift only where the largest one is infinite, as is the result.
  template <class F>
  static F exp_less(F x, F shift) {
    const F difference = x - shift;
    return math::exp_nonpositive(math::select(difference > F(0), F(0), difference));
  }
  template <class F>
  static State<F> none() {
    return {-std::numeric_limits<F>::infinity(), 0};
  }
  template <class F>
  static State<F> of(const F* x, int64_t n) {
    constexpr int64_t kTile = 1024;
    alignas(64) F exponentials[kTile];
    State<F> total = none<F>();
    for (int64_t i = 0; i < n; i += kTile) {
      const int64_t count = std::min(kTile, n - i);
      const F largest = reduce_contiguous<Largest>(x + i, count), shift = finite(largest);
      for (int64_t k = 0; k < count; ++k) exponentials[k] = exp_less(x[i + k], shift);
      total = join(total, State<F>(largest, reduce_contiguous<Sum>(exponentials, count)));
    }
    return total;
  }
  /// Without branches, so that loops over states vectorise.
  template <class S>
  static S join(const S& a, const S& b) {
    using F = typename S::Compute;
    // Equal ones may be infinite.
    const double below = a.largest == b.largest ? 0 : -std::fabs(a.largest - b.largest);
    const double factor = math::exp_nonpositive(static_cast<F>(below));
    const bool first = a.largest >= b.largest;
    S joined = a;
    joined.largest = first ? a.largest : b.largest;
    joined.sum = (first ? a.sum : b.sum) + (first ? b.sum : a.sum) * factor;
    return joined;
  }
  template <class S>
  static double result(const S& state) {
    return state.largest + math::log(static_cast<typename S::Compute>(state.sum));
  }
  template <class F, class Load>
  static void join_rows(const Load& load, int64_t begin, int64_t end, int64_t columns, State<F>* totals) {
    const RowBlock<kRows, kColumns, F, Load> block(load, begin, end, columns);
    alignas(64) F largest[kColumns], shifts[kColumns], sums[kColumns] = {};
    std::fill_n(largest, columns, Largest::identity<F>());
    block.for_rows([&](const auto& rows) { combine_rows<Largest>(largest, rows, columns); });
    for (int64_t c = 0; c < columns; ++c) shifts[c] = finite(largest[c]);
    for (int64_t r = 0; r < block.count; ++r) add_exponentials(block.rows[r], shifts, columns, sums);
    for (int64_t c = 0; c < columns; ++c) totals[c] = join(totals[c], State<F>(largest[c], sums[c]));
  }

 private:
  template <class F>
  static void add_exponentials(const F* __restrict x, const F* __restrict shifts, int64_t n, F* __restrict sums) {
    alignas(64) F exponentials[kColumns];
    for (int64_t c = 0; c < n; ++c) exponentials[c] = exp_less(x[c], shifts[c]);
    for (int64_t c = 0; c < n; ++c) sums[c] += exponentials[c];
  }
};

/// Calls body with the operation of a reduction whose elements are computed in F.
template <class F, class Body>
void with_op(Reduction reduction, const Body& body) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMean:
      return body(Numbers<Sum>());
    case Reduction::kMax:
      return body(Numbers<Largest>());
    case Reduction::kMin:
      return body(Numbers<Smallest>());
    case Reduction::kProduct:
      return body(Numbers<Product>());
    case Reduction::kSumOfSquares:
      return body(Numbers<SumOfSquares>());
    case Reduction::kAll:
      return body(Numbers<All>());
    case Reduction::kAny:
      return body(Numbers<Any>());
    case Reduction::kSumOfMagnitudes:
      if constexpr (std::is_floating_point_v<F>) return body(Numbers<SumOfMagnitudes>());
      return;
    case Reduction::kDeviations:
      if constexpr (std::is_floating_point_v<F>) return body(Deviations());
      return;
    case Reduction::kLogSumExp:
      if constexpr (std::is_floating_point_v<F>) return body(LogSumExp());
      return;
  }
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
