#pragma once
// What turns a training loop for one device into one in mixed precision for any number of processes: World,
// DataParallel, autocast, the loss scaler, accumulation and clipping behind one object, as Lightning's Fabric and
// Hugging Face's Accelerate have it for PyTorch.
//
//   dist::Accelerator accelerator({.precision = bfloat16, .accumulate = 4, .clip_norm = 1.0});
//   MyModel net(nn::Scope({.device = accelerator.device(), .generator = Generator(42 + accelerator.rank())}));
//   accelerator.prepare(net);
//   optim::AdamW optimizer(net.parameters(), {.lr = 3e-4});
//   for (int64_t epoch = 0; epoch < epochs; ++epoch)
//     for (const auto& batch : accelerator.train_batches(loader, epoch)) {
//       const Tensor loss = accelerator.autocast([&] { return cross_entropy(net.forward(batch[0]), batch[1]); });
//       accelerator.backward(loss);
//       if (accelerator.step(optimizer)) schedule.step();
//     }
//   accelerator.finish();
//
// The same program runs alone, under `tern launch --nproc 4 -- ./program`, mpirun, torchrun or srun.

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tern/core/autograd/autocast.h"
#include "tern/data/loaders/prefetch.h"
#include "tern/dist/loop/accumulation.h"
#include "tern/dist/loop/loop_state.h"
#include "tern/dist/loop/world.h"

namespace tern::dist {

struct AcceleratorOptions {
  /// Absent: this rank's GPU, or the CPU where no GPU can be used.
  std::optional<Device> device = {};
  /// bfloat16 or float16: autocast() computes in it. With float16 the loss is scaled. float32: no autocast.
  DType precision = DType::kFloat32;
  /// Batches of each rank that make up a step.
  int64_t accumulate = 1;
  /// > 0: gradients are scaled so that their norm is at most this (of the sum of all ranks and batches of a step).
  double clip_norm = 0;
  optim::GradScalerOptions scaler = {};  // `enabled` is ignored: it follows from precision
  DataParallelOptions parallel = {};
  WorldOptions world = {};
};

template <class Batch>
class TrainBatches;

/// One per process. All ranks make the same calls in the same order, except eval_batches().
///
/// A step is that of the mean of the losses of its batches, each batch with equal weight, whatever rank computes it. At
/// the end of an epoch there may be fewer batches than ranks and accumulate ask for: the mean is then of those that
/// there are, and a rank without one computes a batch of the epoch's beginning with weight 0, since all ranks run
/// backward() equally often.
class Accelerator {
 public:
  /// Joins the ranks of the job (World) and gives this process its share of the machine's cores. Throws Error for a
  /// device that cannot be used and invalid options, and as World does.
  explicit Accelerator(const AcceleratorOptions& options = {});
  /// For a program that has made its World, and finishes it, by itself. options.device and options.world are not used.
  explicit Accelerator(std::shared_ptr<Communicator> group, const AcceleratorOptions& options = {});
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  Device device() const { return device_; }
  int64_t rank() const { return group_->rank(); }
  int64_t size() const { return group_->size(); }
  /// True on one rank: the one that prints and writes files.
  bool is_main() const { return rank() == 0; }
  const std::shared_ptr<Communicator>& group() const { return group_; }

  /// Before training, once for each module that is trained: all ranks take rank 0's parameters and buffers, and from
  /// now on backward() averages the gradients over the ranks. The module must be on device() and outlive the
  /// Accelerator. With DataParallelOptions::shard the optimizer is a ShardedOptimizer of the result. Throws Error as
  /// DataParallel does, for a module on another device, and for float16 parameters unless precision is float16 (their
  /// gradients underflow without a scaled loss).
  DataParallel& prepare(nn::Module& module);

  /// fn() with the precision's autocast.
  template <class F>
  decltype(auto) autocast(F&& fn) const {
    Autocast region(device_, options_.precision);
    return std::forward<F>(fn)();
  }
  /// Instead of loss.backward(): with the batch's weight in the step and the loss scale. Gradients travel with the
  /// step's last batch alone. Several losses of one batch (of several modules) each call it. Throws Error unless the
  /// loss is one number.
  void backward(const Tensor& loss);
  /// Instead of optimizer.step() and zero_grad(), after backward() of every batch: after the last batch of a step the
  /// update, clipped, and all gradients of the optimizer are dropped; before that nothing, and no value. With float16 a
  /// step whose gradients are not finite is left out (StepResult::skipped) and the loss scale falls.
  std::optional<optim::StepResult> step(optim::Optimizer& optimizer);
  /// True in the last batch of a step: step() updates. Always true without accumulation.
  bool is_step_end() const { return step_end_; }

