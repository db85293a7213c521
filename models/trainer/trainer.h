#pragma once
// The training loop: what every reference trainer does between its data and its run folder.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/data/loaders/batch_stream.h"
#include "tern/dist/gradients/sharded_optimizer.h"
#include "tern/models/trainer/checkpoint.h"
#include "tern/models/trainer/step_input.h"
#include "tern/nn/module.h"
#include "tern/optim/optim.h"

namespace tern::models {

/// What is trained: a model, its batches and how it is validated. One batch is current at a time.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;
  virtual nn::Module& module() = 0;
  virtual int64_t epochs() const = 0;
  /// Batches of an epoch.
  virtual int64_t steps(int64_t epoch) const = 0;
  /// From now on next_batch() goes through these batches of the epoch.
  virtual void begin_epoch(int64_t epoch, const data::BatchStripe& stripe = {}) = 0;
  /// Makes the next batch of the epoch the current one; false at the end.
  virtual bool next_batch() = 0;
  /// The current one, on the model's device, with its loss. May outlive the current batch, but not the task.
  virtual StepInput batch() const = 0;
  /// True when all batches have the same shapes and max_length: then steps can be captured.
  virtual bool fixed_shapes() const { return false; }
  /// Tokens or images in a batch of an epoch: what speed is counted in.
  virtual int64_t items(int64_t epoch, int64_t batch) const = 0;
  /// Examples that the loss of a batch of an epoch is the mean of.
  virtual int64_t examples(int64_t epoch, int64_t batch) const = 0;
  /// The names of a batch's examples, in the order of the first dimension of its tensors, for an error about the batch;
  /// empty: they have none.
  virtual std::vector<std::string> example_names(int64_t /*epoch*/, int64_t /*batch*/) const { return {}; }
  /// True when dropout is keyed by the data (row keys): then a step's masks do not depend on the steps before.
  virtual bool keyed_dropout() const { return false; }
  /// False when there is nothing to validate on.
  virtual bool can_validate() const = 0;
  /// With several processes all of them call it, and get the same (EvaluateOptions::group).
  virtual Evaluation validate() = 0;
};

struct TrainOptions {
  std::string optimizer = "adamw";  // of optimizer_names()
  double lr = 5e-5;
  double weight_decay = 0.01;           // not of biases and norms
  std::optional<double> momentum = {};  // sgd: 0.9 unless given, rmsprop: 0, muon: 0.95
  bool nesterov = false;                // sgd
  // muon: what the names of the hidden layers' parameters begin with. It updates their matrices, AdamW all others; ""
  // stands for every layer but embeddings.
  std::string hidden_layers = "";
  bool fixed_norm = false;          // muon: of the hidden layers' matrices (MuonOptions::fixed_norm)
  std::string schedule = "linear";  // of optim::schedule_names()
  double warmup = 0;                // steps when >= 1, else a fraction of all steps
  optim::ScheduleParameters schedule_parameters = {};
  std::function<double(int64_t step)> rate_factor = {};  // in place of `schedule`: lr's factor at each step, from 0
  double clip = 1;                                       // greatest gradient norm; 0: no clipping
  // bfloat16 or float16: autocast. float32: the model computes in the type of its weights. With float16, here or as
  // weights, the loss is scaled.
  DType dtype = DType::kFloat32;
  // > 0: exponential moving averages of the weights with this decay (optim::EMA) are validated, kept as the best and
  // left in the module, instead of the weights.
  double ema = 0;
  // > 0: after every so many steps the weights go a part of the way from where they were then to where they are now
  // (optim::LookAhead); averages and validation follow them. Steps are not captured.
  int64_t lookahead = 0;
  double lookahead_alpha = 0.5;
  bool kahan = false;  // bfloat16 weights: a compensation of 16 bits each instead of fp32 master copies
  Device device = {};
  bool capture = true;    // CUDA: replay steps of fixed shapes as graphs
  int64_t max_steps = 0;  // 0: all epochs
  bool validate = true;   // after every epoch, where there is something to validate on
  // False: a step whose loss or gradient is not finite changes no weight, is reported like others, and the run goes on.
  // Weights are not looked at.
  bool explain_non_finite = true;
  // > 0: the run ends after so many validations in a row whose metric is not better than the best before by more than
  // min_delta.
  int64_t patience = 0;
  double min_delta = 0;
  // Batches a step; the last step of an epoch takes what is left. Losses are weighted by their examples: the step is
  // that of the joined batch.
  int64_t accumulate = 1;
  // With several processes each takes every n-th batch: a step is that of all their batches, joined. Null: this one
  // alone. With DataParallelOptions::shard the optimizer's state is divided among them.
  dist::DataParallel* parallel = nullptr;
  std::function<bool()> should_stop = {};  // called after every step, validation and test; true ends the run in order
  // Called after the last step, in all processes, with the weights in the module that the run leaves there. Where
  // should_stop then asks for the end, the run counts as stopped, and its checkpoint goes on with the test.
  std::function<void()> test = {};

