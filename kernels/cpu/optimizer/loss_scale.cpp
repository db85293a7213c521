#include "tern/kernels/optimizer/loss_scale.h"

namespace tern::kernels::TERN_CPU {

void note_non_finite(Stream, const GradientNorm* norm, LossScale* scale) {
  if (norm->non_finite) scale->found_non_finite = 1;
}

void update_loss_scale(Stream, LossScalePolicy policy, LossScale* scale) { scale->update(policy); }

}  // namespace tern::kernels::TERN_CPU
