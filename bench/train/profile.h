#pragma once
// Where a step's time goes.

#include "tern/bench/train/measure.h"
#include "tern/bench/train/model_step.h"

namespace tern::bench {

/// Shares of a step of `step_seconds`:
///   forward, backward, update     measured inside the steps (update: clipping, AdamW, dropping the gradients)
///   gemm, attention               the step's matrix products and attention alone, measured apart at the same shapes
///                                 with warm caches, so a little less than they take inside the step
///   rest                          what is left: norms, GELU, dropout, bias, embedding, loss, update
///   products                      the rate of each kind of product alone
///   gemm_rate                     all of the step's operations a second over oneDNN's own rate (2048 x 2048 x 2048)
/// `input` and `lengths` are one batch as the steps had it; `phases` the totals over `steps` steps.
Json profile(ModelStep& step, const models::EncoderInput& input, const std::vector<int64_t>& lengths,
             double step_seconds, const PhaseSeconds& phases, size_t steps);

}  // namespace tern::bench
