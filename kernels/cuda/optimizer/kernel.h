#pragma once
// From a rule struct to CUDA kernels, for the built-in rules and for those of other projects. Such a rule declares one
// more member and defines it in a file that nvcc compiles:
//
//   struct Signum {                                                   // signum.h
//     ...                                                             // as kernels/optimizer/rules.h says
//     static tern::kernels::OptimizerFunction on_cuda;
//   };
//
//   #include "tern/kernels/cuda/optimizer/kernel.h"                   // signum.cu
//   void Signum::on_cuda(tern::kernels::Stream stream, const tern::kernels::OptimizerRules& rules,
//                        const tern::kernels::OptimizerTensor* tensors, int64_t count,
//                        const tern::kernels::OptimizerStep& step) {
//     tern::kernels::cuda::update_by_rule<Signum>(stream, rules, tensors, count, step);
//   }
//
// One launch for each pair of weight and gradient dtypes does all tensors. The count of steps, the norm and the loss
// scale stay on the device.

#include <algorithm>
#include <numeric>
#include <vector>

#include "tern/kernels/cuda/optimizer/tensor_list.h"
#include "tern/kernels/optimizer/tiles.h"

namespace tern::kernels::cuda {
namespace updates {

inline constexpr int kMaxGroups = 64;

/// One tensor as the kernels take it.
struct Entry {
  void* weight;
  const void* gradient;
  void* states[kMaxOptimizerStates];
  void* master;
  void* compensation;
  int64_t size;
  int32_t first_block;
  uint16_t group;
  bool aligned;  // every pointer to 16 bytes
};

template <class Rule>
struct Update {
  OptimizerStep step;
  int32_t count;
  Rule groups[kMaxGroups];
  int32_t group_index[kMaxGroups];  // the caller's numbers of the groups
  Entry tensors[kListTensors];
};

/// is() of an update whose cases are known when it runs: a kernel for each combination would take nvcc minutes.
struct RuntimeCases {
  unsigned cases;
  TERN_HD bool operator()(unsigned condition) const { return (cases & condition) != 0; }
};

/// The states that a rule keeps in all cases.
template <class Rule>
TERN_HD constexpr unsigned always_kept() {
  unsigned kept = ~0u;
  for (unsigned cases = 0; cases < case_count<Rule>(); ++cases) kept &= kept_states<Rule>(cases);
  return kept;
}

/// What one thread computes for its block.
template <class Rule, class F>
struct BlockRule {
  typename Rule::template Step<F> step;
  F factor;  // of the gradients
  unsigned cases;
};
template <class Rule, class F>
__device__ BlockRule<Rule, F> prepare_block(const Update<Rule>& update, int group) {
  Rule rule = update.groups[group];
  const double* rates = update.step.lr;
  if (rates) rule.lr = rates[update.group_index[group]];
  const double factor = update.step.gradient_factor();
  const int64_t count = update.step.count();
  return {rule.template prepare<F>(count), static_cast<F>(rule.maximize ? -factor : factor), cases_of(rule, count)};
}

/// The weight itself, its fp32 copy, or its sum with its earlier rounding errors.
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

/// kCount elements at `at`.
template <class Rule, class W, class G, int kCount, class F, size_t... k>
__device__ void update_elements(const Entry& t, int64_t at, const BlockRule<Rule, F>& rule, std::index_sequence<k...>) {
  constexpr unsigned kAlways = always_kept<Rule>();
  [[maybe_unused]] const unsigned kept = kept_states<Rule>(rule.cases);
  F gradient[kCount], weight[kCount], state[sizeof...(k) + 1][kCount] = {};
  load_values(static_cast<const G*>(t.gradient) + at, gradient);
  load_weight<W>(t, at, weight);
  (((kAlways >> k & 1) != 0 || (kept >> k & 1) != 0 ? load_values(static_cast<const F*>(t.states[k]) + at, state[k])
                                                    : void()),
   ...);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    Rule::update(rule.step, RuntimeCases{rule.cases}, weight[i], rule.factor * gradient[i], state[k][i]...);
  (((kAlways >> k & 1) != 0 || (kept >> k & 1) != 0 ? store_values(static_cast<F*>(t.states[k]) + at, state[k])
                                                    : void()),
   ...);
  store_weight<W>(t, at, weight);
}

/// Blocks that a multiprocessor is to hold at least; 0: ptxas chooses. It chooses one too many for some dtypes, and
/// spills registers: on sm_120 of every rule, elsewhere of those that compute more numbers of a step than Adam's.
template <class Rule, class W>
constexpr int update_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  constexpr bool chosen = false;
#else
  constexpr bool chosen = std::is_same_v<Rule, AdamRule> || std::is_same_v<Rule, SgdRule>;
#endif
  return chosen ? 0 : sizeof(W) == 8 ? 1 : 3;
}

}  // namespace updates

