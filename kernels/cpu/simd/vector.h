#pragma once
// Vectors of any width (GCC vector extensions: +, *, comparisons and ?: work on them), and reductions over contiguous
// arrays with the same number of lanes on every CPU level. Included only by kernels/cpu.

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "tern/kernels/math/math.h"
#include "tern/kernels/types.h"

namespace tern::kernels::TERN_CPU {
namespace {

/// Bytes of the level's registers, which loops fill that are bound by arithmetic.
#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif
// 32 bytes even with AVX-512: GCC 12 converts comparisons of 64-byte generic vectors to masks and back, which costs
// more than the width gains in memory-bound loops.
inline constexpr int kVectorBytes = kRegisterBytes < 32 ? kRegisterBytes : 32;

/// Without a type for BFloat16, whose overloads are then the only ones.
template <class F, int kBytes, bool = std::is_arithmetic_v<F>>
struct VectorOf {};
template <class F, int kBytes>
struct VectorOf<F, kBytes, true> {
  typedef F type __attribute__((vector_size(kBytes)));
};
template <class F, int kBytes = kVectorBytes>
using Vector = typename VectorOf<F, kBytes>::type;

/// x may have any alignment. No memcpy: with it, g++ 12 copies arrays of vectors through the stack.
template <int kBytes = kVectorBytes, class F>
inline Vector<F, kBytes> load_vector(const F* x) {
  struct [[gnu::packed]] Unaligned {
    Vector<F, kBytes> vector;
  };
  return reinterpret_cast<const Unaligned*>(x)->vector;
}
/// Bfloat16 as floats. GCC 12 would convert to a vector of 32 bytes in two halves.
inline Vector<float> load_vector(const BFloat16* x) {
  typedef uint16_t Halves __attribute__((vector_size(kVectorBytes / 2)));
  typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));
  Halves bits;
  std::memcpy(&bits, x, sizeof bits);
#if defined(__AVX2__)
  const Words words = reinterpret_cast<Words>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(bits)));
#else
  const Words words = __builtin_convertvector(bits, Words);
#endif
  return reinterpret_cast<Vector<float>>(words << 16);
}
template <class F, class V>
inline void store_vector(F* x, V v) {
  static_assert(std::is_same_v<V, Vector<F, sizeof(V)>>);
  std::memcpy(x, &v, sizeof v);
}

/// The blocks [kHalf, 2 kHalf), ... of the second half of a transposition's step: kOdd 0 joins the even blocks of a and
/// b, 1 the odd ones. A block has kHalf lanes.
template <int kHalf, int kOdd, class V, int... kIndex>
inline V join_blocks(V a, V b, std::integer_sequence<int, kIndex...>) {
  constexpr int kWidth = sizeof...(kIndex);
  return __builtin_shufflevector(
      a, b, (kIndex / kHalf % 2 == 0 ? kIndex + kOdd * kHalf : kWidth + kIndex + (kOdd - 1) * kHalf)...);
}
/// Transposes the square v[0], ..., v[kWidth - 1], as Eklundh, "A Fast Computer Method for Matrix Transposing" (1972).
template <int kWidth, int kHalf = kWidth / 2, class V>
inline void transpose_square(V (&v)[kWidth]) {
  if constexpr (kHalf > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      if (i & kHalf) continue;
      const V a = v[i], b = v[i + kHalf];
      v[i] = join_blocks<kHalf, 0>(a, b, std::make_integer_sequence<int, kWidth>());
      v[i + kHalf] = join_blocks<kHalf, 1>(a, b, std::make_integer_sequence<int, kWidth>());
    }
    transpose_square<kWidth, kHalf / 2>(v);
  }
}

template <class V>
inline constexpr bool kIsIntegerVector = requires(V v) {
  requires std::is_same_v<std::remove_cvref_t<decltype(v[0])>, int64_t>;
};
/// A vector of int64 as one of unsigned numbers, whose arithmetic wraps.
template <class V>
struct UnsignedVector {
  typedef uint64_t type __attribute__((vector_size(sizeof(V))));
};

