#pragma once
// What all loaders have in common: batches of planned rows, made ahead by worker threads.

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tern/data/loaders/batch_stream.h"
#include "tern/data/plan/batch_plan.h"
#include "tern/data/samples/batch_tensors.h"

namespace tern::data {

/// Batches by epoch and step. A copy shares what the batches are made of.
template <class Batch>
class BatchLoader {
 public:
  BatchLoader(const BatchLoader&) = default;  // a move copies, so the source stays usable
  BatchLoader& operator=(const BatchLoader&) = default;

  /// The batches of an epoch: all, those from a given one on (to resume), or every n-th (for one of n processes). The
  /// stream may outlive the loader. What makes a batch fail is thrown by the stream's next() at that batch.
  BatchStream<Batch> epoch(int64_t epoch, const BatchStripe& stripe = {}) const {
    const std::shared_ptr<const EpochPlan> plan = plans_(epoch);
    return BatchStream<Batch>::striped(
        name_, plan->steps(), stripe, [make = make_, plan, epoch](int64_t step) { return make(*plan, epoch, step); },
        stream_);
  }
  /// One batch of an epoch.
  Batch batch(int64_t epoch, int64_t step) const {
    const std::shared_ptr<const EpochPlan> plan = plans_(epoch);
    TERN_CHECK(step >= 0 && step < plan->steps(), name_, ": step ", step, " of ", plan->steps());
    return make_(*plan, epoch, step);
  }

 protected:
  using Plans = std::function<std::shared_ptr<const EpochPlan>(int64_t epoch)>;
  /// Makes a batch of a plan. Called from several threads, so it must depend on its arguments alone.
  using Make = std::function<Batch(const EpochPlan& plan, int64_t epoch, int64_t step)>;

  /// `name` begins the messages of errors.
  BatchLoader(const char* name, Plans plans, Make make, const StreamOptions& stream)
      : name_(name), plans_(std::move(plans)), make_(std::move(make)), stream_(stream) {
    tern::detail::check_stream_sizes(name, stream);
  }

 private:
  const char* name_;
  Plans plans_;
  Make make_;
  StreamOptions stream_;
};

/// Batches of a plan of several epochs.
template <class Batch>
class PlannedLoader : public BatchLoader<Batch> {
 public:
  PlannedLoader(const PlannedLoader&) = default;  // likewise
  PlannedLoader& operator=(const PlannedLoader&) = default;

  const BatchPlan& plan() const { return *plan_; }
  int64_t epochs() const { return plan().epochs(); }
  int64_t steps(int64_t epoch) const { return plan().steps(epoch); }

 protected:
  /// `state` has the plan, its make() makes the batch of these rows.
  template <class State>
  PlannedLoader(const char* name, const std::shared_ptr<const State>& state)
      : BatchLoader<Batch>(
            name, [plan = state->plan](int64_t epoch) { return plan->epoch(epoch); },
            [state](const EpochPlan& plan, int64_t epoch, int64_t step) {
              return state->make(plan.batch(step), epoch, step);
            },
            {.workers = state->options.workers, .prefetch = state->options.prefetch}),
        plan_(state->plan) {}

  /// The plan, for a set of so many rows. Throws Error for a row that does not exist.
  static std::shared_ptr<const BatchPlan> checked(const char* name, BatchPlan plan, int64_t rows) {
    for (const int32_t row : plan.rows())
      TERN_CHECK(row >= 0 && row < rows, name, ": the plan names row ", row, " of ", rows);
    return std::make_shared<const BatchPlan>(std::move(plan));
  }

 private:
  std::shared_ptr<const BatchPlan> plan_;
};

}  // namespace tern::data
