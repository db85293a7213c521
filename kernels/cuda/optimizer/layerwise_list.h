#pragma once
// What LAMB and Adafactor share on CUDA. A launch does all tensors of one pair of dtypes; a block does one block or
// tile of a tensor, and every pass that needs a sum over a tensor's blocks adds them itself, in the same order in each
// block.

#include <algorithm>
#include <numeric>
#include <vector>

#include "tern/kernels/cuda/optimizer/kernel.h"
#include "tern/kernels/cuda/support/rows.h"
#include "tern/kernels/optimizer/layerwise.h"

namespace tern::kernels::cuda {

inline constexpr int kLayerTensors = 256;  // a launch; what kernel parameters hold
static_assert(kLayerBlock == kListChunk);

struct LayerEntry : updates::Entry {
  int64_t rows, columns;
  int64_t workspace;  // where the tensor's part begins, in doubles
};

template <class Rule>
struct LayerUpdate {
  OptimizerStep step;
  double* workspace;
  int32_t count;
  Rule groups[updates::kMaxGroups];
  int32_t group_index[updates::kMaxGroups];  // the caller's numbers of the groups
  LayerEntry tensors[kLayerTensors];
};

/// What one thread computes for its block.
template <class Rule, class F>
struct LayerStep {
  Rule rule;
  typename Rule::template Step<F> step;
  F factor;  // of the gradients
  int64_t count;
};
template <class Rule, class F>
__device__ LayerStep<Rule, F> prepare_layer(const LayerUpdate<Rule>& update, int group) {
  Rule rule = update.groups[group];
  if (update.step.lr) rule.lr = update.step.lr[update.group_index[group]];
  const double factor = update.step.gradient_factor();
  const int64_t count = update.step.count();
  return {rule, rule.template prepare<F>(count), static_cast<F>(rule.maximize ? -factor : factor), count};
}

template <class F, class T>
__device__ F load_number(const T* from) {
  return static_cast<F>(to_compute(load_one(from)));
}
template <class F, class W>
__device__ F load_one_weight(const LayerEntry& t, int64_t at) {
  F weight[1];
  updates::load_weight<W>(t, at, weight);
  return weight[0];
}

/// The sum of `count` numbers, `stride` apart; all threads of the block call it and get it.
__device__ inline double sum_of(const double* from, int64_t count, int64_t stride) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kListThreads) sum += load_one(from + i * stride);
  return block_sum<kListThreads>(sum);
}

/// Sums of a tensor's blocks or tiles: of the squares of weights, then of changes.
struct LayerSums {
  double* sums;
  int64_t block;  // this one
  __device__ void store_weight(double sum) const {
    if (threadIdx.x == 0) store_one(sums + 2 * block, sum);
  }
  __device__ void store_change(double sum) const {
    if (threadIdx.x == 0) store_one(sums + 2 * block + 1, sum);
  }
  __device__ double weight(int64_t blocks) const { return sum_of(sums, blocks, 2); }
  __device__ double change(int64_t blocks) const { return sum_of(sums + 1, blocks, 2); }
};
template <class Rule>
__device__ LayerSums sums_of(const LayerUpdate<Rule>& update, const LayerEntry& tensor) {
  return {update.workspace + tensor.workspace, static_cast<int64_t>(blockIdx.x) - tensor.first_block};
}

/// Fills an update and calls run(update, blocks, weight dtype, gradient dtype) whenever it is full: tensors of one pair
/// of dtypes and the groups they use.
template <class Rule, class Run>
class LayerBatch {
 public:
  LayerBatch(const Rule* groups, const OptimizerStep& step, void* workspace, const Run& run)
      : groups_(groups), run_(run) {
    update_.step = step;
    update_.workspace = static_cast<double*>(workspace);
  }

  /// `blocks`, `doubles`: of the tensor.
  void add(const OptimizerTensor& t, int64_t blocks, int64_t doubles) {
    if (t.size == 0) return;
    auto known = std::find(used_.begin(), used_.end(), t.group);
    const bool is_full = update_.count == kLayerTensors || blocks_ > std::numeric_limits<int32_t>::max() - blocks ||
                         (known == used_.end() && used_.size() == static_cast<size_t>(updates::kMaxGroups));
    if (is_full || (update_.count > 0 && (t.weight_dtype != weight_ || t.gradient_dtype != gradient_))) {
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
    LayerEntry& entry = update_.tensors[update_.count++];
    static_cast<updates::Entry&>(entry) = {.weight = t.weight,
                                           .gradient = t.gradient,
                                           .states = {t.states[0], t.states[1], t.states[2]},
                                           .master = t.master,
                                           .compensation = t.compensation,
                                           .size = t.size,
                                           .first_block = static_cast<int32_t>(blocks_),
                                           .group = static_cast<uint16_t>(known - used_.begin()),
                                           .aligned = updates::is_aligned(t)};
    entry.rows = t.rows;
    entry.columns = t.columns;
    entry.workspace = doubles_;
    doubles_ += doubles;
    blocks_ += blocks;
  }

  void flush() {
    if (update_.count > 0) run_(update_, blocks_, weight_, gradient_);
    update_.count = 0;
    used_.clear();
    blocks_ = 0;
  }

 private:
  static_assert(sizeof(LayerUpdate<Rule>) <= 32764, "too much for a kernel's parameters");
  const Rule* groups_;
  const Run& run_;
  LayerUpdate<Rule> update_{};
  std::vector<int32_t> used_;  // the caller's numbers of the groups in update_
  int64_t blocks_ = 0, doubles_ = 0;
  DType weight_ = DType::kFloat32, gradient_ = DType::kFloat32;
};

/// run(update, blocks, dtypes) for all tensors, those of a pair of dtypes together. size(t): blocks and doubles.
template <class Rule, class Size, class Run>
void run_layers(const Rule* groups, const OptimizerTensor* tensors, int64_t count, const OptimizerStep& step,
                void* workspace, const Size& size, const Run& run) {
  const auto kind = [&](int64_t t) {
    return static_cast<int>(tensors[t].weight_dtype) * 4 + static_cast<int>(tensors[t].gradient_dtype);
  };
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return kind(a) < kind(b); });
  LayerBatch<Rule, Run> batch(groups, step, workspace, run);
  for (const int64_t t : order) {
    const auto [blocks, doubles] = size(tensors[t]);
    batch.add(tensors[t], blocks, doubles);
  }
  batch.flush();
}

template <class Body>
void with_layer_types(DType weight, DType gradient, const Body& body) {
  dispatch_float(gradient,
                 [&]<class G>() { dispatch_float(weight, [&]<class W>() { body.template operator()<W, G>(); }); });
}

template <class Size>
int64_t layer_workspace(const OptimizerTensor* tensors, int64_t count, const Size& size) {
  int64_t doubles = 0;
  for (int64_t t = 0; t < count; ++t) doubles += size(tensors[t]).second;
  return doubles * static_cast<int64_t>(sizeof(double));
}

}  // namespace tern::kernels::cuda
