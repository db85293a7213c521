#pragma once
// What `tern train` trains: the part of a run that differs between texts and images.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/datasets/split.h"
#include "tern/models/cli/launch/process_end.h"
#include "tern/models/cli/run/plan.h"
#include "tern/models/cli/run/run_folder.h"
#include "tern/models/families.h"
#include "tern/models/trainer/objective.h"
#include "tern/models/trainer/trainer.h"

namespace tern::cli {

/// Where and how a run computes.
struct RunSetting {
  Device device;
  Precision precision;
  std::string checkpoint;  // folder the model is read from, when a run is resumed; otherwise empty
  std::string init;        // what --init names, as a path of this machine; empty: it is not read
  models::Log log;
  dist::Communicator* group = nullptr;  // of the processes that train together

  int ranks() const { return group ? group->size() : 1; }
};

class Workload {
 public:
  /// row: what a row of the data is called; unit: what the task's items are, in the plural.
  Workload(const char* row, const char* unit) : row_(row), unit_(unit) {}
  virtual ~Workload() = default;
  /// Loads the data and the model, and makes the plan.
  virtual void prepare(const TrainArguments& given, const RunSetting& setting) = 0;
  /// After prepare().
  TrainPlan& plan() const { return *plan_; }
  /// What is trained, where the options leave it to defaults and files.
  virtual Json model_record() const;
  /// Rows of each part, and a hash of the content: a run is resumed on the same data only.
  virtual Json data_record() const;
  /// After prepare().
  virtual models::TrainingTask& task() = 0;
  virtual models::Model& model() const = 0;
  /// A task like task() with other batches, of `size` images, sequences or, if texts are packed, tokens; of an epoch
  /// for each of `epochs`.
  virtual std::unique_ptr<models::TrainingTask> task_of(int64_t size, int64_t epochs) const = 0;
  /// What the size of a batch counts, and the smallest and the largest that makes sense for the training rows.
  struct BatchRange {
    std::string unit;
    int64_t smallest = 1, largest = 1;
  };
  virtual BatchRange batch_range() const = 0;
  /// Writes what from_pretrained() and `tern eval` need.
  virtual void save(const std::string& dir) const = 0;
  /// Sizes, for one line of the log: "train: 8000 rows, ...; 3,000 steps of 64 images".
  std::string describe(int64_t total_steps) const;
  /// On the test part, shared out among the processes; nothing where there is none. Ends early, with numbers to throw
  /// away, on a signal.
  std::optional<models::Evaluation> test();
  /// What the task's items are: "tokens" or "images".
  const char* unit() const { return unit_; }
  /// Floating-point operations of a training step for each item, on average.
  virtual double training_flops_per_item() const = 0;

 protected:
  virtual models::Evaluation evaluate(const std::vector<int32_t>& rows) const = 0;
  /// A batch, for describe(): "64 images".
  virtual std::string describe_batch() const = 0;
  /// What else describe() says of the model: "", or ", 32 x 32 pixels".
  virtual std::string describe_input() const { return ""; }
  bool resumed() const { return !setting_.checkpoint.empty(); }
  /// The folder or file that the model is read from; empty: it begins from a preset.
  const std::string& model_path() const { return resumed() ? setting_.checkpoint : setting_.init; }
  /// The model, with these labels, from model_path() or the preset. Sets what the run decides in `options`.
  std::unique_ptr<models::Model> build(const TrainArguments& given, const std::string& preset,
                                       models::BuildOptions& options) const;
  /// Sets split_; setting_ must be set. Throws Error where all rows, or all training rows, have the same one label;
  /// logs which labels no training row has. `parts`: --split. `targets`: of several labels, float32 [rows,
  /// labels.size()].
  void split(const data::LabelledSet& set, data::LabelKind kind, const TrainArguments& given, const std::string& parts,
             const std::vector<std::string>& labels, const Tensor& targets = {});
  /// Validation while training, and the test after it.
  models::EvaluateOptions evaluation(DType dtype) const;

  std::optional<TrainPlan> plan_;
  RunSetting setting_;
  data::Split split_;

 private:
  /// Logs the labels that are not seen.
  void report_untrained(const std::vector<std::string>& labels, const std::vector<bool>& seen) const;

  const char* const row_;
  const char* const unit_;
};

std::unique_ptr<Workload> make_text_workload();
std::unique_ptr<Workload> make_image_workload();

}  // namespace tern::cli
