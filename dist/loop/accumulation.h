#pragma once
// A step of several batches: how much each counts, when gradients travel, and the update with loss scale and clipping.
// The trainer and Accelerator are made of it.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tern/dist/gradients/data_parallel.h"
#include "tern/optim/grad_scaler.h"

namespace tern::dist {

/// The batches of an epoch in steps: a round is a batch of every rank, and a step is `accumulate` rounds; the last step
/// takes what is left. In round k rank r has batch k * ranks + r, which exists if it is below `batches`;
/// others have no examples.
struct StepPlan {
  int64_t batches = 0, accumulate = 1, ranks = 1;

  int64_t per_step() const { return accumulate * ranks; }
  int64_t rounds() const { return (batches + ranks - 1) / ranks; }
  int64_t steps() const { return (batches + per_step() - 1) / per_step(); }
  /// The batches of a step are [begin, end).
  int64_t begin(int64_t step) const { return step * per_step(); }
  int64_t end(int64_t step) const { return std::min(batches, (step + 1) * per_step()); }
  /// Of the loss of a batch that is the mean of so many of its step's examples: their share, times the ranks, of whose
  /// gradients DataParallel takes the mean.
  double weight(int64_t examples, int64_t of_step) const {
    return static_cast<double>(examples * ranks) / static_cast<double>(std::max<int64_t>(of_step, 1));
  }
};

class Accumulation {
 public:
  /// Throws Error as GradScaler does. max_norm: of the gradients of a step (optim::StepOptions).
  Accumulation(const optim::GradScalerOptions& scaler, double max_norm) : scaler_(scaler), max_norm_(max_norm) {}

  /// A module whose gradients are exchanged with a step's last batch. It must outlive this.
  void add(DataParallel& module) { modules_.push_back(&module); }
  /// While the result lives, gradients are not exchanged.
  std::vector<std::unique_ptr<DataParallel::NoSync>> no_sync() const {
    std::vector<std::unique_ptr<DataParallel::NoSync>> local;
    for (DataParallel* const module : modules_) local.push_back(std::make_unique<DataParallel::NoSync>(*module));
    return local;
  }
  /// Adds the gradients of a loss, weighted already. is_last: of the step's batches.
  void backward(const Tensor& loss, bool is_last) {
    const auto local = is_last ? std::vector<std::unique_ptr<DataParallel::NoSync>>() : no_sync();
    scaler_.scale(loss).backward();
  }
  /// The update, and all gradients of the optimizer are dropped. With a loss scale the update is left out when a
  /// gradient is not finite; without one as `unscaled` says, whose max_norm is not read.
  optim::StepResult step(optim::Optimizer& optimizer, optim::StepOptions unscaled = {});
  /// Adapts the loss scale to what the steps since the last call found. To be called when all optimizers of a step were
  /// updated, before the next backward().
  void update_scale() {
    if (std::exchange(scale_is_due_, false)) scaler_.update();
  }

  const optim::GradScaler& scaler() const { return scaler_; }
  void load_scaler(const StateView& state) {
    scale_is_due_ = false;
    scaler_.load_state_dict(state);
  }

 private:
  optim::GradScaler scaler_;
  const double max_norm_;
  std::vector<DataParallel*> modules_;
  bool scale_is_due_ = false;  // steps were made since the scaler's last update
};

}  // namespace tern::dist
