// Reductions over any dimensions and strides, and their workspace.

#include "tern/kernels/cuda/reduce/kernel.h"

namespace tern::kernels::cuda {

int64_t reduce_workspace(Stream, ConstView x, uint32_t dims, View y) {
  if (y.numel() == 0) return 0;
  const ReducePlan plan = plan_reduction(x, dims, y);
  return dispatch_any(x.dtype, [&]<class T>() -> int64_t {
    using F = Accumulator<T>;
    if constexpr (std::is_floating_point_v<F>)
      return plan.workspace_bytes(sizeof(typename Deviations<F>::State));  // the largest state
    else
      return plan.workspace_bytes(sizeof(F));
  });
}

void reduce(Stream stream, Reduction reduction, ConstView x, uint32_t dims, void* workspace, View y) {
  if (y.numel() == 0) return;
  check_reduction(reduction, x);
  const ReducePlan plan = plan_reduction(x, dims, y);
  const ValueSink sink{y.data, y.dtype, reduction == Reduction::kMean, plan.length};
  dispatch_any(x.dtype, [&]<class T>() { reduce_elements<T>(stream, reduction, plan, x.data, workspace, sink); });
}

}  // namespace tern::kernels::cuda
