// Optimizer updates: one launch per pair of weight and gradient dtypes does all tensors. The list of tensors travels in
// the kernel's parameters, so a captured step needs no copy; the count of steps, the norm and the scale stay on the
// device. The formulas and their order of operations are those of kernels/cpu/optimizer.cpp.

#include "tern/kernels/optimizer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "tern/kernels/cuda/support/launch.h"
#include "tern/kernels/cuda/values.h"
#include "tern/kernels/math.h"

namespace tern::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 16384;  // elements of a tensor that one block updates
// CUDA takes 32,764 bytes of kernel parameters (12.1 and later, sm_70 and later).
constexpr int kMaxTensors = 400, kMaxGroups = 64;

/// One tensor as the kernels want it.
struct Entry {
  void* weight;
  const void* gradient;
  void* state1;
  void* state2;
  void* state3;
  void* master;
  void* compensation;
  int64_t size;
  int32_t first_block;  // blocks of all tensors lie end to end
  uint16_t group;
  bool aligned;  // every pointer to 16 bytes
};

template <class Group>
struct Update {
  OptimizerStep step;
  int32_t count;
  Group groups[kMaxGroups];
  int32_t group_index[kMaxGroups];  // the caller's numbers of the groups
  Entry tensors[kMaxTensors];
};
static_assert(sizeof(Update<AdamGroup>) <= 32764);

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
  ScaleEntry tensors[kMaxTensors];
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
  AverageEntry tensors[kMaxTensors];
};

/// The tensor that a block works on: the last whose first block is not behind it.
template <class AnyEntry>
__device__ const AnyEntry& find_tensor(const AnyEntry* tensors, int count, int block) {
  int low = 0, high = count;  // tensors[low].first_block <= block < tensors[high].first_block
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (tensors[middle].first_block <= block ? low : high) = middle;
  }
  return tensors[low];
}

/// min(1, max_norm / (norm + 1e-6)) as clip_grad_norm_; NaN stays NaN.
__device__ double clip_factor(double norm, double max_norm) {
  const double ratio = max_norm / (norm + 1e-6);
  return ratio >= 1 ? 1 : ratio;
}

/// What gradients are multiplied by: 1 / loss scale and the clipping factor. The norm is of the gradients as they lie
/// in memory, that is, times the loss scale.
__device__ double gradient_factor(const OptimizerStep& step) {
  const double unscale = step.inverse_scale ? static_cast<double>(*step.inverse_scale) : 1;
  if (!step.norm || step.max_norm <= 0) return unscale;
  return unscale * clip_factor(math::sqrt(step.norm->sum_of_squares) * unscale, step.max_norm);
}

/// Runs before the updates, which read the new count.
__global__ void count_step_kernel(OptimizerStep step) {
  if (!step.is_skipped()) ++*step.step;
}

__global__ void count_average_kernel(AverageStep step) {
  if (!step.is_skipped()) ++*step.updates;
}

/// Elements of one step of a thread: 16 bytes of the narrower type, but no more than 32 of the wider, or registers
/// spill.
template <class W, class G>
constexpr int kElements = std::min<int>(std::max(vector_width<W>, vector_width<G>),
                                        32 / std::max(sizeof(W), sizeof(G)));

/// The weight itself, its fp32 copy, or its sum with what earlier roundings took from it.
template <class W, class F, int kCount>
__device__ void load_weight(const Entry& t, int64_t at, F (&weight)[kCount]) {
  if (t.master)
    load_values(static_cast<const F*>(t.master) + at, weight);
  else
    load_values(static_cast<const W*>(t.weight) + at, weight);
  if constexpr (std::is_same_v<W, BFloat16>) {
    if (t.compensation == nullptr) return;
    F rest[kCount];
    load_values(static_cast<const W*>(t.compensation) + at, rest);
#pragma unroll
    for (int i = 0; i < kCount; ++i) weight[i] += rest[i];
  }
}
template <class W, class F, int kCount>
__device__ void store_weight(const Entry& t, int64_t at, const F (&weight)[kCount]) {
  if (t.master) store_values(static_cast<F*>(t.master) + at, weight);
  store_values(static_cast<W*>(t.weight) + at, weight);
  if constexpr (std::is_same_v<W, BFloat16>) {
    if (t.compensation == nullptr) return;
    F rest[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) rest[i] = weight[i] - static_cast<F>(W(weight[i]));
    store_values(static_cast<W*>(t.compensation) + at, rest);
  }
}

/// What one thread computes for its block, in double as PyTorch does.
struct StepConstants {
  double lr;
  double factor;  // of the gradients
  double step_size, root_correction;
  bool first_step;
};

