#include "tern/kernels/resample.h"

#include <algorithm>
#include <vector>

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

constexpr int64_t kResampleBlock = 16384;  // elements of a block of parallel_for

/// y = the sum of weight * row for `count` rows of n elements, given by term(k); rows of weight 0 are left out.
template <class F, class X, class Y, class Term>
void add_rows(int64_t count, int64_t n, const Term& term, Y* y) {
  // Few rows, as of every upsampling, are read together.
  const X* rows[4];
  F weights[4];
  int64_t used = 0;
  bool few = true;
  for (int64_t k = 0; k < count && few; ++k) {
    const auto [weight, row] = term(k);
    if (weight == F(0)) continue;
    few = used < 4;
    if (!few) break;
    rows[used] = row;
    weights[used++] = weight;
  }
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t size = std::min(kTile, n - j);
    alignas(64) F sums[kTile], buffers[4][kTile];
    const auto at = [&](int64_t k) { return widen<F>(rows[k] + j, buffers[k], size); };
    if (few && used == 1) {
      const F *a = at(0), p = weights[0];
      for (int64_t i = 0; i < size; ++i) sums[i] = p * a[i];
    } else if (few && used == 2) {
      const F *a = at(0), *b = at(1), p = weights[0], q = weights[1];
      for (int64_t i = 0; i < size; ++i) sums[i] = p * a[i] + q * b[i];
    } else if (few && used == 4) {
      const F *a = at(0), *b = at(1), *c = at(2), *d = at(3);
      const F p = weights[0], q = weights[1], r = weights[2], s = weights[3];
      for (int64_t i = 0; i < size; ++i) sums[i] = p * a[i] + q * b[i] + r * c[i] + s * d[i];
    } else {
      std::fill_n(sums, size, F(0));
      for (int64_t k = 0; k < count; ++k) {
        const auto [weight, row] = term(k);
        if (weight == F(0)) continue;
        const F* const a = widen<F>(row + j, buffers[0], size);
        for (int64_t i = 0; i < size; ++i) sums[i] += weight * a[i];
      }
    }
    narrow(sums, y + j, size);
  }
}

/// The weights of every output as rows of one length, for outputs of one element: output o reads inputs first[o] + k
/// with weights[k * outputs + o].
template <class F>
struct Windows {
  int64_t outputs, taps = 1;
  std::vector<int32_t> first;
  std::vector<F> weights;

  template <class Range, class Weight>
  Windows(int64_t inputs, int64_t count, const Range& range, const Weight& weight)
      : outputs(count), first(static_cast<size_t>(count)) {
    for (int64_t o = 0; o < outputs; ++o) {
      auto [begin, end] = range(o);
      while (begin < end && weight(o, begin) == F(0)) ++begin;
      while (begin < end && weight(o, end - 1) == F(0)) --end;
      first[static_cast<size_t>(o)] = static_cast<int32_t>(begin);
      taps = std::max<int64_t>(taps, end - begin);
    }
    weights.resize(static_cast<size_t>(taps * outputs));
    for (int64_t o = 0; o < outputs; ++o) {
      const auto [begin, end] = range(o);
      int32_t& start = first[static_cast<size_t>(o)];
      start = static_cast<int32_t>(std::min<int64_t>(start, inputs - taps));
      for (int64_t i = std::max<int64_t>(begin, start); i < std::min<int64_t>(end, start + taps); ++i)
        weights[static_cast<size_t>((i - start) * outputs + o)] = weight(o, i);
    }
  }

  /// One row of outputs; kTaps 0: any number of taps.
  template <int kTaps, class X, class Y>
  void sum(const X* __restrict x, Y* __restrict y) const {
    const int64_t count = kTaps ? kTaps : taps;
    const F* const table = weights.data();
    const int32_t* const begin = first.data();
    for (int64_t o = 0; o < outputs; ++o) {
      F total = 0;
      for (int64_t k = 0; k < count; ++k) {
        const F weight = table[k * outputs + o],
                term = weight * static_cast<F>(static_cast<ComputeType<X>>(x[begin[o] + k]));
        total += weight != F(0) ? term : F(0);
      }
      y[o] = static_cast<Y>(static_cast<ComputeType<Y>>(total));
    }
  }
  template <class X, class Y>
  void sum(const X* x, Y* y) const {
    if (taps == 1) return sum<1>(x, y);
    if (taps == 2) return sum<2>(x, y);
    if (taps == 4) return sum<4>(x, y);
    sum<0>(x, y);
  }
};

