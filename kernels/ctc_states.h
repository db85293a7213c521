#pragma once
// What the CTC kernels of both devices have in common: the states of one sequence, one frame at a time.

#include <cmath>
#include <cstdint>

#include "tern/kernels/math/math.h"
#include "tern/kernels/view.h"

namespace tern::kernels {

/// log(exp(a) + exp(b) + exp(c)); -infinity where all are.
template <class F>
TERN_HD inline F log_sum_of_three(F a, F b, F c) {
  const F larger = math::max(a, b), smaller = math::min(a, b), largest = math::max(larger, c);
  const F second = math::max(smaller, math::min(larger, c)), last = math::min(smaller, c);
  const F shift = math::select(largest == F(-INFINITY), F(0), largest);  // the differences are then infinite
  return largest + math::log(F(1) + math::exp(second - shift) + math::exp(last - shift));
}

/// The arrays of a call, [frames, batch, states].
template <class F>
struct CtcBatch {
  const F* x;
  const int64_t* lengths;
  const bool* skips;
  int64_t frames, batch, states;

  CtcBatch(ConstView values, ConstView of_sequences, ConstView may_skip)
      : x(values.as<F>()),
        lengths(of_sequences.as<int64_t>()),
        skips(may_skip.as<bool>()),
        frames(values.shape[0]),
        batch(values.shape[1]),
        states(values.shape[2]) {}
};

/// Sequence b of a batch.
template <class F>
struct CtcSequence {
  const F* x;
  const bool* skips;
  int64_t offset, frame_step;  // where the sequence begins in an array, and the distance of its frames
  int64_t frames, states;

  TERN_HD CtcSequence(const CtcBatch<F>& all, int64_t b)
      : x(all.x + b * all.states),
        skips(all.skips + b * all.states),
        offset(b * all.states),
        frame_step(all.batch * all.states),
        frames(all.lengths[2 * b]),
        states(all.lengths[2 * b + 1]) {}

  /// alpha of state s at frame t, from the row of the frame before.
  TERN_HD F alpha(int64_t t, int64_t s, const F* before) const {
    const F none = F(-INFINITY), emitted = x[t * frame_step + s];
    if (t == 0) return s < 2 ? emitted : none;
    return log_sum_of_three(before[s], s > 0 ? before[s - 1] : none, s > 1 && skips[s] ? before[s - 2] : none) +
           emitted;
  }
  /// The logarithm of the summed probabilities of the frames after t, from state s at frame t on. `after`: that of
  /// frame t + 1 for every state, with the state's own probability there.
  TERN_HD F rest(int64_t t, int64_t s, const F* after) const {
    const F none = F(-INFINITY);
    if (t == frames - 1) return s >= states - 2 ? F(0) : none;
    return log_sum_of_three(after[s], s + 1 < states ? after[s + 1] : none,
                            s + 2 < states && skips[s + 2] ? after[s + 2] : none);
  }
  /// `last`: alpha at the last frame.
  TERN_HD F loss(const F* last) const {
    const F none = F(-INFINITY);
    if (frames == 0) return states == 1 ? F(0) : -none;
    return -log_sum_of_three(last[states - 1], states > 1 ? last[states - 2] : none, none);
  }
};

}  // namespace tern::kernels