/// A group's constants in the type F of the arithmetic.
template <class F>
struct AdamRule {
  static __device__ StepConstants constants(const AdamGroup& g, double lr, const OptimizerStep& step) {
    const auto count = static_cast<double>(*step.step);
    return {lr, gradient_factor(step), lr / (1 - math::pow(g.beta1, count)), math::sqrt(1 - math::pow(g.beta2, count)),
            false};
  }

  __device__ AdamRule(const AdamGroup& g, const StepConstants& c)
      : sign(g.maximize ? F(-1) : F(1)),
        coupled(g.decoupled ? F(0) : static_cast<F>(g.weight_decay)),
        keep(g.decoupled ? static_cast<F>(1 - c.lr * g.weight_decay) : F(1)),
        first(static_cast<F>(1 - g.beta1)),
        beta2(static_cast<F>(g.beta2)),
        second(static_cast<F>(1 - g.beta2)),
        correction(static_cast<F>(c.root_correction)),
        eps(static_cast<F>(g.eps)),
        rate(static_cast<F>(c.step_size)),
        scale(static_cast<F>(c.factor)),
        amsgrad(g.amsgrad) {}

  /// kCount elements at `at`.
  template <class W, class G, int kCount>
  __device__ void update(const Entry& t, int64_t at) const {
    F gradient[kCount], weight[kCount], average[kCount], square[kCount], largest[kCount] = {};
    load_values(static_cast<const G*>(t.gradient) + at, gradient);
    load_weight<W>(t, at, weight);
    load_values(static_cast<const F*>(t.state1) + at, average);
    load_values(static_cast<const F*>(t.state2) + at, square);
    if (amsgrad) load_values(static_cast<const F*>(t.state3) + at, largest);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      F x = sign * (scale * gradient[i]);
      if (coupled != F(0)) x += coupled * weight[i];
      average[i] += first * (x - average[i]);
      square[i] = square[i] * beta2 + second * x * x;
      F root = square[i];
      if (amsgrad) root = largest[i] = math::max(largest[i], square[i]);
      weight[i] = weight[i] * keep - rate * average[i] / (math::sqrt(root) / correction + eps);
    }
    store_values(static_cast<F*>(t.state1) + at, average);
    store_values(static_cast<F*>(t.state2) + at, square);
    if (amsgrad) store_values(static_cast<F*>(t.state3) + at, largest);
    store_weight<W>(t, at, weight);
  }

  F sign, coupled, keep, first, beta2, second, correction, eps, rate, scale;
  bool amsgrad;
};

template <class F>
struct SgdRule {
  static __device__ StepConstants constants(const SgdGroup&, double lr, const OptimizerStep& step) {
    return {lr, gradient_factor(step), 0, 0, *step.step == 1};
  }

  __device__ SgdRule(const SgdGroup& g, const StepConstants& c)
      : sign(g.maximize ? F(-1) : F(1)),
        decay(static_cast<F>(g.weight_decay)),
        rate(static_cast<F>(c.lr)),
        keep(static_cast<F>(g.momentum)),
        add(static_cast<F>(1 - g.dampening)),
        scale(static_cast<F>(c.factor)),
        nesterov(g.nesterov),
        first_step(c.first_step) {}

  template <class W, class G, int kCount>
  __device__ void update(const Entry& t, int64_t at) const {
    F gradient[kCount], weight[kCount], momentum[kCount] = {};
    const bool has_momentum = keep != F(0) && t.state1 != nullptr;
    load_values(static_cast<const G*>(t.gradient) + at, gradient);
    load_weight<W>(t, at, weight);
    if (has_momentum && !first_step) load_values(static_cast<const F*>(t.state1) + at, momentum);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      F x = sign * (scale * gradient[i]);
      if (decay != F(0)) x += decay * weight[i];
      if (has_momentum) {
        momentum[i] = first_step ? x : keep * momentum[i] + add * x;
        x = nesterov ? x + keep * momentum[i] : momentum[i];
      }
      weight[i] -= rate * x;
    }
    if (has_momentum) store_values(static_cast<F*>(t.state1) + at, momentum);
    store_weight<W>(t, at, weight);
  }

  F sign, decay, rate, keep, add, scale;
  bool nesterov, first_step;
};

/// Calls body.operator()<kCount>(at) over the elements [begin, end) of a tensor, kVector at a time where it is aligned.
template <int kVector, class Body>
__device__ void for_each_element(int64_t begin, int64_t end, bool aligned, const Body& body) {
  if (aligned) {
    for (int64_t at = begin + threadIdx.x * kVector; at + kVector <= end; at += kThreads * kVector)
      body.template operator()<kVector>(at);
    begin += (end - begin) / kVector * kVector;
  }
  for (int64_t at = begin + threadIdx.x; at < end; at += kThreads) body.template operator()<1>(at);
}

