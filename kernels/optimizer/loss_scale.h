#pragma once
// Dynamic loss scaling for fp16 (Micikevicius et al., "Mixed precision training", arXiv:1710.03740). The scale and its
// counters are in device memory, so that a step can skip and change the scale without waiting for the host.

#include "tern/kernels/kernel.h"
#include "tern/kernels/reduce.h"

namespace tern::kernels {

/// After growth_interval consecutive updates without overflow the scale is multiplied by growth_factor, unless the
/// product is infinite. An overflow multiplies it by backoff_factor, but not below min_scale. With hysteresis h the
/// first h - 1 overflows since the last growth leave it as it is (torch.amp.GradScaler: h = 1; DeepSpeed's default: 2);
/// with consecutive_hysteresis every update without overflow restarts that count.
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
  float inverse = 1;                 // 1 / scale, rounded from fp64
  int32_t growth_tracker = 0;        // updates without overflow since the last overflow or growth
  int32_t tolerated = 0;             // number of further overflows that will not lower the scale
  int32_t found_non_finite = 0;      // 1: an overflow was found since the last update
  int32_t skipped_in_row = 0;        // consecutive updates with an overflow
  int32_t overflows_at_minimum = 0;  // overflows that found the scale already at min_scale > 0
  int64_t skipped = 0;               // all updates skipped so far

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

/// Sets scale->found_non_finite if the norm found an infinity or NaN. Both are in device memory.
TERN_KERNEL(void, note_non_finite, Stream stream, const GradientNorm* norm, LossScale* scale);
/// Ends an update: LossScale::update.
TERN_KERNEL(void, update_loss_scale, Stream stream, LossScalePolicy policy, LossScale* scale);

}  // namespace tern::kernels
