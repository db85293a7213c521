#include "tern/dist/collectives/rank_sum.h"

#include <algorithm>

#include "tern/kernels/types.h"

namespace tern::dist {
namespace {

constexpr int64_t kBlock = 2048;  // elements, so that the sums stay in the L1 cache

template <class T>
T greater(T a, T b) {
  return b > a || b != b ? b : a;  // NaN of any rank is kept
}
template <class T>
T less(T a, T b) {
  return b < a || b != b ? b : a;
}

/// Integers wrap like unsigned ones.
template <class T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return static_cast<T>(a + b);
  }
}

template <class T, class Combine>
void reduce_block(const std::vector<const void*>& parts, int64_t begin, int64_t count, ComputeType<T>* result,
                  Combine combine) {
  const T* first = static_cast<const T*>(parts[0]) + begin;
  for (int64_t i = 0; i < count; ++i) result[i] = static_cast<ComputeType<T>>(first[i]);
  for (size_t part = 1; part < parts.size(); ++part) {
    const T* values = static_cast<const T*>(parts[part]) + begin;
    for (int64_t i = 0; i < count; ++i) result[i] = combine(result[i], static_cast<ComputeType<T>>(values[i]));
  }
}

template <class T>
void reduce(ReduceOp op, const std::vector<const void*>& parts, void* result, int64_t count) {
  using Compute = ComputeType<T>;
  Compute sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    switch (op) {
      case ReduceOp::kMax:
        reduce_block<T>(parts, begin, n, sums, greater<Compute>);
        break;
      case ReduceOp::kMin:
        reduce_block<T>(parts, begin, n, sums, less<Compute>);
        break;
      default:
        reduce_block<T>(parts, begin, n, sums, [](Compute a, Compute b) { return sum(a, b); });
    }
    if (op == ReduceOp::kMean) {
      const auto ranks = static_cast<Compute>(parts.size());
      for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<Compute>(sums[i] / ranks);
    }
    T* out = static_cast<T*>(result) + begin;
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(sums[i]);
  }
}

}  // namespace

void reduce_in_order(ReduceOp op, DType dtype, const std::vector<const void*>& parts, void* result, int64_t count) {
  dispatch_any(dtype, [&]<class T>() { reduce<T>(op, parts, result, count); });
}

}  // namespace tern::dist
