#include "tern/kernels/resample.h"

#include <algorithm>

#include "tern/kernels/cpu/rows.h"
#include "tern/kernels/parallel.h"
#include "tern/kernels/workspace_parts.h"

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

/// The map, or the transposed one: which inputs an output may read, and with which weights.
template <class F, bool kTransposed>
struct SparseMap {
  const int32_t* first;
  const F* weights;
  int64_t count, taps;

  SparseMap(const ConstView& inputs, const ConstView& table)
      : first(inputs.as<int32_t>()), weights(table.as<F>()), count(table.shape[0]), taps(table.shape[1]) {}
  std::pair<int64_t, int64_t> range(int64_t o) const {
    if constexpr (kTransposed)
      return {resample_after(first, count, o - taps), resample_after(first, count, o)};
    else
      return {first[o], first[o] + taps};
  }
  F weight(int64_t o, int64_t i) const {
    return kTransposed ? weights[i * taps + o - first[i]] : weights[o * taps + i - first[o]];
  }
};

/// The weights of every output as rows of one length, for outputs of one element: output o reads inputs first[o] + k
/// with weights[k * outputs + o].
template <class F>
struct Windows {
  int64_t outputs, taps = 1, bytes;
  int32_t* first;
  F* weights;

  /// Without memory only `bytes` is valid.
  template <class Map>
  Windows(int64_t inputs, int64_t count, const Map& map, void* memory) : outputs(count) {
    WorkspaceParts parts(memory, 64);
    first = parts.take<int32_t>(outputs);
    for (int64_t o = 0; o < outputs; ++o) {
      auto [begin, end] = map.range(o);
      while (begin < end && map.weight(o, begin) == F(0)) ++begin;
      while (begin < end && map.weight(o, end - 1) == F(0)) --end;
      if (memory) first[o] = static_cast<int32_t>(begin);
      taps = std::max<int64_t>(taps, end - begin);
    }
    weights = parts.take<F>(taps * outputs);
    bytes = parts.bytes();
    if (!memory) return;
    std::fill_n(weights, taps * outputs, F(0));
    for (int64_t o = 0; o < outputs; ++o) {
      const auto [begin, end] = map.range(o);
      first[o] = static_cast<int32_t>(std::min<int64_t>(first[o], inputs - taps));
      for (int64_t i = std::max<int64_t>(begin, first[o]); i < std::min<int64_t>(end, first[o] + taps); ++i)
        weights[(i - first[o]) * outputs + o] = map.weight(o, i);
    }
  }

  /// One row of outputs; kTaps 0: any number of taps.
  template <int kTaps, class X, class Y>
  void sum(const X* __restrict x, Y* __restrict y) const {
    const int64_t count = kTaps ? kTaps : taps;
    const F* const table = weights;
    const int32_t* const begin = first;
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

/// The rows of one output each, on all threads.
template <class F, class X, class Y, class Map>
void sum_rows(const ConstView& x, const View& y, const Map& map, void* workspace) {
  const int64_t outer = x.shape[0], in = x.shape[1], out = y.shape[1], inner = x.shape[2];
  if (inner == 1) {
    const Windows<F> windows(in, out, map, workspace);
    return parallel_for(outer, std::max<int64_t>(1, kResampleBlock / out), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) windows.sum(x.as<X>() + r * in, y.as<Y>() + r * out);
    });
  }
  parallel_for(outer * out, std::max<int64_t>(1, kResampleBlock / inner), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t o = r % out;
      const auto [first, last] = map.range(o);
      const X* const rows = x.as<X>() + (r / out * in + first) * inner;
      const auto term = [&, first = first](int64_t k) { return std::pair(map.weight(o, first + k), rows + k * inner); };
      add_rows<F, X>(last - first, inner, term, y.as<Y>() + r * inner);
    }
  });
}

template <bool kTransposed>
int64_t workspace_bytes(const ConstView& x, const ConstView& first, const ConstView& weights, const View& y) {
  if (y.numel() == 0 || x.shape[2] != 1) return 0;
  const auto bytes = [&]<class F>() {
    return Windows<F>(x.shape[1], y.shape[1], SparseMap<F, kTransposed>(first, weights), nullptr).bytes;
  };
  return weights.dtype == DType::kFloat64 ? bytes.template operator()<double>() : bytes.template operator()<float>();
}
template <bool kTransposed>
void run_map(const ConstView& x, const ConstView& first, const ConstView& weights, const View& y, void* workspace) {
  if (y.numel() == 0) return;
  dispatch_resample(x.dtype, y.dtype, [&]<class F, class X, class Y>() {
    sum_rows<F, X, Y>(x, y, SparseMap<F, kTransposed>(first, weights), workspace);
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

int64_t resample_workspace(Stream, ConstView x, ConstView first, ConstView weights, View y) {
  return workspace_bytes<false>(x, first, weights, y);
}
void resample(Stream, ConstView x, ConstView first, ConstView weights, View y, void* workspace) {
  run_map<false>(x, first, weights, y, workspace);
}

int64_t resample_transposed_workspace(Stream, ConstView dy, ConstView first, ConstView weights, View dx) {
  return workspace_bytes<true>(dy, first, weights, dx);
}
void resample_transposed(Stream, ConstView dy, ConstView first, ConstView weights, View dx, void* workspace) {
  run_map<true>(dy, first, weights, dx, workspace);
}

}  // namespace tern::kernels::TERN_CPU
