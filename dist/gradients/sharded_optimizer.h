#pragma once
// An optimizer whose state is divided among the processes of a data-parallel job: ZeRO stage 1 (Rajbhandari et al.,
// arXiv:1910.02054). Each rank updates its part of every bucket of weights, then all get all parts.
//
//   dist::DataParallel parallel(model, world.group(), {.shard = true});
//   dist::ShardedOptimizer optimizer(parallel, {{model.parameters()}}, optim::AdamWOptions{.lr = 3e-4});
//   ...
//   loss.backward();          // each rank has the mean gradients of its part
//   optimizer.step({.max_norm = 1.0});
//   optimizer.zero_grad();

#include <vector>

#include "tern/dist/gradients/data_parallel.h"
#include "tern/optim/rule_optimizer.h"

namespace tern::dist {

/// Numbers. On the CPU a step gives the bits that DataParallel and the same optimizer on whole parameters give,
/// clipping by the norm and skipped steps included, with any number of ranks. On CUDA the sum over ranks is NCCL's and
/// the norm is added up in the order of the parts: equal from run to run for one number of ranks. Nothing waits for the
/// device; steps can be captured.
///
/// A step consumes the gradients: several backward passes before one add up, but what is left from before a step does
/// not count again. Passes under DataParallel::NoSync gather whole gradients on each rank, and the next one without it
/// exchanges their sum once.
///
/// The parameters in param_groups() are this rank's parts. Unless parallel.is_sharded() nothing is divided, and it is
/// the optimizer of whole parameters.
///
/// With DataParallelOptions::whole_parameters they are whole, and each belongs to one rank, which alone keeps its state
/// and updates it: the largest first, each to the rank that has the fewest elements. Every rank has all mean gradients;
/// the owners send their weights when all are updated. So a step exchanges half as much again as one of cut parameters,
/// and state is divided less evenly. An optimizer that needs whole parameters (LAMB, Adafactor, Muon) needs this.
class ShardedOptimizer final : public optim::Optimizer {
 public:
  /// `parallel` must outlive it. Throws Error when a parameter that requires a gradient is not one of `parallel`'s
  /// module, when the optimizer needs whole parameters and they are cut, and like Optimizer's constructor. All ranks
  /// call step(), which returns when all weights are there (CUDA: before what is queued on the current stream later).
  ShardedOptimizer(DataParallel& parallel, const std::vector<optim::ParameterGroup>& groups,
                   const optim::Algorithm& algorithm)
      : ShardedOptimizer(parallel, divide(parallel, groups), algorithm) {}
  template <class Options>
  ShardedOptimizer(DataParallel& parallel, const std::vector<optim::ParameterGroup>& groups, const Options& options)
      : ShardedOptimizer(parallel, groups, optim::algorithm_of(options)) {}

  void zero_grad() override;
  /// Called by all ranks. Throws Error as the constructor does.
  void add_param_group(const optim::ParameterGroup& group) override;
  /// What the optimizer of whole parameters would give, on the CPU of rank 0; empty on the others. Called by all ranks.
  StateView state_dict() const override;
  /// Takes this rank's parts of what any number of ranks, or one process, has written. Each rank gives the whole state.
  /// Throws Error as Optimizer::load_state_dict().
  void load_state_dict(const StateView& state) override;

 private:
  struct Part {
    ShardedExchange::Shard shard;  // of a parameter that is not trained: no bucket, and the parameter itself
    int64_t bucket() const { return shard.part > 0 ? shard.bucket : -1; }
    ShardRange range(int rank) const { return shard_of(shard.begin, shard.parameter.numel(), shard.part, rank); }
  };
  /// Groups of this rank's parts, and the parts in their order; without shards the groups as they are.
  struct Divided {
    std::vector<optim::ParameterGroup> groups;
    std::vector<Part> parts;
  };
  static Divided divide(const DataParallel& parallel, const std::vector<optim::ParameterGroup>& groups);
  ShardedOptimizer(DataParallel& parallel, const Divided& divided, const optim::Algorithm& algorithm);

  Tensor norm_of(const std::vector<Tensor>& gradients, const std::vector<int32_t>& parameters) override;
  int64_t bucket_of(int32_t parameter) const override;
  void on_updated(int64_t bucket) override;
  void on_step_end() override;
  bool is_own(int32_t parameter) const override;

  /// Gives the parameters from `first` on, counted through param_groups(), an owner each.
  void assign_owners(size_t first);
  /// The state of whole parameters, on rank 0; empty elsewhere.
  StateView gather_whole() const;
  /// Where the blocks of these parameters' gradients lie among those of all ranks, in the order of whole gradients.
  void order_blocks(const std::vector<int32_t>& parameters);
  /// The entry of a whole parameter, on rank 0; undefined elsewhere.
  Tensor gather(const Part& part, const Tensor& local) const;
  const Part* find_part(const std::string& entry) const;

  const DataParallel& parallel_;
  Communicator& group_;
  ShardedExchange* const shards_;  // null: nothing is cut
  const bool whole_;               // each parameter belongs to one rank
  std::vector<Tensor> weights_;    // of whole parameters
  std::vector<int> owners_;        // their ranks
  std::vector<int64_t> loads_;     // elements that each rank owns
  std::vector<Part> parts_;
  std::vector<Work> gathering_;
  // The norm's: of which parameters, this rank's blocks, all ranks', and their order.
  std::vector<int32_t> ordered_;
  Tensor own_blocks_, all_blocks_, order_;
};

/// Bytes that a rank holds of a model in training.
struct ModelStateMemory {
  int64_t weights = 0, gradients = 0, optimizer = 0;  // as they are allocated
  /// By the sizes of the parameters: weights and gradients of all of them, and their optimizer state, of which a
  /// sharded optimizer has one part in size().
  int64_t expected = 0;
  int64_t total() const { return weights + gradients + optimizer; }
};
/// `parallel`: null for one process alone. To be called after a step: before the first there is no state.
ModelStateMemory model_state_memory(const nn::Module& module, const optim::Optimizer& optimizer,
                                    const DataParallel* parallel);

}  // namespace tern::dist