/// Blocks that a multiprocessor is to hold at least; 0: ptxas chooses. On sm_120 it chooses one too many for some
/// dtypes and spills registers.
template <class W>
constexpr int update_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  return sizeof(W) == 8 ? 1 : 3;
#else
  return 0;
#endif
}

template <template <class> class Rule, class W, class G, class Group>
__global__ void __launch_bounds__(kThreads, update_blocks<W>())
    update_kernel(TERN_GRID_CONSTANT(Update<Group>) update) {
  TERN_SHARED(StepConstants, constants);
  if (update.step.is_skipped()) return;
  using RuleOfType = Rule<ComputeType<W>>;
  const Entry& tensor = find_tensor(update.tensors, update.count, static_cast<int>(blockIdx.x));
  const Group& group = update.groups[tensor.group];
  if (threadIdx.x == 0) {
    const double* rates = update.step.lr;
    constants = RuleOfType::constants(group, rates ? rates[update.group_index[tensor.group]] : group.lr, update.step);
  }
  block_barrier();
  const RuleOfType rule(group, constants);
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) - tensor.first_block) * kChunk;
  for_each_element<kElements<W, G>>(begin, min(begin + kChunk, tensor.size), tensor.aligned,
                                    [&]<int kCount>(int64_t at) { rule.template update<W, G, kCount>(tensor, at); });
}

template <class W>
__global__ void __launch_bounds__(kThreads) average_kernel(TERN_GRID_CONSTANT(Averaging) averaging) {
  using F = ComputeType<W>;
  TERN_SHARED(double, share);
  if (averaging.step.is_skipped()) return;
  if (threadIdx.x == 0) share = averaging.step.share(*averaging.step.updates);
  block_barrier();
  const bool near = share < 0.5;  // torch.lerp's two forms: exact at either end
  const F factor = static_cast<F>(near ? share : 1 - share);
  const AverageEntry& tensor = find_tensor(averaging.tensors, averaging.count, static_cast<int>(blockIdx.x));
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) - tensor.first_block) * kChunk;
  for_each_element<kElements<W, F>>(begin, min(begin + kChunk, tensor.size), tensor.aligned,
                                    [&]<int kCount>(int64_t at) {
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
__global__ void __launch_bounds__(kThreads) scale_kernel(TERN_GRID_CONSTANT(Scaling) scaling) {
  using F = ComputeType<T>;
  const double factor = clip_factor(math::sqrt(scaling.norm->sum_of_squares), scaling.max_norm);
  if (factor == 1) return;
  const ScaleEntry& tensor = find_tensor(scaling.tensors, scaling.count, static_cast<int>(blockIdx.x));
  const int64_t begin = static_cast<int64_t>(blockIdx.x - tensor.first_block) * kChunk;
  T* data = static_cast<T*>(tensor.data);
  for_each_element<vector_width<T>>(begin, min(begin + kChunk, tensor.size), tensor.aligned,
                                    [&]<int kCount>(int64_t at) {
                                      F x[kCount];
                                      load_values(data + at, x);
#pragma unroll
                                      for (int i = 0; i < kCount; ++i) x[i] *= static_cast<F>(factor);
                                      store_values(data + at, x);
                                    });
}

bool is_aligned(const OptimizerTensor& t) {
  for (const void* p : {static_cast<const void*>(t.weight), t.gradient, static_cast<const void*>(t.state1),
                        static_cast<const void*>(t.state2), static_cast<const void*>(t.state3),
                        static_cast<const void*>(t.master), static_cast<const void*>(t.compensation)})
    if (!aligned16(p)) return false;
  return true;
}

int64_t block_count(int64_t size) { return (size + kChunk - 1) / kChunk; }

/// Fills `update` and launches it whenever it is full: tensors of one pair of dtypes and the groups they use.
template <template <class> class Rule, class Group>
class Batch {
 public:
  Batch(Stream stream, const Group* groups, OptimizerStep step) : stream_(stream), groups_(groups) {
    update_.step = step;
  }

  void add(const OptimizerTensor& t) {
    if (t.size == 0) return;
    auto known = std::find(used_.begin(), used_.end(), t.group);
    const bool full = update_.count == kMaxTensors || (known == used_.end() && used_.size() == kMaxGroups) ||
                      blocks_ > std::numeric_limits<int32_t>::max() - block_count(t.size);
    if (full || (update_.count > 0 && (t.weight_dtype != weight_ || t.gradient_dtype != gradient_))) {
      flush();
      known = used_.end();
    }
    weight_ = t.weight_dtype;
    gradient_ = t.gradient_dtype;
    if (known == used_.end()) {
      update_.groups[used_.size()] = groups_[t.group];
      update_.group_index[used_.size()] = t.group;
      known = used_.insert(used_.end(), t.group);
    }
    update_.tensors[update_.count++] = {t.weight,
                                        t.gradient,
                                        t.state1,
                                        t.state2,
                                        t.state3,
                                        t.master,
                                        t.compensation,
                                        t.size,
                                        static_cast<int32_t>(blocks_),
                                        static_cast<uint16_t>(known - used_.begin()),
                                        is_aligned(t)};
    blocks_ += block_count(t.size);
  }

  void flush() {
    if (update_.count == 0) return;
    dispatch_float(gradient_, [&]<class G>() {
      dispatch_float(weight_, [&]<class W>() {
        launch(update_kernel<Rule, W, G, Group>, dim3(grid_blocks(blocks_)), dim3(kThreads), 0, stream_, update_);
      });
    });
    update_.count = 0;
    used_.clear();
    blocks_ = 0;
  }

 private:
  Stream stream_;
  const Group* groups_;
  Update<Group> update_{};
  std::vector<int32_t> used_;  // the caller's numbers of the groups in update_
  int64_t blocks_ = 0;
  DType weight_ = DType::kFloat32, gradient_ = DType::kFloat32;
};

/// Counts the step and updates the tensors, those of equal dtypes together.
template <template <class> class Rule, class Group>
void update_all(Stream stream, const OptimizerTensor* tensors, int64_t count, const Group* groups, OptimizerStep step) {
  launch(count_step_kernel, dim3(1), dim3(1), 0, stream, step);
  const auto kind = [&](int64_t t) {
    return static_cast<int>(tensors[t].weight_dtype) * 4 + static_cast<int>(tensors[t].gradient_dtype);
  };
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return kind(a) < kind(b); });
  Batch<Rule, Group> batch(stream, groups, step);
  for (const int64_t t : order) batch.add(tensors[t]);
  batch.flush();
}

}  // namespace

