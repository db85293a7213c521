#include "tern/models/trainer/trainer.h"

#include <chrono>
#include <cmath>
#include <deque>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/profiler/profiler.h"
#include "tern/models/trainer/finite.h"
#include "tern/models/trainer/snapshot.h"
#include "tern/models/trainer/training_step.h"
#include "tern/nn/layers/batch_norm.h"

namespace tern::models {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Loop {
 public:
  Loop(TrainingTask& task, const TrainOptions& options, TrainObserver& observer)
      : task_(task),
        options_(options),
        observer_(observer),
        total_steps_(count_steps()),
        step_(task, options, total_steps_) {}

  TrainResult run() {
    if (options_.resume) resume(*options_.resume);
    start_ = last_checkpoint_ = Clock::now();
    can_validate_ = options_.validate && task_.can_validate();
    TERN_CHECK(can_validate_ || options_.schedule != "plateau" || options_.rate_factor,
               "train: the schedule plateau follows the metric of the validation, but no rows are validated on; give a "
               "--split with validation rows, or another --schedule");
    TERN_CHECK(can_validate_ || options_.patience == 0,
               "train: --patience counts validations, but no rows are validated on; give a --split with validation "
               "rows, or no --patience");
    if (const std::string bad = non_finite_weight(); !bad.empty())
      fail("train: ", bad, " before step ", position_.step + 1,
           ", so that no loss can be a number: the weights that training starts from are damaged");
    while (!finished()) {
      if (!position_.validated) {
        run_epoch();
        check_weights();
      }
      if (!result_.stopped && !position_.validated) validate();
      // The position stays at the end of the last epoch: a checkpoint of it can be written in the test.
      if (finished() || position_.epoch + 1 == task_.epochs()) break;
      ++position_.epoch;
      position_.step_in_epoch = 0;
      position_.validated = false;
    }
    const bool trained = !result_.stopped;
    result_.seconds = seconds();
    result_.not_finite_since = validation_not_finite_ > 0 ? validation_not_finite_ : loss_not_finite_;
    if (trained && options_.test && result_.not_finite_since == 0) test();
    if (result_.stopped) checkpoint();
    if (trained && best_.taken())
      best_.restore(task_.module());
    else if (step_.ema())
      step_.ema()->copy_to_parameters();
    result_.early = !result_.stopped && out_of_patience() && position_.step < total_steps_;
    result_.steps = position_.step;
    result_.items = position_.items;
    result_.best_epoch = position_.best_epoch;
    result_.best = position_.best;
    result_.step_seconds = position_.step_seconds;
    result_.memory = step_.memory();
    return result_;
  }

 private:
  dist::Communicator* group() const { return options_.parallel ? options_.parallel->group().get() : nullptr; }
  int64_t ranks() const { return group() ? group()->size() : 1; }
  int64_t rank() const { return group() ? group()->rank() : 0; }

  dist::StepPlan plan_of(int64_t epoch) const { return {task_.steps(epoch), options_.accumulate, ranks()}; }
  int64_t steps_of(int64_t epoch) const { return plan_of(epoch).steps(); }

  int64_t count_steps() const {
    TERN_CHECK(options_.patience >= 0 && options_.min_delta >= 0,
               "train: patience and min_delta must not be negative, got ", options_.patience, " and ",
               options_.min_delta);
    TERN_CHECK(options_.accumulate >= 1, "train: accumulate must be 1 or more, got ", options_.accumulate);
    int64_t steps = 0;
    for (int64_t epoch = 0; epoch < task_.epochs(); ++epoch) steps += steps_of(epoch);
    if (options_.max_steps > 0) steps = std::min(steps, options_.max_steps);
    TERN_CHECK(steps > 0, "train: there is nothing to train on: no steps");
    return steps;
  }

  bool finished() const {
    return result_.stopped || out_of_patience() || (position_.step >= total_steps_ && !must_validate());
  }
  /// All ranks know the same: the metric is that of all of them together.
  bool out_of_patience() const { return options_.patience > 0 && position_.waited >= options_.patience; }
  /// True if the epoch's steps are done, but the checkpoint was made before its validation.
  bool must_validate() const { return position_.step_in_epoch > 0 && !position_.validated && can_validate_; }