/// run<F, X, Y>() for the dtypes of x, y and the weights.
template <class Run>
void dispatch_resample(DType x, DType y, const Run& run) {
  dispatch_float(x, [&]<class X>() {
    using F = ComputeType<X>;
    if (y == dtype_of<X>()) return run.template operator()<F, X, X>();
    if constexpr (std::is_same_v<X, float>) {
      dispatch_float(y, [&]<class Y>() {
        if constexpr (sizeof(Y) == 2) run.template operator()<F, X, Y>();
      });
    } else if constexpr (sizeof(X) == 2) {
      run.template operator()<F, X, F>();
    }
  });
}

/// The rows of one output each, on all threads: range(o) gives the inputs that may have a weight, weight(o, i) theirs.
template <class F, class X, class Y, class Range, class Weight>
void sum_rows(const ConstView& x, const View& y, const Range& range, const Weight& weight) {
  const int64_t outer = x.shape[0], in = x.shape[1], out = y.shape[1], inner = x.shape[2];
  if (inner == 1) {
    const Windows<F> windows(in, out, range, weight);
    return parallel_for(outer, std::max<int64_t>(1, kResampleBlock / out), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) windows.sum(x.as<X>() + r * in, y.as<Y>() + r * out);
    });
  }
  parallel_for(outer * out, std::max<int64_t>(1, kResampleBlock / inner), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t o = r % out;
      const auto [first, last] = range(o);
      const X* const rows = x.as<X>() + (r / out * in + first) * inner;
      const auto term = [&, first = first](int64_t k) { return std::pair(weight(o, first + k), rows + k * inner); };
      add_rows<F, X>(last - first, inner, term, y.as<Y>() + r * inner);
    }
  });
}

}  // namespace

void resample_table(Stream, const ResampleAxis& axis, View first, View weights) {
  dispatch_float(weights.dtype, [&]<class F>() {
    if constexpr (std::is_same_v<ComputeType<F>, F>)
      parallel_for(axis.out, 256, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o)
          first.as<int32_t>()[o] =
              static_cast<int32_t>(ResampleWeights<F>(axis, o, weights.as<F>() + o * weights.shape[1]).first);
      });
  });
}

void resample(Stream, ConstView x, ConstView first, ConstView weights, View y) {
  if (y.numel() == 0) return;
  dispatch_resample(x.dtype, y.dtype, [&]<class F, class X, class Y>() {
    const int64_t taps = weights.shape[1];
    const int32_t* const begin = first.as<int32_t>();
    const F* const table = weights.as<F>();
    sum_rows<F, X, Y>(
        x, y, [=](int64_t o) { return std::pair<int64_t, int64_t>(begin[o], begin[o] + taps); },
        [=](int64_t o, int64_t i) { return table[o * taps + i - begin[o]]; });
  });
}

void resample_transposed(Stream, ConstView dy, ConstView first, ConstView weights, View dx) {
  if (dx.numel() == 0) return;
  dispatch_resample(dy.dtype, dx.dtype, [&]<class F, class X, class Y>() {
    const int64_t taps = weights.shape[1], outputs = dy.shape[1];
    const int32_t* const begin = first.as<int32_t>();
    const F* const table = weights.as<F>();
    sum_rows<F, X, Y>(
        dy, dx,
        [=](int64_t i) {
          return std::pair(resample_after(begin, outputs, i - taps), resample_after(begin, outputs, i));
        },
        [=](int64_t i, int64_t o) { return table[o * taps + i - begin[o]]; });
  });
}

}  // namespace tern::kernels::TERN_CPU
