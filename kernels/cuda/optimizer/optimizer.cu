// Optimizer updates by the built-in rules, running averages of weights, and clipping outside an optimizer.

#include "tern/kernels/optimizer/optimizer.h"

#include "tern/kernels/cuda/optimizer/kernel.h"

namespace tern::kernels::cuda {
namespace {

/// What scale_by_norm needs of a tensor.
struct ScaleEntry {
  void* data;
  int64_t size;
  int32_t first_block;
  bool aligned;
};
struct Scaling {
  const GradientNorm* norm;
  double max_norm;
  int32_t count;
  ScaleEntry tensors[kListTensors];
};

/// A parameter and its average.
struct AverageEntry {
  void* average;
  const void* weight;
  int64_t size;
  int32_t first_block;
  bool aligned;
};
struct Averaging {
  AverageStep step;
  int32_t count;
  AverageEntry tensors[kListTensors];
};

template <class W>
__global__ void __launch_bounds__(kListThreads) average_kernel(TERN_GRID_CONSTANT(Averaging) averaging) {
  using F = ComputeType<W>;
  TERN_SHARED(double, share);
  if (averaging.step.is_skipped()) return;
  if (threadIdx.x == 0) share = averaging.step.share(averaging.step.count());
  block_barrier();
  const bool near = share < 0.5;  // torch.lerp's two forms: exact at either end
  const F factor = static_cast<F>(near ? share : 1 - share);
  const AverageEntry& tensor = find_tensor(averaging.tensors, averaging.count, static_cast<int>(blockIdx.x));
  for_each_element<kListElements<W, F>>(tensor, [&]<int kCount>(int64_t at) {
    F average[kCount], weight[kCount];
    F* const averages = static_cast<F*>(tensor.average) + at;
    load_values(averages, average);
    load_values(static_cast<const W*>(tensor.weight) + at, weight);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const F step = factor * (weight[i] - average[i]);
      average[i] = near ? average[i] + step : weight[i] - step;
    }
    store_values(averages, average);
  });
}

template <class T>
__global__ void __launch_bounds__(kListThreads) scale_kernel(TERN_GRID_CONSTANT(Scaling) scaling) {
  using F = ComputeType<T>;
  const double factor = clip_factor(math::sqrt(scaling.norm->sum_of_squares), scaling.max_norm);
  if (factor == 1) return;
  const ScaleEntry& tensor = find_tensor(scaling.tensors, scaling.count, static_cast<int>(blockIdx.x));
  T* data = static_cast<T*>(tensor.data);
  for_each_element<vector_width<T>>(tensor, [&]<int kCount>(int64_t at) {
    F x[kCount];
    load_values(data + at, x);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] *= static_cast<F>(factor);
    store_values(data + at, x);
  });
}

/// run.operator()<T>(parameters, blocks) for the tensors of every dtype, as many at a time as a launch takes.
/// entry_of(t) gives a tensor's dtype and its entry in the list.
template <class Parameters, class EntryOf, class Run>
void launch_lists(Parameters parameters, int64_t count, const EntryOf& entry_of, const Run& run) {
  for (const DType dtype : {float64, float32, bfloat16, float16}) {
    int64_t blocks = 0;
    parameters.count = 0;
    const auto flush = [&] {
      if (parameters.count > 0)
        dispatch_float(dtype, [&]<class T>() { run.template operator()<T>(parameters, dim3(grid_blocks(blocks))); });
      parameters.count = 0;
      blocks = 0;
    };
    for (int64_t t = 0; t < count; ++t) {
      auto [type, entry] = entry_of(t);
      if (type != dtype || entry.size == 0) continue;
      if (is_list_full(parameters.count, blocks, entry.size)) flush();
      entry.first_block = static_cast<int32_t>(blocks);
      parameters.tensors[parameters.count++] = entry;
      blocks += list_blocks(entry.size);
    }
    flush();
  }
}

template <class... Rules>
OptimizerFunction* builtin_function(int index, TypeList<Rules...>) {
  static constexpr OptimizerFunction* kFunctions[] = {&update_by_rule<Rules>...};
  return kFunctions[index];
}

}  // namespace

void update_weights(Stream stream, const OptimizerRules& rules, const OptimizerTensor* tensors, int64_t count,
                    const OptimizerStep& step) {
  OptimizerFunction* function = rules.builtin >= 0 ? builtin_function(rules.builtin, BuiltinRules()) : rules.on_cuda;
  TERN_CHECK(function,
             "optimizer: this rule has no CUDA kernels; declare `static tern::kernels::OptimizerFunction on_cuda;` in "
             "its struct and define it in a .cu file with kernels/cuda/optimizer/kernel.h, or move the parameters to "
             "the CPU");
  function(stream, rules, tensors, count, step);
}

void average_weights(Stream stream, const AverageTensor* tensors, int64_t count, AverageStep step) {
  launch(count_kernel<AverageStep>, dim3(1), dim3(1), 0, stream, step);
  launch_lists(
      Averaging{step, 0, {}}, count,
      [&](int64_t i) {
        const AverageTensor& t = tensors[i];
        const bool aligned = aligned16(t.average) && aligned16(t.weight);
        return std::pair(t.weight_dtype, AverageEntry{t.average, t.weight, t.size, 0, aligned});
      },
      [&]<class W>(const Averaging& averaging, dim3 blocks) {
        launch(average_kernel<W>, blocks, dim3(kListThreads), 0, stream, averaging);
      });
}

void scale_by_norm(Stream stream, const View* tensors, int64_t count, const GradientNorm* norm, double max_norm) {
  launch_lists(
      Scaling{norm, max_norm, 0, {}}, count,
      [&](int64_t i) {
        const View& t = tensors[i];
        return std::pair(t.dtype, ScaleEntry{t.data, t.numel(), 0, aligned16(t.data)});
      },
      [&]<class T>(const Scaling& scaling, dim3 blocks) {
        launch(scale_kernel<T>, blocks, dim3(kListThreads), 0, stream, scaling);
      });
}

}  // namespace tern::kernels::cuda
