#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/optimizer/loss_scale.h"

namespace tern::kernels::cuda {
namespace {

__global__ void note_non_finite_kernel(const GradientNorm* norm, LossScale* scale) {
  if (norm->non_finite) scale->found_non_finite = 1;
}

__global__ void update_loss_scale_kernel(LossScalePolicy policy, LossScale* scale) { scale->update(policy); }

}  // namespace

void note_non_finite(Stream stream, const GradientNorm* norm, LossScale* scale) {
  launch(note_non_finite_kernel, dim3(1), dim3(1), 0, stream, norm, scale);
}

void update_loss_scale(Stream stream, LossScalePolicy policy, LossScale* scale) {
  launch(update_loss_scale_kernel, dim3(1), dim3(1), 0, stream, policy, scale);
}

}  // namespace tern::kernels::cuda