// Operations that combine values; V is a number or a vector. Sums and products of integers wrap.
struct Sum {
  template <class F>
  static constexpr F identity() {
    return F(0);
  }
  template <class V>
  static V map(V x) {
    return x;
  }
  template <class V>
  static V combine(V a, V b) {
    if constexpr (kIsIntegerVector<V>)
      return (V)((typename UnsignedVector<V>::type)a + (typename UnsignedVector<V>::type)b);
    else
      return a + b;
  }
  static int64_t combine(int64_t a, int64_t b) { return (math::Integer(a) + math::Integer(b)).value; }
};
struct Product : Sum {
  template <class F>
  static constexpr F identity() {
    return F(1);
  }
  template <class V>
  static V combine(V a, V b) {
    if constexpr (kIsIntegerVector<V>)
      return (V)((typename UnsignedVector<V>::type)a * (typename UnsignedVector<V>::type)b);
    else
      return a * b;
  }
  static int64_t combine(int64_t a, int64_t b) { return (math::Integer(a) * math::Integer(b)).value; }
};
struct SumOfSquares : Sum {
  template <class V>
  static V map(V x) {
    return Product::combine(x, x);
  }
};
struct SumOfMagnitudes : Sum {
  template <class V>
  static V map(V x) {
    return x < V{} ? -x : x;
  }
};
/// NaN in either operand gives NaN.
struct Largest : Sum {
  template <class F>
  static constexpr F identity() {
    return std::numeric_limits<F>::has_infinity ? -std::numeric_limits<F>::infinity()
                                                : std::numeric_limits<F>::lowest();
  }
  template <class V>
  static V combine(V a, V b) {
    if constexpr (kIsIntegerVector<V>) return a > b ? a : b;  // one instruction of AVX-512
    const auto first = (a > b) | (a != a);
    return first ? a : b;
  }
};
struct Smallest : Sum {
  template <class F>
  static constexpr F identity() {
    return std::numeric_limits<F>::has_infinity ? std::numeric_limits<F>::infinity() : std::numeric_limits<F>::max();
  }
  template <class V>
  static V combine(V a, V b) {
    if constexpr (kIsIntegerVector<V>) return a < b ? a : b;
    const auto first = (a < b) | (a != a);
    return first ? a : b;
  }
};

/// Logical and: every number except 0 is true, including NaN.
struct All : Smallest {
  template <class F>
  static constexpr F identity() {
    return F(1);
  }
  template <class V>
  static V map(V x) {
    return x != V{} ? V{} + 1 : V{};
  }
};
struct Any : Largest {
  template <class F>
  static constexpr F identity() {
    return F(0);
  }
  template <class V>
  static V map(V x) {
    return All::map(x);
  }
};

template <class Op>
inline constexpr bool kIsExtreme = std::is_same_v<Op, Largest> || std::is_same_v<Op, Smallest>;

/// All bits of a lane are set where x or y is NaN.
template <class F>
inline auto either_is_nan(Vector<F> x, Vector<F> y) {
  using Mask = decltype(x != y);
#if defined(__AVX2__)
  if constexpr (sizeof(F) == 4)
    return reinterpret_cast<Mask>(_mm256_cmp_ps(x, y, _CMP_UNORD_Q));
  else
    return reinterpret_cast<Mask>(_mm256_cmp_pd(x, y, _CMP_UNORD_Q));
#else
  return static_cast<Mask>((x != x) | (y != y));
#endif
}

/// What a lane of vectors has combined so far, in the order of add().
template <class Op, class F>
struct Accumulator {
  Vector<F> value;
  void begin(Vector<F> x) { value = x; }
  void add(Vector<F> x) { value = Op::combine(value, x); }
  void add(Vector<F> x, Vector<F> y) { add(x), add(y); }
  void join(const Accumulator& other) { add(other.value); }
  Vector<F> result() const { return value; }
};
/// For extremes, that there was a NaN is kept beside the extreme, whose chain of instructions is then one comparison.
template <class Op, class F>
requires(kIsExtreme<Op>&& std::is_floating_point_v<F>) struct Accumulator<Op, F> {
  using Mask = decltype(Vector<F>{} != Vector<F>{});
  Vector<F> value;
  Mask unordered;
  void begin(Vector<F> x) {
    value = x;
    unordered = x != x;
  }
  void add(Vector<F> x) {
    choose(x);
    unordered |= x != x;
  }
  void add(Vector<F> x, Vector<F> y) {
    choose(x);
    choose(y);
    unordered |= either_is_nan<F>(x, y);
  }
  void join(const Accumulator& other) {
    choose(other.value);
    unordered |= other.unordered;
  }
  void choose(Vector<F> x) {
    if constexpr (std::is_same_v<Op, Largest>)
      value = value > x ? value : x;
    else
      value = value < x ? value : x;
  }
  Vector<F> result() const { return unordered ? Vector<F>{} + std::numeric_limits<F>::quiet_NaN() : value; }
};

