#pragma once
// Training on batches that a loader plans and makes: all of a task but the batches and the objective.

#include "tern/data/loaders/batch_loader.h"
#include "tern/data/loaders/prefetch.h"
#include "tern/models/trainer/objective.h"
#include "tern/models/trainer/trainer.h"

namespace tern::models {

/// Batch: what the objective gets, on the model's device.
template <ListsTensors Batch>
class PlannedTask : public TrainingTask {
 public:
  nn::Module& module() override { return model_; }
  int64_t epochs() const override { return plan().epochs(); }
  int64_t steps(int64_t epoch) const override { return plan().steps(epoch); }
  void begin_epoch(int64_t epoch, const data::BatchStripe& stripe = {}) override {
    prefetch_.start(training_batches(epoch, stripe));
  }
  bool next_batch() override { return prefetch_.next(); }
  StepInput batch() const override {
    return {prefetch_.current(),
            [this](const Batch& batch) { return objective_.loss(objective_.forward(batch), batch); }};
  }
  bool fixed_shapes() const override { return model_.device().is_cuda() && objective_.fixed_shapes; }
  int64_t items(int64_t epoch, int64_t batch) const override { return examples(epoch, batch); }
  int64_t examples(int64_t epoch, int64_t batch) const override {
    const std::shared_ptr<const data::EpochPlan> planned = plan().epoch(epoch);
    const std::span<const int32_t> rows = planned->batch(batch);
    return objective_.examples ? objective_.examples(rows) : static_cast<int64_t>(rows.size());
  }
  std::vector<std::string> example_names(int64_t epoch, int64_t batch) const override {
    std::vector<std::string> names;
    const std::shared_ptr<const data::EpochPlan> planned = plan().epoch(epoch);
    for (const int32_t row : planned->batch(batch)) names.push_back(name_of(row));
    return names;
  }
  bool keyed_dropout() const override { return true; }
  bool can_validate() const override { return !validation_rows_.empty(); }
  Evaluation validate() override {
    return evaluate<Batch>(model_, objective_, evaluation_batches(validation_rows_), validation_);
  }

  virtual const data::BatchPlan& plan() const = 0;

 protected:
  PlannedTask(nn::Module& model, Objective<Batch> objective, std::vector<int32_t> validation_rows,
              EvaluateOptions validation)
      : model_(model),
        objective_(std::move(objective)),
        validation_rows_(std::move(validation_rows)),
        validation_(std::move(validation)),
        prefetch_(model.device()) {}

  virtual data::BatchSource<Batch> training_batches(int64_t epoch, const data::BatchStripe& stripe) = 0;
  virtual data::BatchSource<Batch> evaluation_batches(const std::vector<int32_t>& rows) const = 0;
  virtual std::string name_of(int32_t row) const { return "row " + std::to_string(row); }
  Device device() const { return model_.device(); }

 private:
  nn::Module& model_;
  const Objective<Batch> objective_;
  const std::vector<int32_t> validation_rows_;
  const EvaluateOptions validation_;
  data::Prefetch<Batch> prefetch_;
};

}  // namespace tern::models