  /// The time of training and validation; result_ has them once that is over.
  double seconds() const { return result_.seconds > 0 ? result_.seconds : earlier_seconds_ + seconds_since(start_); }

  void resume(const TrainCheckpoint& from) {
    const TrainPosition& p = from.position;
    TERN_CHECK(p.step <= total_steps_ && p.epoch < task_.epochs() && p.step_in_epoch <= steps_of(p.epoch),
               "resume: the checkpoint stands at step ", p.step, ", epoch ", p.epoch + 1, ", but this run has ",
               total_steps_, " steps in ", task_.epochs(), " epochs: its data or options differ");
    Generator& generator = task_.module().generator();
    generator.set_seed(p.seed);
    generator.set_offset(p.offset);
    step_.load_state(from.optimizer);
    if (p.best_epoch > 0) best_.load(task_.module(), from.best_weights);
    position_ = p;
    earlier_seconds_ = p.seconds;
    report_resumed();
  }

  /// Removes checkpoints ahead of the position. The observer sees the best weights so far or the averages, if any.
  void report_resumed() {
    std::vector<std::string> removed;
    if (group()) group()->barrier();  // all ranks have read the checkpoint, so the run resumes from it
    if (options_.checkpoints && rank() == 0) removed = options_.checkpoints->remove_after(position_);
    Snapshot now;
    std::optional<optim::EMA::InPlace> averaged;
    if (best_.taken()) {
      now.take(task_.module());
      best_.restore(task_.module());
    } else if (step_.ema()) {
      averaged.emplace(*step_.ema());
    }
    observer_.on_resume(position_, removed);
    if (now.taken()) now.restore(task_.module());
  }

  void run_epoch() {
    nn::train_except_frozen_norms(task_.module());
    begin_batches();
    int64_t queued = position_.step, in_epoch = position_.step_in_epoch;
    while (!result_.stopped && queued < total_steps_ && in_epoch < steps_of(position_.epoch)) {
      const Clock::time_point start = Clock::now();
      observer_.on_step_begin(queued + 1);
      if (!next_batches()) break;
      queued_.push_back(step_.queue(++queued, position_.epoch, std::move(batches_)));
      ++in_epoch;
      queued_.back().metrics.items = items_;
      queued_.back().metrics.seconds = seconds_since(start);
      while (!queued_.empty() && (queued_.front().ready() || queued_.size() > steps_ahead())) finish_oldest();
      const auto [stop, due] = agreed(options_.should_stop && options_.should_stop(), checkpoint_due(queued), queued);
      result_.stopped = stop;
      if (!stop && due) checkpoint();
    }
    finish_all();
  }

  /// This rank's batches of the epoch, from the position on.
  void begin_batches() {
    const dist::StepPlan plan = plan_of(position_.epoch);
    data::BatchStripe stripe{.first = plan.begin(position_.step_in_epoch) + rank(), .stride = ranks()};
    // Every rank runs every step, with zero-weight batches after the epoch's last batch. A single rank skips those, so
    // the epoch's last step may have fewer batches.
    if (ranks() == 1) stripe.first = std::min(stripe.first, plan.batches);
    if (ranks() > 1) stripe.count = (plan.steps() - position_.step_in_epoch) * options_.accumulate;
    task_.begin_epoch(position_.epoch, stripe);
    next_ = stripe.first;
  }

  /// Any rank's request applies to all ranks, at the same step. On a GPU this waits for the device, so only every 16
  /// steps.
  std::pair<bool, bool> agreed(bool stop, bool checkpoint_due, int64_t step) {
    if (ranks() == 1) return {stop, checkpoint_due};
    constexpr int64_t kStepsBetween = 16;
    if (options_.device.is_cuda() && step % kStepsBetween != 0 && step != total_steps_) {
      stop_requested_ = stop_requested_ || stop;
      checkpoint_requested_ = checkpoint_requested_ || checkpoint_due;
      return {false, false};
    }
    NoGrad off;
    Tensor wishes =
        from_vector(std::vector<int32_t>{stop || stop_requested_, checkpoint_due || checkpoint_requested_}, {2})
            .to(options_.device);
    group()->all_reduce(wishes, dist::ReduceOp::kMax);
    stop_requested_ = checkpoint_requested_ = false;
    const std::vector<int32_t> all = wishes.to_vector<int32_t>();
    return {all[0] != 0, all[1] != 0};
  }

