#include "tern/core/ops/indexing/nonzero.h"

#include "tern/core/autograd/function.h"
#include "tern/core/device/capture_state.h"
#include "tern/core/ops/reduce/reduce.h"
#include "tern/core/ops/sort/columns.h"
#include "tern/core/ops/workspace.h"
#include "tern/kernels/scan.h"

namespace tern {
namespace {

/// The positions of the set elements of a mask, in row-major order: int64 [count].
Tensor positions_of(const char* op, const Tensor& mask) {
  if (mask.device().is_cuda()) detail::forbid_while_recording(op);
  const NoGrad off;
  const Tensor flags = mask.contiguous();
  const int64_t count = sum(flags).item<int64_t>();
  const Tensor positions = empty({count}, {DType::kInt64, mask.device()});
  const kernels::Stream stream = current_stream(mask.device());
  const Workspace workspace(mask.device(), [&] { return kernels::select_positions_workspace(stream, flags.numel()); });
  kernels::select_positions(stream, flags.view(), workspace.data(), positions.view());
  return positions;
}

}  // namespace

Tensor nonzero(const Tensor& x) {
  const Tensor positions = positions_of("nonzero", x.detach().to(DType::kBool));
  const Tensor indices = empty({positions.numel(), x.dim()}, positions.options());
  kernels::unravel_positions(current_stream(x.device()), positions.view(), x.dim(), x.shape().data(), indices.view());
  return indices;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  TERN_CHECK(mask.dtype() == DType::kBool, "masked_select: the mask must be bool, got ", mask.describe(),
             "; compare first, as in masked_select(x, gt(x, y))");
  detail::check_one_device("masked_select", {&x, &mask});
  const Shape shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
  const Tensor positions = positions_of("masked_select", mask.expand(shape));
  return detail::take_columns(x.expand(shape).reshape({shape.numel()}), positions);
}

}  // namespace tern
