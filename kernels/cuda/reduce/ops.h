#pragma once
// The operations of reductions over values of type F (Value). A State is the partial result of a thread, block or part:
// none() has no elements, take() adds one, join() adds another state. The Sink writes the last one.

#include <limits>

#include "tern/kernels/cuda/strided.h"
#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels::cuda {

// Operations that combine values; sums and products of integers wrap.

struct Add {
  static constexpr bool kSums = true;
  template <class F>
  __device__ static F identity() {
    return F(0);
  }
  template <class F>
  __device__ static F map(F x) {
    return x;
  }
  template <class F>
  __device__ static F combine(F a, F b) {
    if constexpr (std::is_integral_v<F>)
      return (math::Integer(a) + math::Integer(b)).value;
    else
      return a + b;
  }
};
struct Multiply : Add {
  static constexpr bool kSums = false;
  template <class F>
  __device__ static F identity() {
    return F(1);
  }
  template <class F>
  __device__ static F combine(F a, F b) {
    if constexpr (std::is_integral_v<F>)
      return (math::Integer(a) * math::Integer(b)).value;
    else
      return a * b;
  }
};
struct AddSquares : Add {
  template <class F>
  __device__ static F map(F x) {
    return Multiply::combine(x, x);
  }
};
struct AddMagnitudes : Add {
  template <class F>
  __device__ static F map(F x) {
    return math::abs(x);
  }
};
struct Largest : Add {
  static constexpr bool kSums = false;
  template <class F>
  __device__ static F identity() {
    using Limits = std::numeric_limits<F>;
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
  template <class F>
  __device__ static F combine(F a, F b) {
    return math::max(a, b);  // NaN in either operand gives NaN
  }
};
struct Smallest : Add {
  static constexpr bool kSums = false;
  template <class F>
  __device__ static F identity() {
    using Limits = std::numeric_limits<F>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <class F>
  __device__ static F combine(F a, F b) {
    return math::min(a, b);
  }
};
/// Logical and: every number except 0 is true, including NaN.
struct All : Smallest {
  template <class F>
  __device__ static F identity() {
    return F(1);
  }
  template <class F>
  __device__ static F map(F x) {
    return x != F(0) ? F(1) : F(0);
  }
};
struct Any : Largest {
  template <class F>
  __device__ static F identity() {
    return F(0);
  }
  template <class F>
  __device__ static F map(F x) {
    return All::map(x);
  }
};

/// The type in which values are combined: float for 16-bit and fp32, int64 for integers and bool.
template <class T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, int64_t, ComputeType<T>>;

/// The destination of values.
struct ValueSink {
  void* data;
  DType dtype;
  bool mean;
  int64_t count;  // elements per result

  template <class F>
  __device__ void store(int64_t offset, F value) const {
    if (mean) {
      store_as(offset, static_cast<double>(value) / static_cast<double>(count));
    } else {
      store_as(offset, value);
    }
  }
  template <class F>
  __device__ void store_as(int64_t offset, F value) const {
    elementwise::with_storage<F>(
        dtype, [&]<class T>() { store_one(static_cast<Stored<T>*>(data) + offset, convert<F, T>(value)); });
  }
};

/// A reduction to values of type F by one of the operations above. State: the partial result of a thread, block or
/// part.
template <class Rule, class F>
struct ValueReduction {
  using Value = F;
  using State = F;
  using Sink = ValueSink;
  /// Long sums are divided into runs, so that rounding errors do not accumulate.
  static constexpr bool kRuns = std::is_floating_point_v<F> && Rule::kSums;

  __device__ static State none() { return Rule::template identity<F>(); }
  __device__ void take(State& state, F value, int64_t) const { state = Rule::combine(state, Rule::map(value)); }
  __device__ void join(State& state, const State& other) const { state = Rule::combine(state, other); }
};

/// Writes what Op::result() makes of a state.
template <class Op>
struct ResultSink : ValueSink {
  template <class State>
  __device__ void store(int64_t offset, const State& state) const {
    ValueSink::store(offset, Op::result(state));
  }
};

/// The sum of the squared differences from the mean: Welford (1962), joined as in Chan, Golub and LeVeque, "Updating
/// Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
template <class F>
struct Deviations {
  struct alignas(16) State {
    F count, mean, squares;
  };
  using Value = F;
  using Sink = ResultSink<Deviations>;
  static constexpr bool kRuns = true;

  __device__ static State none() { return {0, 0, 0}; }
  __device__ static void take(State& state, F value, int64_t) {
    const F difference = value - state.mean;
    state.count += 1;
    state.mean += difference / state.count;
    state.squares += difference * (value - state.mean);
  }
  __device__ static void join(State& state, const State& other) {
    if (other.count == 0) return;
    const F count = state.count + other.count, difference = other.mean - state.mean, share = other.count / count;
    state.mean = state.count == 0 ? other.mean : state.mean + difference * share;
    state.squares += other.squares + difference * difference * state.count * share;
    state.count = count;
  }
  __device__ static F result(const State& state) { return state.squares; }
};

/// log(sum(exp(x))). An element that equals the largest counts 1: their difference is NaN if they are infinite.
template <class F>
struct LogSumExp {
  struct State {
    F largest, sum;  // the sum of exp(x - largest); largest is never NaN
  };
  using Value = F;
  using Sink = ResultSink<LogSumExp>;
  static constexpr bool kRuns = true;

  __device__ static State none() { return {Largest::identity<F>(), 0}; }
  __device__ static void take(State& state, F value, int64_t) {
    const F smaller = value == state.largest ? F(1) : math::exp(-math::abs(value - state.largest));
    const bool larger = value > state.largest;
    state.sum = larger ? state.sum * smaller + 1 : state.sum + smaller;
    state.largest = larger ? value : state.largest;
  }
  __device__ static void join(State& state, const State& other) {
    const bool larger = other.largest > state.largest;
    const State &high = larger ? other : state, &low = larger ? state : other;
    const F factor = low.largest == high.largest ? F(1) : math::exp(low.largest - high.largest);
    state = {high.largest, high.sum + low.sum * factor};
  }
  __device__ static F result(const State& state) { return state.largest + math::log(state.sum); }
};

}  // namespace tern::kernels::cuda
