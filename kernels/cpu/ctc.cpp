// CTC: a thread computes a sequence.

#include "tern/kernels/ctc.h"

#include <algorithm>
#include <utility>

#include "tern/kernels/ctc_states.h"
#include "tern/kernels/parallel.h"

namespace tern::kernels::TERN_CPU {
namespace {

template <class Body>
void dispatch_wide(DType dtype, const Body& body) {
  if (dtype == DType::kFloat64)
    body.template operator()<double>();
  else
    body.template operator()<float>();
}

/// dx of a sequence; `after`, `now`: rows of states.
template <class F>
void sequence_gradient(const CtcSequence<F>& of, const F* alpha, F loss, F dloss, F* after, F* now, F* dx) {
  for (int64_t t = of.frames - 1; t >= 0; --t) {
    const int64_t at = t * of.frame_step;
    for (int64_t s = 0; s < of.states; ++s) {
      const F rest = of.rest(t, s, after);
      now[s] = rest + of.x[at + s];
      dx[at + s] = -dloss * math::exp(alpha[at + s] + rest + loss);
    }
    std::swap(now, after);
  }
}

}  // namespace

void ctc_forward(Stream, ConstView x, ConstView lengths, ConstView skips, View alpha, View losses) {
  dispatch_wide(x.dtype, [&]<class F>() {
    const CtcBatch<F> all(x, lengths, skips);
    parallel_for(all.batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const CtcSequence<F> of(all, b);
        F* row = alpha.as<F>() + of.offset;
        const F* before = row;
        for (int64_t t = 0; t < of.frames; ++t, before = std::exchange(row, row + of.frame_step))
          for (int64_t s = 0; s < of.states; ++s) row[s] = of.alpha(t, s, before);
        losses.as<F>()[b] = of.loss(before);
      }
    });
  });
}

int64_t ctc_backward_workspace(Stream, int64_t batch, int64_t states, DType dtype) {
  return 2 * batch * states * size_of(dtype);
}

void ctc_backward(Stream, ConstView x, ConstView lengths, ConstView skips, ConstView alpha, ConstView losses,
                  ConstView dlosses, void* workspace, View dx) {
  dispatch_wide(x.dtype, [&]<class F>() {
    const CtcBatch<F> all(x, lengths, skips);
    parallel_for(all.batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const CtcSequence<F> of(all, b);
        F* const gradient = dx.as<F>() + of.offset;
        for (int64_t t = 0; t < all.frames; ++t) std::fill_n(gradient + t * of.frame_step, all.states, F(0));
        const F dloss = dlosses.as<F>()[b];
        F* const rows = static_cast<F*>(workspace) + 2 * b * all.states;
        if (dloss != F(0))
          sequence_gradient(of, alpha.as<F>() + of.offset, losses.as<F>()[b], dloss, rows, rows + all.states, gradient);
      }
    });
  });
}

}  // namespace tern::kernels::TERN_CPU