/// Bytes of accumulators: 32 floats, in the number of native vectors that hold them.
inline constexpr int kLaneBytes = 128;

template <int kBy, class F, int... kIndex>
Vector<F> rotated(Vector<F> x, std::integer_sequence<int, kIndex...>) {
  return __builtin_shufflevector(x, x, ((kIndex + kBy) % static_cast<int>(sizeof...(kIndex)))...);
}
/// Joins the lanes [0, kHalf) with those from kHalf on, and so on with half of them.
template <class Op, class F, int kHalf>
F combine_lanes(Vector<F> x) {
  constexpr int kWidth = kVectorBytes / sizeof(F);
  if constexpr (kHalf == 0)
    return x[0];
  else
    return combine_lanes<Op, F, kHalf / 2>(
        Op::combine(x, rotated<kHalf, F>(x, std::make_integer_sequence<int, kWidth>())));
}

/// The type in which elements are combined: bfloat16 in float, others in their own.
template <class T>
using Combined = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

/// Combines map(value) of n contiguous values in 128 bytes of lanes, then the lanes pairwise: the same order on every
/// CPU level.
template <class Op, class T, class Map>
Combined<T> reduce_contiguous(const T* x, int64_t n, const Map& map) {
  using F = Combined<T>;
  constexpr int kWidth = kVectorBytes / sizeof(F), kVectors = kLaneBytes / kVectorBytes, kLanes = kWidth * kVectors;
  F lanes[kLanes];
  int64_t i = 0;
  if (n >= kLanes) {
    const auto load = [&](int64_t at, int v) { return map(load_vector(x + at + v * kWidth)); };
    Accumulator<Op, F> sums[kVectors];
    // Unrolled, so that all accumulators are in registers.
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[v].begin(load(0, v));
    i = kLanes;
    if (n / kLanes % 2 == 0) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[v].add(load(i, v));
      i += kLanes;
    }
    for (; i + kLanes <= n; i += 2 * kLanes) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[v].add(load(i, v), load(i + kLanes, v));
    }
    if (i == n) {
#pragma GCC unroll 4
      for (int half = kVectors / 2; half > 0; half /= 2)
#pragma GCC unroll 4
        for (int v = 0; v < half; ++v) sums[v].join(sums[v + half]);
      return combine_lanes<Op, F, kWidth / 2>(sums[0].result());
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store_vector(lanes + v * kWidth, sums[v].result());
  } else {
    for (int l = 0; l < kLanes; ++l) lanes[l] = Op::template identity<F>();
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] = Op::combine(lanes[l], map(static_cast<F>(x[i])));
  Vector<F> joined[kVectors];
  for (int v = 0; v < kVectors; ++v) joined[v] = load_vector(lanes + v * kWidth);
  for (int half = kVectors / 2; half > 0; half /= 2)
    for (int v = 0; v < half; ++v) joined[v] = Op::combine(joined[v], joined[v + half]);
  return combine_lanes<Op, F, kWidth / 2>(joined[0]);
}
template <class Op, class T>
Combined<T> reduce_contiguous(const T* x, int64_t n) {
  return reduce_contiguous<Op>(x, n, [](auto value) { return Op::map(value); });
}

/// sums[c] = combine(sums[c], x[0][c], ..., x[kRows - 1][c]), in this order, for n columns. T is F, or BFloat16 for
/// sums in float.
template <class Op, int kRows, class F, class T>
void combine_rows(F* sums, const T* const (&x)[kRows], int64_t n) {
  constexpr int kWidth = kVectorBytes / sizeof(F);
  const T* rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = x[r];
  int64_t c = 0;
  for (; c + kWidth <= n; c += kWidth) {
    const auto value = [&](int r) { return Op::map(load_vector(rows[r] + c)); };
    Accumulator<Op, F> sum;
    sum.begin(load_vector(sums + c));
    int r = 0;
    for (; r + 2 <= kRows; r += 2) sum.add(value(r), value(r + 1));
    for (; r < kRows; ++r) sum.add(value(r));
    store_vector(sums + c, sum.result());
  }
  for (; c < n; ++c) {
    F sum = sums[c];
    for (int r = 0; r < kRows; ++r) sum = Op::combine(sum, Op::map(static_cast<F>(rows[r][c])));
    sums[c] = sum;
  }
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
