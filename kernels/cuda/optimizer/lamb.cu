#include "tern/kernels/cuda/optimizer/layerwise_list.h"

namespace tern::kernels::cuda {
namespace {

/// The averages, and the sums of squares of weights and changes; where the trust ratio is 1, the weights too.
template <class W, class G>
__global__ void __launch_bounds__(kListThreads) lamb_sums_kernel(TERN_GRID_CONSTANT(LayerUpdate<LambRule>) update) {
  using F = ComputeType<W>;
  using Step = LayerStep<LambRule, F>;
  TERN_SHARED(Step, shared);
  if (update.step.is_skipped()) return;
  const LayerEntry& tensor = find_tensor(update.tensors, update.count, static_cast<int>(blockIdx.x));
  if (threadIdx.x == 0) shared = prepare_layer<LambRule, F>(update, tensor.group);
  block_barrier();
  const auto step = shared.step;
  const F gradient_factor = shared.factor;
  const bool adapts = shared.rule.adapts();
  F weight_sum = 0, change_sum = 0;
  for_each_element<kListElements<W, G>>(tensor, [&]<int kCount>(int64_t at) {
    F gradient[kCount], weight[kCount], average[kCount], square[kCount];
    F *const averages = static_cast<F*>(tensor.states[0]) + at, *const squares = static_cast<F*>(tensor.states[1]) + at;
    load_values(static_cast<const G*>(tensor.gradient) + at, gradient);
    updates::load_weight<W>(tensor, at, weight);
    load_values(averages, average);
    load_values(squares, square);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      step.average(gradient_factor * gradient[i], average[i], square[i]);
      const F change = step.change(weight[i], average[i], square[i]);
      weight_sum += weight[i] * weight[i];
      change_sum += change * change;
      weight[i] -= step.rate * change;
    }
    store_values(averages, average);
    store_values(squares, square);
    if (!adapts) updates::store_weight<W>(tensor, at, weight);
  });
  if (!adapts) return;
  const LayerSums sums = sums_of(update, tensor);
  sums.store_weight(block_sum<kListThreads>(static_cast<double>(weight_sum)));
  sums.store_change(block_sum<kListThreads>(static_cast<double>(change_sum)));
}

template <class W, class G>
__global__ void __launch_bounds__(kListThreads) lamb_apply_kernel(TERN_GRID_CONSTANT(LayerUpdate<LambRule>) update) {
  using F = ComputeType<W>;
  using Step = LayerStep<LambRule, F>;
  TERN_SHARED(Step, shared);
  if (update.step.is_skipped()) return;
  const LayerEntry& tensor = find_tensor(update.tensors, update.count, static_cast<int>(blockIdx.x));
  if (!update.groups[tensor.group].adapts()) return;
  if (threadIdx.x == 0) shared = prepare_layer<LambRule, F>(update, tensor.group);
  block_barrier();
  const auto step = shared.step;
  const LayerSums sums = sums_of(update, tensor);
  const int64_t blocks = list_blocks(tensor.size);
  const double ratio = LambRule::trust_ratio(sums.weight(blocks), sums.change(blocks));
  const F rate = static_cast<F>(shared.rule.lr * ratio);
  for_each_element<kListElements<W, G>>(tensor, [&]<int kCount>(int64_t at) {
    F weight[kCount], average[kCount], square[kCount];
    updates::load_weight<W>(tensor, at, weight);
    load_values(static_cast<const F*>(tensor.states[0]) + at, average);
    load_values(static_cast<const F*>(tensor.states[1]) + at, square);
#pragma unroll
    for (int i = 0; i < kCount; ++i) weight[i] -= rate * step.change(weight[i], average[i], square[i]);
    updates::store_weight<W>(tensor, at, weight);
  });
}

std::pair<int64_t, int64_t> lamb_size(const OptimizerTensor& t) {
  return {list_blocks(t.size), 2 * list_blocks(t.size)};
}

}  // namespace

int64_t lamb_workspace(Stream, const OptimizerTensor* tensors, int64_t count) {
  return layer_workspace(tensors, count, lamb_size);
}

void update_lamb(Stream stream, const LambRule* groups, const OptimizerTensor* tensors, int64_t count,
                 const OptimizerStep& step, void* workspace) {
  launch(count_kernel<OptimizerStep>, dim3(1), dim3(1), 0, stream, step);
  run_layers(groups, tensors, count, step, workspace, lamb_size,
             [&](const LayerUpdate<LambRule>& update, int64_t blocks, DType weight, DType gradient) {
               const dim3 grid(grid_blocks(blocks));
               const bool any = std::any_of(update.tensors, update.tensors + update.count,
                                            [&](const LayerEntry& t) { return update.groups[t.group].adapts(); });
               with_layer_types(weight, gradient, [&]<class W, class G>() {
                 launch(lamb_sums_kernel<W, G>, grid, dim3(kListThreads), 0, stream, update);
                 if (any) launch(lamb_apply_kernel<W, G>, grid, dim3(kListThreads), 0, stream, update);
               });
             });
}

}  // namespace tern::kernels::cuda
