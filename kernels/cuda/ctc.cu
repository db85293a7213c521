// CTC: a block computes a sequence, one frame after the other, its threads the states.

#include "tern/kernels/ctc.h"

#include <algorithm>

#include "tern/kernels/ctc_states.h"
#include "tern/kernels/cuda/support/rows.h"

namespace tern::kernels::cuda {
namespace {

/// The rows of alpha are read by other threads than those that wrote them, after a barrier.
template <class F>
__global__ void __launch_bounds__(kRowThreads)
    ctc_forward_kernel(TERN_GRID_CONSTANT(CtcBatch<F>) all, F* alpha, F* losses) {
  const CtcSequence<F> of(all, blockIdx.x);
  F* row = alpha + of.offset;
  const F* before = row;
  for (int64_t t = 0; t < of.frames; ++t) {
    for (int64_t s = threadIdx.x; s < of.states; s += blockDim.x) row[s] = of.alpha(t, s, before);
    block_barrier();
    before = row;
    row += of.frame_step;
  }
  if (threadIdx.x == 0) losses[blockIdx.x] = of.loss(before);
}

template <class F>
struct CtcGradient {
  const F *alpha, *losses, *dlosses;
  F *rows, *dx;  // rows: two of all states for each sequence
};

template <class F>
__global__ void __launch_bounds__(kRowThreads)
    ctc_backward_kernel(TERN_GRID_CONSTANT(CtcBatch<F>) all, TERN_GRID_CONSTANT(CtcGradient<F>) gradient) {
  const CtcSequence<F> of(all, blockIdx.x);
  const F loss = gradient.losses[blockIdx.x], dloss = gradient.dlosses[blockIdx.x];
  F* const rows = gradient.rows + 2 * blockIdx.x * all.states;
  for (int64_t t = all.frames - 1; t >= 0; --t) {
    const int64_t first = t * of.frame_step;
    const F* const after = rows + (t + 1) % 2 * all.states;
    F* const now = rows + t % 2 * all.states;
    for (int64_t s = threadIdx.x; s < all.states; s += blockDim.x) {
      F derivative = 0;
      if (t < of.frames && s < of.states && dloss != F(0)) {
        const F rest = of.rest(t, s, after);
        now[s] = rest + of.x[first + s];
        derivative = -dloss * math::exp(gradient.alpha[of.offset + first + s] + rest + loss);
      }
      gradient.dx[of.offset + first + s] = derivative;
    }
    block_barrier();
  }
}

/// As many threads as there are states, in whole warps.
dim3 threads_for(int64_t states) {
  return dim3(static_cast<unsigned>(std::min<int64_t>(kRowThreads, ceil_div(states, kWarpSize) * kWarpSize)));
}

/// Calls launch_as.template operator()<F>(grid, block), with a block for each sequence.
template <class LaunchAs>
void launch_for_batch(ConstView x, const LaunchAs& launch_as) {
  if (x.shape[1] == 0) return;
  const dim3 grid(grid_blocks(x.shape[1])), block = threads_for(x.shape[2]);
  if (x.dtype == DType::kFloat64)
    launch_as.template operator()<double>(grid, block);
  else
    launch_as.template operator()<float>(grid, block);
}

}  // namespace

void ctc_forward(Stream stream, ConstView x, ConstView lengths, ConstView skips, View alpha, View losses) {
  launch_for_batch(x, [&]<class F>(dim3 grid, dim3 block) {
    launch(ctc_forward_kernel<F>, grid, block, 0, stream, CtcBatch<F>(x, lengths, skips), alpha.as<F>(),
           losses.as<F>());
  });
}

int64_t ctc_backward_workspace(Stream, int64_t batch, int64_t states, DType dtype) {
  return 2 * batch * states * size_of(dtype);
}

void ctc_backward(Stream stream, ConstView x, ConstView lengths, ConstView skips, ConstView alpha, ConstView losses,
                  ConstView dlosses, void* workspace, View dx) {
  launch_for_batch(x, [&]<class F>(dim3 grid, dim3 block) {
    launch(ctc_backward_kernel<F>, grid, block, 0, stream, CtcBatch<F>(x, lengths, skips),
           CtcGradient<F>{alpha.as<F>(), losses.as<F>(), dlosses.as<F>(), static_cast<F*>(workspace), dx.as<F>()});
  });
}

}  // namespace tern::kernels::cuda