  /// Steps that may be queued: the host need not wait for each, but a failed step is still noticed soon.
  size_t steps_ahead() const { return options_.device.is_cuda() ? 32 : 0; }

  void finish_all() {
    while (!queued_.empty()) finish_oldest();
  }

  void finish_oldest() {
    const Clock::time_point start = Clock::now();
    TrainingStep::Pending pending = std::move(queued_.front());
    queued_.pop_front();
    StepMetrics metrics;
    try {
      metrics = step_.finish(pending);
    } catch (...) {
      if (best_.taken()) best_.restore(task_.module());
      throw;
    }
    metrics.seconds += seconds_since(start);
    ++position_.step;
    ++position_.step_in_epoch;
    position_.step_seconds += metrics.seconds;
    position_.items += metrics.items;
    if (std::isfinite(metrics.loss))
      loss_not_finite_ = 0;
    else if (loss_not_finite_ == 0)
      loss_not_finite_ = position_.step;
    observer_.on_step(metrics);
  }

  /// What first_non_finite() finds, where it matters.
  std::string non_finite_weight() const { return options_.explain_non_finite ? first_non_finite(task_.module()) : ""; }

  /// Throws Error when the last update left a weight that is not finite: the losses so far were.
  void require_finite_weights() {
    const std::string bad = non_finite_weight();
    if (bad.empty()) return;
    if (best_.taken()) best_.restore(task_.module());
    fail("step ", position_.step, ": after this step's update ", bad,
         "; the losses up to here are finite; try a lower --lr, a longer --warmup or --dtype fp32");
  }

  /// The batches of the next step; false at the epoch's end.
  bool next_batches() {
    const ProfileRange range("data");
    batches_.clear();
    const int64_t epoch = position_.epoch;
    const dist::StepPlan plan = plan_of(epoch);
    const int64_t step = next_ / plan.per_step();
    items_ = 0;
    int64_t examples = 0;  // in this step, over all ranks
    for (int64_t batch = plan.begin(step); batch < plan.end(step); ++batch) {
      examples += task_.examples(epoch, batch);
      items_ += task_.items(epoch, batch);
    }
    while (std::ssize(batches_) < options_.accumulate && task_.next_batch()) {
      const int64_t own = next_ < plan.batches ? task_.examples(epoch, next_) : 0;
      batches_.push_back({task_.batch(), next_, plan.weight(own, examples)});
      next_ += ranks();
    }
    return !batches_.empty();
  }

  bool checkpoint_due(int64_t step) const {
    if (!options_.checkpoints) return false;
    return (options_.checkpoint_steps > 0 && step % options_.checkpoint_steps == 0) ||
           (options_.checkpoint_seconds > 0 && seconds_since(last_checkpoint_) >= options_.checkpoint_seconds);
  }

  /// Copies the buffers of rank 0 to all ranks, so that every rank validates the model that rank 0 saves. Without it
  /// they differ: the batch norms of a rank see only its own batches. All ranks must call this function.
  void take_statistics_of_rank_0() {
    if (ranks() > 1) options_.parallel->broadcast_buffers();
  }

  /// All ranks must call this function: statistics of a rank alone, which count for nothing, may not be finite.
  void check_weights() {
    NoGrad off;
    take_statistics_of_rank_0();
    require_finite_weights();
  }

