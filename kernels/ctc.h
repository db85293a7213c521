#pragma once
// Connectionist temporal classification (Graves et al., ICML 2006): the probability of a target, summed over all ways
// to align it with the frames. The states of a sequence are the target's labels with a blank before, between and after
// them. From one frame to the next an alignment stays in its state, goes on to the next, or skips a blank.

#include "tern/kernels/kernel.h"

namespace tern::kernels {

/// alpha[t, b, s] = the logarithm of the summed probabilities of the alignments of frames 0, ..., t that end in state
/// s; losses[b] = minus that of all whole alignments, which end in one of the last two states: infinity if there is
/// none. x: [frames, batch, states], log-probabilities of the states' labels; alpha: like x, written for the frames and
/// states of each sequence; losses: [batch]; all fp32 or all fp64, contiguous. lengths: int64 [batch, 2], the frames
/// and the states (odd) of each sequence. skips: bool [batch, states], whether state s may follow state s - 2.
TERN_KERNEL(void, ctc_forward, Stream stream, ConstView x, ConstView lengths, ConstView skips, View alpha, View losses);

/// Bytes of workspace for ctc_backward.
TERN_KERNEL(int64_t, ctc_backward_workspace, Stream stream, int64_t batch, int64_t states, DType dtype);
/// dx[t, b, s] = -dlosses[b] times the probability that an alignment is in state s at frame t; 0 outside of the
/// sequence and where dlosses is 0, NaN where the loss is infinite. The other arguments are those of ctc_forward.
TERN_KERNEL(void, ctc_backward, Stream stream, ConstView x, ConstView lengths, ConstView skips, ConstView alpha,
            ConstView losses, ConstView dlosses, void* workspace, View dx);

}  // namespace tern::kernels