  // Checkpoints; null: none. With one, the run writes them by these rules and when it is stopped; save_model writes the
  // model's files into a folder.
  CheckpointFolder* checkpoints = nullptr;
  int64_t checkpoint_steps = 0;   // > 0: after every so many steps
  double checkpoint_seconds = 0;  // > 0: when so much time has passed since the last one
  std::function<void(const std::string& dir)> save_model = {};
  // Goes on from here: the module must hold the checkpoint's weights already. The run ends as the one that wrote it
  // would have ended, bit for bit. Later checkpoints in `checkpoints` are removed.
  const TrainCheckpoint* resume = nullptr;
};

struct StepMetrics {
  int64_t step = 0;  // from 1
  int64_t total_steps = 0;
  int64_t epoch = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  bool skipped = false;   // float16: a gradient overflowed, the weights are as before
  double loss_scale = 1;  // float16
  int64_t items = 0;      // of all processes
  double seconds = 0;     // of this step
};

struct EpochMetrics {
  int64_t epoch = 0;  // from 1
  Evaluation validation;
  bool best = false;
};

/// Hears what happens; writes files, draws progress.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// Before the batch of a step, counted from 1, is fetched.
  virtual void on_step_begin(int64_t /*step*/) {}
  virtual void on_step(const StepMetrics&) {}
  virtual void on_validation_begin(int64_t /*epoch*/) {}
  virtual void on_epoch(const EpochMetrics&) {}
  /// A checkpoint is about to be written. What the observer has written about the steps so far should be on the disk
  /// when this returns: a run that goes on from the checkpoint does not make them again.
  virtual void on_checkpoint() {}
  /// Before the first step of a resumed run. What the observer has written about later steps is no longer true.
  /// `removed`: names of the checkpoints of later steps, which are removed. The module holds what a run that ended here
  /// would leave: the weights of the best epoch, or before any validation those of the checkpoint (TrainOptions::ema:
  /// their averages).
  virtual void on_resume(const TrainPosition&, const std::vector<std::string>& /*removed*/) {}
  /// A checkpoint that was due could not be written; training continues.
  virtual void on_checkpoint_failed(const std::string& /*reason*/) {}
};

struct TrainResult {
  bool stopped = false;  // by should_stop
  bool early = false;    // ended by TrainOptions::patience
  int64_t steps = 0;
  int64_t items = 0;
  int64_t best_epoch = 0;  // 0: nothing was validated, the last weights stay
  // The step since which the loss, of training or after it of validation, or an output in validation is not finite; 0:
  // in the end they are.
  int64_t not_finite_since = 0;
  Evaluation best;
  double seconds = 0;             // training and validation
  double step_seconds = 0;        // training steps alone
  dist::ModelStateMemory memory;  // of this process
};

/// With several processes all of them call it, with equal options and tasks. Rank 0 writes the checkpoints; a wish to
/// stop is followed by all.
///
/// Trains, validates after every epoch and leaves the weights of the best epoch (highest metric, then lowest loss;
/// neither is NaN) in the module; the last ones when stopped in training or when there is nothing to validate on (of
/// TrainOptions::ema, the averages). Frozen parameters (Module::freeze) have no state in the optimizer and no averages,
/// and batch norms of which all parameters are frozen are in evaluation mode (nn::train_except_frozen_norms). A loss or
/// gradient that is not finite changes no weight: the step is repeated in anomaly mode and Error names step, op and
/// examples; the module then holds the best epoch's weights, or the last ones before that step. Weights are looked at
/// before the first step, before each checkpoint and after each epoch: where one is not finite, Error names it and the
/// step; the module then holds the best epoch's weights, if there are any.
TrainResult train(TrainingTask& task, const TrainOptions& options, TrainObserver& observer);

std::vector<std::string> optimizer_names();
/// Throws Error when the options name no optimizer, or set what it does not have.
void check_optimizer(const TrainOptions& options);
/// The optimizer that the options name. Throws Error as check_optimizer().
optim::Algorithm algorithm_of(const TrainOptions& options);
/// Its groups of these parameters, with the options' weight decay.
std::vector<optim::ParameterGroup> parameter_groups(const std::vector<NamedTensor>& parameters,
                                                    const TrainOptions& options);

}  // namespace tern::models