  void checkpoint() {
    if (!options_.checkpoints) return;
    finish_all();
    NoGrad off;
    check_weights();
    const StateView optimizer = step_.state();
    if (rank() != 0) {
      last_checkpoint_ = Clock::now();
      return;
    }
    TrainCheckpoint state;
    state.position = position_;
    state.position.seconds = seconds();
    state.position.seed = task_.module().generator().seed();
    state.position.offset = task_.module().generator().offset();
    state.optimizer = optimizer;
    if (best_.taken()) state.best_weights = best_.state();
    try {
      observer_.on_checkpoint();
      options_.checkpoints->save(state, options_.save_model);
    } catch (const DeviceError&) {
      throw;
    } catch (const Error& error) {
      if (result_.stopped) throw;  // no later checkpoint would follow
      observer_.on_checkpoint_failed(error.what());
    }
    last_checkpoint_ = Clock::now();
  }

  void validate() {
    if (!can_validate_) return;
    const bool improved = validate_weights();
    const bool by_rule = options_.checkpoint_steps > 0 || options_.checkpoint_seconds > 0;
    if (improved && by_rule) checkpoint();
  }

  /// With the weights that the run leaves; a checkpoint afterwards holds the last ones again.
  void test() {
    Snapshot last;
    std::optional<optim::EMA::InPlace> averaged;
    if (best_.taken()) {
      last.take(task_.module());
      best_.restore(task_.module());
    } else {
      take_statistics_of_rank_0();
      if (step_.ema()) averaged.emplace(*step_.ema());
    }
    options_.test();
    result_.stopped = agreed(options_.should_stop && options_.should_stop(), false, total_steps_).first;
    if (last.taken()) last.restore(task_.module());
  }

  /// Returns whether these weights are the best so far.
  bool validate_weights() {
    take_statistics_of_rank_0();
    std::optional<optim::EMA::InPlace> averaged;
    if (step_.ema()) averaged.emplace(*step_.ema());
    const int64_t epoch = position_.epoch;
    observer_.on_validation_begin(epoch + 1);
    const ProfileRange range("validation");
    task_.module().eval();
    EpochMetrics metrics;
    metrics.epoch = epoch + 1;
    {
      NoGrad off;
      metrics.validation = task_.validate();
    }
    result_.stopped = agreed(options_.should_stop && options_.should_stop(), false, total_steps_).first;
    if (result_.stopped) return false;
    const Evaluation& now = metrics.validation;
    if (now.is_finite())
      validation_not_finite_ = loss_not_finite_ = 0;
    else if (validation_not_finite_ == 0)
      validation_not_finite_ = position_.step;
    const bool usable = now.is_finite() && !std::isnan(now.loss) && !std::isnan(now.metric);
    metrics.best = usable && (position_.best_epoch == 0 || now.metric > position_.best.metric ||
                              (now.metric == position_.best.metric && now.loss < position_.best.loss));
    ++position_.waited;
    if (usable && (position_.best_epoch == 0 || now.metric > position_.reference + options_.min_delta)) {
      position_.waited = 0;
      position_.reference = now.metric;
    }
    if (metrics.best) {
      position_.best_epoch = metrics.epoch;
      position_.best = {.loss = now.loss, .metric = now.metric, .examples = now.examples};
      best_.take(task_.module());
    }
    position_.validated = true;
    step_.on_validation(now.metric);
    observer_.on_epoch(metrics);
    return metrics.best;
  }

  TrainingTask& task_;
  const TrainOptions& options_;
  TrainObserver& observer_;
  TrainResult result_;
  const int64_t total_steps_;
  TrainingStep step_;
  TrainPosition position_;  // after the last finished step
  std::vector<TrainingStep::Part> batches_;
  int64_t next_ = 0;   // this rank's next batch in the epoch
  int64_t items_ = 0;  // in batches_
  bool stop_requested_ = false, checkpoint_requested_ = false, can_validate_ = false;
  int64_t loss_not_finite_ = 0, validation_not_finite_ = 0;  // the first step of those without a finite one after it
  std::deque<TrainingStep::Pending> queued_;
  Snapshot best_;
  Clock::time_point start_, last_checkpoint_;
  double earlier_seconds_ = 0;  // of the run before it was resumed
};

}  // namespace

TrainResult train(TrainingTask& task, const TrainOptions& options, TrainObserver& observer) {
  return Loop(task, options, observer).run();
}

}  // namespace tern::models