template <class Rule, class W, class G>
__global__ void __launch_bounds__(kListThreads, updates::update_blocks<Rule, W>())
    update_kernel(TERN_GRID_CONSTANT(updates::Update<Rule>) update) {
  using BlockRule = updates::BlockRule<Rule, ComputeType<W>>;
  TERN_SHARED(BlockRule, shared);
  if (update.step.is_skipped()) return;
  const updates::Entry& tensor = find_tensor(update.tensors, update.count, static_cast<int>(blockIdx.x));
  if (threadIdx.x == 0) shared = updates::prepare_block<Rule, ComputeType<W>>(update, tensor.group);
  block_barrier();
  const BlockRule rule = shared;
  for_each_element<kListElements<W, G>>(tensor, [&]<int kCount>(int64_t at) {
    updates::update_elements<Rule, W, G, kCount>(tensor, at, rule, std::make_index_sequence<kStateCount<Rule>>());
  });
}

namespace updates {

inline bool is_aligned(const OptimizerTensor& t) {
  return aligned16(t.weight) && aligned16(t.gradient) && aligned16(t.master) && aligned16(t.compensation) &&
         std::all_of(std::begin(t.states), std::end(t.states), [](const void* state) { return aligned16(state); });
}

/// Fills `update` and launches it whenever it is full: tensors of one pair of dtypes and the groups they use.
template <class Rule>
class Batch {
 public:
  Batch(Stream stream, const Rule* groups, const OptimizerStep& step) : stream_(stream), groups_(groups) {
    update_.step = step;
  }

  void add(const OptimizerTensor& t) {
    if (t.size == 0) return;
    auto known = std::find(used_.begin(), used_.end(), t.group);
    const bool full = is_list_full(update_.count, blocks_, t.size) ||
                      (known == used_.end() && used_.size() == static_cast<size_t>(kMaxGroups));
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
    static_assert(kMaxOptimizerStates == 3);
    update_.tensors[update_.count++] = {.weight = t.weight,
                                        .gradient = t.gradient,
                                        .states = {t.states[0], t.states[1], t.states[2]},
                                        .master = t.master,
                                        .compensation = t.compensation,
                                        .size = t.size,
                                        .first_block = static_cast<int32_t>(blocks_),
                                        .group = static_cast<uint16_t>(known - used_.begin()),
                                        .aligned = is_aligned(t)};
    blocks_ += list_blocks(t.size);
  }

  void flush() {
    if (update_.count == 0) return;
    dispatch_float(gradient_, [&]<class G>() {
      dispatch_float(weight_, [&]<class W>() {
        launch(update_kernel<Rule, W, G>, dim3(grid_blocks(blocks_)), dim3(kListThreads), 0, stream_, update_);
      });
    });
    update_.count = 0;
    used_.clear();
    blocks_ = 0;
  }

 private:
  static_assert(sizeof(Update<Rule>) <= 32764, "a rule has too many hyper-parameters for the kernel's parameters");
  Stream stream_;
  const Rule* groups_;
  Update<Rule> update_{};
  std::vector<int32_t> used_;  // the caller's numbers of the groups in update_
  int64_t blocks_ = 0;
  DType weight_ = DType::kFloat32, gradient_ = DType::kFloat32;
};

}  // namespace updates

/// kernels::update_weights for one rule: its kernels are compiled where this is named.
template <class Rule>
void update_by_rule(Stream stream, const OptimizerRules& rules, const OptimizerTensor* tensors, int64_t count,
                    const OptimizerStep& step) {
  launch(count_kernel<OptimizerStep>, dim3(1), dim3(1), 0, stream, step);
  const auto kind = [&](int64_t t) {
    return static_cast<int>(tensors[t].weight_dtype) * 4 + static_cast<int>(tensors[t].gradient_dtype);
  };
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return kind(a) < kind(b); });
  updates::Batch<Rule> batch(stream, static_cast<const Rule*>(rules.groups), step);
  for (const int64_t t : order) batch.add(tensors[t]);
  batch.flush();
}

}  // namespace tern::kernels::cuda
