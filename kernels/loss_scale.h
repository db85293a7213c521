#pragma once
// Dynamic loss scaling for fp16 (Micikevicius et al., "Mixed precision training", arXiv:1710.03740). The scale and its
// counters live in device memory, so that a step decides to skip and to change the scale without asking the host.

#include "tern/kernels/kernel.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels {

/// growth_interval updates in a row without overflow multiply the scale by growth_factor, unless that is infinite. An
/// overflow multiplies it by backoff_factor, not below min_scale: with hysteresis h only the h-th since the last growth
/// (torch.amp.GradScaler: h = 1; DeepSpeed's default: 2), counted afresh after every sound update if consecutive.
struct LossScalePolicy {
  double growth_factor = 2;
  double backoff_factor = 0.5;
  double min_scale = 0;
  int32_t growth_interval = 2000;
  int32_t hysteresis = 1;
  bool consecutive_hysteresis = false;
};

struct LossScale {
  float scale = 1;
  float inverse = 1;                 // of scale, rounded from fp64
  int32_t growth_tracker = 0;        // sound updates since the last overflow or growth
  int32_t tolerated = 0;             // overflows that leave the scale as it is
  int32_t found_non_finite = 0;      // since the last update
  int32_t skipped_in_row = 0;        // updates that found an overflow, without a sound one between
  int32_t overflows_at_minimum = 0;  // that found the scale at min_scale > 0 and could not lower it
  int64_t skipped = 0;               // updates left out in all

  TERN_HD void set_scale(float value) {
    scale = value;
    inverse = static_cast<float>(1.0 / static_cast<double>(value));
  }
  TERN_HD void update(const LossScalePolicy& policy) {
    if (found_non_finite) {
      ++skipped;
      ++skipped_in_row;
      growth_tracker = 0;
      if (tolerated > 0) {
        --tolerated;
      } else {
        if (policy.min_scale > 0 && static_cast<double>(scale) <= policy.min_scale) ++overflows_at_minimum;
        const double lower = static_cast<double>(scale) * policy.backoff_factor;
        set_scale(static_cast<float>(lower > policy.min_scale ? lower : policy.min_scale));
      }
    } else {
      skipped_in_row = 0;
      if (policy.consecutive_hysteresis) tolerated = policy.hysteresis - 1;
      if (++growth_tracker >= policy.growth_interval) {
        const float higher = static_cast<float>(static_cast<double>(scale) * policy.growth_factor);
        if (higher <= std::numeric_limits<float>::max()) set_scale(higher);
        growth_tracker = 0;
        tolerated = policy.hysteresis - 1;
      }
    }
    found_non_finite = 0;
  }
};

/// Remembers in *scale whether the norm saw an infinity or NaN. Both in device memory.
TERN_KERNEL(void, note_non_finite, Stream stream, const GradientNorm* norm, LossScale* scale);
/// Ends an update: LossScale::update.
TERN_KERNEL(void, update_loss_scale, Stream stream, LossScalePolicy policy, LossScale* scale);

}  // namespace tern::kernels
