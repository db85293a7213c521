#pragma once
// Data-parallel training: every process runs the same model on its part of the batch, and gradients are averaged
// while backward still runs (Li et al., "PyTorch Distributed", arXiv:2006.15704).
//
//   dist::DataParallel parallel(model, world.group());
//   ...
//   loss.backward();          // returns when every gradient is the mean over all processes
//   optimizer.step();         // the same step everywhere, so the weights stay equal

#include <memory>
#include <string>
#include <vector>

#include "tern/dist/gradients/sharded_exchange.h"
#include "tern/nn/module.h"

namespace tern::dist {

struct DataParallelOptions {
  /// Gradients that are reduced together. 0: a sixteenth of all that are sent whole, in [1, 25] MiB: what is ready last
  /// has no backward left to hide behind. With `shard` at least 1 MiB for each rank, since parts are rounded up.
  int64_t bucket_bytes = 0;
  int64_t first_bucket_bytes = 1 << 20;  // the first to be ready: small, so that the exchange starts early
  /// float32: gradients travel in their own type. bfloat16 or float16: rounded to it on the way, half the bytes.
  DType reduce_dtype = DType::kFloat32;
  /// Parameters may be without a gradient in some backward passes: they count as zeros where another process has one,
  /// and stay without one where none has. On CUDA the host then waits for the device in every pass. Without it such a
  /// parameter is an Error: on the CPU and in the first pass on all ranks, otherwise on those that lack its gradient.
  bool find_unused = false;
  /// ZeRO stage 1: parameters become views of flat buckets, and backward leaves each rank the mean gradients of its
  /// part of every bucket, for a ShardedOptimizer (sharded_optimizer.h). The parameters' own gradients are then
  /// undefined after backward(). Nothing may hold views of the parameters from before.
  bool shard = false;
  /// With `shard`: each parameter belongs whole to one rank, as optimizers need it whose steps depend on whole
  /// parameters (LAMB, Adafactor, Muon). Nothing is moved or cut: gradients are exchanged as without `shard`, and a
  /// ShardedOptimizer sends each updated parameter from its owner to all.
  bool whole_parameters = false;
  /// False: the exchange begins when backward has ended. For measuring what overlapping them gains.
  bool overlap = true;
};

/// Hangs on the parameters of a module that require a gradient, from construction to destruction. The last bucket's
/// exchange ends before backward() returns (CPU), or before what is queued on the current stream after it (CUDA).
/// Gradients are views of the buckets until they are dropped. All ranks run backward() equally often.
///
/// Buckets are filled in the order in which gradients become ready, as the first backward pass saw it on rank 0, and
/// exchanged in this order on every rank, whatever is ready first there. On the CPU each element is summed in rank
/// order: weights are bit-equal on all ranks. There, of an embedding of 1 MiB or more only the rows are exchanged that
/// some rank has a gradient for (all_reduce_exchange.h; not with `shard`).
class DataParallel {
 public:
  /// Copies rank 0's parameters and buffers to all. Throws Error, the same on all ranks, when modules or options
  /// differ: it names the first parameter that does, and the ranks.
  DataParallel(nn::Module& module, std::shared_ptr<Communicator> group, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  const std::shared_ptr<Communicator>& group() const { return group_; }
  /// Copies rank 0's buffers (running statistics) to all. Called by all ranks.
  void broadcast_buffers();
  /// Sizes of the buckets in bytes, in the order of their exchange.
  std::vector<int64_t> bucket_sizes() const;

  /// Whether a ShardedOptimizer divides its state: with DataParallelOptions::shard, and several processes.
  bool is_sharded() const { return options_.shard && group_->size() > 1; }
  /// Where this rank's parts of weights and gradients are; null unless it is_sharded(), and with whole_parameters.
  ShardedExchange* sharded() const { return sharded_; }
  /// Whether the gradient of this parameter is exchanged; false in one process.
  bool exchanges(const Tensor& parameter) const;
  /// Bytes of the gradients' buckets.
  int64_t gradient_bytes() const;
  /// Seconds that the last backward() waited for the exchange when its own work was done. On a CUDA device the streams
  /// wait instead of the host, and this does not say for how long.
  double waited_seconds() const { return waited_seconds_; }
  /// Bytes of gradients that the last backward() gave to the exchange.
  int64_t exchanged_bytes() const { return exchanged_bytes_; }

  /// While it lives, backward only accumulates; the first pass after it exchanges all that has gathered.
  class NoSync {
   public:
    [[nodiscard]] explicit NoSync(DataParallel& parallel) : parallel_(parallel), before_(parallel.synchronizes_) {
      parallel.synchronizes_ = false;
    }
    ~NoSync() { parallel_.synchronizes_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& parallel_;
    bool before_;
  };

 private:
  /// One line for each thing that must be equal on all ranks.
  std::vector<std::string> facts() const;
  void check_equal_facts() const;
  void make_exchange(const std::vector<NamedTensor>& trained);
  void on_gradient(size_t member);
  void begin_pass();
  void send_next();
  void end_pass();
  /// On how many ranks each member is without a gradient; empty when that was not counted.
  std::vector<int32_t> count_missing();
  void check_missing(const std::vector<int32_t>& missing) const;
  void adopt_order();

  nn::Module& module_;
  std::shared_ptr<Communicator> group_;
  const DataParallelOptions options_;
  std::unique_ptr<GradientExchange> exchange_;  // null in one process
  ShardedExchange* sharded_ = nullptr;          // exchange_, if it is one
  std::vector<int64_t> hooks_;                  // by member of the exchange
  // The state of a backward pass.
  std::vector<bool> ready_;        // by member
  std::vector<int64_t> pending_;   // by bucket: members that are not ready
  std::vector<bool> sent_;         // by bucket
  size_t next_bucket_ = 0;         // to be sent, in the exchange's order
  std::vector<size_t> new_order_;  // in which gradients became ready, in the first pass
  bool ordered_ = false, in_pass_ = false, synchronizes_ = true;
  bool torn_ = false;  // a pass failed after it had sent something
  double waited_seconds_ = 0;
  int64_t exchanged_bytes_ = 0;
};

}  // namespace tern::dist
