#pragma once
// One unit of one step of each recurrent cell, for the kernels of both devices.

#include "tern/kernels/math/math.h"
#include "tern/kernels/recurrent/recurrent.h"

namespace tern::kernels {

/// gates: in, what the input and the state gave; out, i, f, g, o.
template <class F>
struct LstmCell {
  F gates[4], cell, state;
  [[gnu::always_inline]] TERN_HD inline void forward(F previous_cell) {
    gates[0] = math::sigmoid(gates[0]);
    gates[1] = math::sigmoid(gates[1]);
    gates[2] = math::tanh(gates[2]);
    gates[3] = math::sigmoid(gates[3]);
    cell = gates[1] * previous_cell + gates[0] * gates[2];
    state = gates[3] * math::tanh(cell);
  }
  /// The gates become their gradients, and `cell` that of the previous cell. dcell: from the next step.
  [[gnu::always_inline]] TERN_HD inline void backward(F previous_cell, F dstate, F dcell) {
    const F i = gates[0], f = gates[1], g = gates[2], o = gates[3], squashed = math::tanh(cell);
    const F d = dcell + dstate * o * (F(1) - squashed * squashed);
    state = o * squashed;
    gates[0] = d * g * i * (F(1) - i);
    gates[1] = d * previous_cell * f * (F(1) - f);
    gates[2] = d * i * (F(1) - g * g);
    gates[3] = dstate * squashed * o * (F(1) - o);
    cell = d * f;
  }
};

/// gates: in, what the input gave; out, r, z, n. `hidden`: what the state gave to n.
template <class F>
struct GruCell {
  F gates[3], hidden, state;
  [[gnu::always_inline]] TERN_HD inline void forward(F reset, F update, F previous) {
    gates[0] = math::sigmoid(gates[0] + reset);
    gates[1] = math::sigmoid(gates[1] + update);
    gates[2] = math::tanh(gates[2] + gates[0] * hidden);
    state = gates[2] + gates[1] * (previous - gates[2]);
  }
  /// The gates become their gradients, `hidden` its own, and `state` the part of the previous state's that passes by
  /// the products.
  [[gnu::always_inline]] TERN_HD inline void backward(F previous, F dstate) {
    const F r = gates[0], z = gates[1], n = gates[2], dn = dstate * (F(1) - z) * (F(1) - n * n);
    gates[0] = dn * hidden * r * (F(1) - r);
    gates[1] = dstate * (previous - n) * z * (F(1) - z);
    gates[2] = dn;
    hidden = dn * r;
    state = dstate * z;
  }
};

template <class F, bool kRelu>
struct PlainCell {
  [[gnu::always_inline]] TERN_HD static inline F forward(F x) {
    if constexpr (kRelu)
      return x < F(0) ? F(0) : x;  // NaN stays NaN
    else
      return math::tanh(x);
  }
  [[gnu::always_inline]] TERN_HD static inline F backward(F state, F dstate) {
    if constexpr (kRelu)
      return state > F(0) ? dstate : F(0);
    else
      return dstate * (F(1) - state * state);
  }
};

}  // namespace tern::kernels
