#pragma once
// What the orders of distances add up, and their gradients, for kernels/cdist.h. V is a number or, on the CPU, a vector
// of numbers; F is a number. An order has
//   State<V>, Backward<V>      what the differences of a pair of rows have given so far, in forward and in backward,
//   each
//                              with add(d, order) for one more difference, join(later) for the state of further ones,
//                              and value(); a new one is that of no difference
//   finish(value)              the distance
//   pair(value, count, dy)     weight and scale, what the gradient needs of a pair besides the difference. value is the
//                              distance or, where kNeedsState, that of Backward, which is then computed again
//   gradient(d, weight, scale) of the difference d
//   kUsesScale                 whether gradient() reads the scale

#include <cmath>

#include "tern/kernels/math/math.h"

namespace tern::kernels::distance {

// Vectors have functions of the same names.
using math::abs, math::pow, math::select;

template <class F>
struct Pair {
  F weight, scale;
};

template <class V>
struct Sum {
  V sum = V(0);
  TERN_HD void join(const Sum& later) { sum = sum + later.sum; }
  TERN_HD V value() const { return sum; }
  TERN_HD V count() const { return V(0); }
};

/// Order 0: the number of differences that are not 0. Its gradient is 0.
struct Count {
  static constexpr bool kNeedsState = false, kUsesScale = false, kHasGradient = false;
  template <class V>
  struct State : Sum<V> {
    TERN_HD void add(V d, const Count&) { this->sum = this->sum + select(d != V(0), V(1), V(0)); }
  };
  template <class F>
  TERN_HD F finish(F sum) const {
    return sum;
  }
};

/// Order 1.
struct Manhattan {
  static constexpr bool kNeedsState = false, kUsesScale = false, kHasGradient = true;
  template <class V>
  struct State : Sum<V> {
    TERN_HD void add(V d, const Manhattan&) { this->sum = this->sum + abs(d); }
  };
  template <class V>
  using Backward = State<V>;
  template <class F>
  TERN_HD F finish(F sum) const {
    return sum;
  }
  template <class F>
  TERN_HD Pair<F> pair(F, F, F dy) const {
    return {dy, F(0)};
  }
  template <class V>
  TERN_HD V gradient(V d, V weight, V) const {
    return select(d > V(0), weight, select(d < V(0), V(0) - weight, V(0)));
  }
};

/// Order 2.
struct Euclidean {
  static constexpr bool kNeedsState = false, kUsesScale = false, kHasGradient = true;
  template <class V>
  struct State : Sum<V> {
    TERN_HD void add(V d, const Euclidean&) { this->sum = this->sum + d * d; }
  };
  template <class V>
  using Backward = State<V>;
  template <class F>
  TERN_HD F finish(F sum) const {
    return math::sqrt(sum);
  }
  template <class F>
  TERN_HD Pair<F> pair(F distance, F, F dy) const {
    const F divisor = select(distance == F(0), F(1), distance);
    return {select(distance == F(0), F(0), dy / divisor), F(0)};
  }
  template <class V>
  TERN_HD V gradient(V d, V weight, V) const {
    return weight * d;
  }
};

/// Order infinity.
struct Chebyshev {
  static constexpr bool kNeedsState = true, kUsesScale = true, kHasGradient = true;
  /// NaN stays.
  template <class V>
  TERN_HD static V larger(V a, V b) {
    return select((b > a) | (b != b), b, a);
  }
  template <class V>
  struct State {
    V largest = V(0);
    TERN_HD void add(V d, const Chebyshev&) { largest = larger(largest, abs(d)); }
    TERN_HD void join(const State& later) { largest = larger(largest, later.largest); }
    TERN_HD V value() const { return largest; }
  };
  /// Also counts the differences of largest magnitude.
  template <class V>
  struct Backward {
    V largest = V(0), ties = V(0);
    TERN_HD void add(V d, const Chebyshev&) { join({abs(d), V(1)}); }
    TERN_HD void join(const Backward& later) {
      ties = select(later.largest > largest, V(0), ties) + select(later.largest < largest, V(0), later.ties);
      largest = larger(largest, later.largest);
    }
    TERN_HD V value() const { return largest; }
    TERN_HD V count() const { return ties; }
  };
  template <class F>
  TERN_HD F finish(F largest) const {
    return largest;
  }
  template <class F>
  TERN_HD Pair<F> pair(F largest, F ties, F dy) const {
    return {select(largest != largest, largest, dy / ties), largest};
  }
  /// A product, so that a weight of NaN reaches all differences. 0 where all differences are 0.
  template <class V>
  TERN_HD V gradient(V d, V weight, V largest) const {
    return weight * (select(d == largest, V(1), V(0)) - select(V(0) - d == largest, V(1), V(0)));
  }
};

/// Any other positive order. The gradient has a power of |d| / distance, which does not overflow.
struct Minkowski {
  static constexpr bool kNeedsState = false, kUsesScale = true, kHasGradient = true;
  double order;
  template <class V>
  struct State : Sum<V> {
    TERN_HD void add(V d, const Minkowski& of) { this->sum = this->sum + pow(abs(d), V(of.order)); }
  };
  template <class V>
  using Backward = State<V>;
  template <class F>
  TERN_HD F finish(F sum) const {
    return math::pow(sum, F(1 / order));
  }
  template <class F>
  TERN_HD Pair<F> pair(F distance, F, F dy) const {
    const F divisor = select(distance == F(0), F(1), distance);
    return {select(distance == F(0), F(0), dy), F(1) / divisor};
  }
  template <class V>
  TERN_HD V gradient(V d, V weight, V scale) const {
    const V size = weight * pow(abs(d) * scale, V(order - 1));
    return select(d == V(0), V(0), select(d < V(0), V(0) - size, size));  // orders below 1 have no slope at 0
  }
};

/// Calls body(order) with the struct of an order >= 0.
template <class Body>
void with_order(double order, const Body& body) {
  if (order == 0) return body(Count{});
  if (order == 1) return body(Manhattan{});
  if (order == 2) return body(Euclidean{});
  if (std::isinf(order)) return body(Chebyshev{});
  body(Minkowski{order});
}

}  // namespace tern::kernels::distance