  /// The batches of an epoch that this rank trains on, on its device: every size()-th, from round `first` on (a round
  /// is one batch of every rank; a multiple of `accumulate`; to resume). loader: a data::Loader or any other with
  /// epoch(epoch, stripe) and steps(). The loop over it must end before another one begins.
  template <class Loader>
  auto train_batches(const Loader& loader, int64_t epoch, int64_t first = 0) {
    const int64_t batches = batches_of(loader, epoch), rounds = rounds_of(batches, first);
    return TrainBatches(*this, loader.epoch(epoch, {first * size() + rank(), size(), rounds - first}), batches, first);
  }
  /// Rounds of an epoch with so many batches.
  int64_t rounds(int64_t batches) const { return StepPlan{batches, 1, size()}.rounds(); }
  /// The share of an epoch's batches that this rank evaluates: every batch falls to one rank, and a rank may have one
  /// more than another. Metrics are joined by compute(gather_over(group())).
  template <class Loader>
  auto eval_batches(const Loader& loader, int64_t epoch = 0) const {
    const int64_t batches = batches_of(loader, epoch);
    return data::DeviceBatches(loader.epoch(epoch, {std::min(rank(), batches), size()}), device_);
  }
  /// For batches that do not come from a loader, before each batch: round `round` of `rounds`, of which the last has
  /// `last_round` batches on all ranks (ranks from that on compute with weight 0).
  void begin_round(int64_t round, int64_t rounds, int64_t last_round);

  /// The mean over all ranks, without history: for what is printed. The tensor stays as it is.
  Tensor mean(const Tensor& value) const;
  /// Whether it is true on any rank: for ending a loop on all ranks at once.
  bool any(bool here) const;

  /// The loss scaler, for `LoopState::add("scaler", accelerator)`. Empty without float16.
  StateView state_dict() const;
  void load_state_dict(const StateView& state);
  /// The current loss scale, 1 without float16. Waits for the device.
  double loss_scale() const;

  /// Ends the job normally: returns when all ranks have called it. Without it the others take this rank for one that
  /// failed. Throws Error when the loss scaler has given up (GradScaler::check).
  void finish();

 private:
  template <class Loader>
  static int64_t batches_of(const Loader& loader, int64_t epoch) {
    if constexpr (requires { loader.steps(epoch); })
      return loader.steps(epoch);
    else
      return loader.steps();
  }
  int64_t rounds_of(int64_t batches, int64_t first) const;
  const AcceleratorOptions options_;
  std::unique_ptr<World> world_;  // null when the program has its own
  std::shared_ptr<Communicator> group_;
  const Device device_;
  std::vector<std::unique_ptr<DataParallel>> modules_;
  mutable Accumulation accumulation_;
  // The state of the current batch.
  double weight_ = 1;
  bool step_begin_ = true, step_end_ = true;
};

/// What Accelerator::train_batches() returns: for (const auto& batch : ...), once.
template <class Batch>
class TrainBatches {
 public:
  TrainBatches(Accelerator& accelerator, data::BatchStream<Batch> stream, int64_t batches, int64_t first)
      : accelerator_(accelerator),
        batches_(std::move(stream), accelerator.device()),
        round_(first),
        rounds_(accelerator.rounds(batches)),
        last_round_(batches - (rounds_ - 1) * accelerator.size()) {}

  class Iterator {
   public:
    explicit Iterator(TrainBatches& owner) : owner_(&owner), at_(owner.batches_.begin()) { begin_round(); }
    const Batch& operator*() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      ++owner_->round_;
      begin_round();
      return *this;
    }
    bool operator==(std::default_sentinel_t end) const { return at_ == end; }

   private:
    void begin_round() {
      if (at_ != std::default_sentinel)
        owner_->accelerator_.begin_round(owner_->round_, owner_->rounds_, owner_->last_round_);
    }
    TrainBatches* owner_;
    typename data::DeviceBatches<Batch>::Iterator at_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  Accelerator& accelerator_;
  data::DeviceBatches<Batch> batches_;
  int64_t round_;
  const int64_t rounds_, last_round_;
};

}  // namespace tern::dist