void adam(Stream stream, const OptimizerTensor* tensors, int64_t count, const AdamGroup* groups, int64_t,
          OptimizerStep step) {
  update_all<AdamRule>(stream, tensors, count, groups, step);
}

void sgd(Stream stream, const OptimizerTensor* tensors, int64_t count, const SgdGroup* groups, int64_t,
         OptimizerStep step) {
  update_all<SgdRule>(stream, tensors, count, groups, step);
}

void average_weights(Stream stream, const AverageTensor* tensors, int64_t count, AverageStep step) {
  launch(count_average_kernel, dim3(1), dim3(1), 0, stream, step);
  for (const DType dtype : {float64, float32, bfloat16, float16}) {
    Averaging averaging{step, 0, {}};
    int64_t blocks = 0;
    const auto flush = [&] {
      if (averaging.count == 0) return;
      dispatch_float(dtype, [&]<class W>() {
        launch(average_kernel<W>, dim3(grid_blocks(blocks)), dim3(kThreads), 0, stream, averaging);
      });
      averaging.count = 0;
      blocks = 0;
    };
    for (int64_t t = 0; t < count; ++t) {
      const AverageTensor& tensor = tensors[t];
      if (tensor.weight_dtype != dtype || tensor.size == 0) continue;
      const bool full = averaging.count == kMaxTensors;
      if (full || blocks > std::numeric_limits<int32_t>::max() - block_count(tensor.size)) flush();
      averaging.tensors[averaging.count++] = {tensor.average, tensor.weight, tensor.size, static_cast<int32_t>(blocks),
                                              aligned16(tensor.average) && aligned16(tensor.weight)};
      blocks += block_count(tensor.size);
    }
    flush();
  }
}

void scale_by_norm(Stream stream, const View* tensors, int64_t count, const GradientNorm* norm, double max_norm) {
  for (const DType dtype : {float64, float32, bfloat16, float16}) {
    Scaling scaling{norm, max_norm, 0, {}};
    int64_t blocks = 0;
    const auto flush = [&] {
      if (scaling.count == 0) return;
      dispatch_float(dtype, [&]<class T>() {
        launch(scale_kernel<T>, dim3(grid_blocks(blocks)), dim3(kThreads), 0, stream, scaling);
      });
      scaling.count = 0;
      blocks = 0;
    };
    for (int64_t t = 0; t < count; ++t) {
      const int64_t size = tensors[t].numel();
      if (tensors[t].dtype != dtype || size == 0) continue;
      if (scaling.count == kMaxTensors || blocks > std::numeric_limits<int32_t>::max() - block_count(size)) flush();
      scaling.tensors[scaling.count++] = {tensors[t].data, size, static_cast<int32_t>(blocks),
                                          aligned16(tensors[t].data)};
      blocks += block_count(size);
    }
    flush();
  }
}

}  // namespace tern::kernels::cuda
