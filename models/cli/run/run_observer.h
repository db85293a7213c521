#pragma once
// What a training run leaves in its folder and shows while it goes on.

#include <string>
#include <vector>

#include "tern/models/cli/run/progress.h"
#include "tern/models/cli/run/run_folder.h"
#include "tern/models/cli/run/step_profile.h"
#include "tern/models/cli/run/workload.h"

namespace tern::cli {

/// Writes every step and epoch into the run folder, and the model whenever it is the best so far.
class RunObserver final : public models::TrainObserver {
 public:
  /// profile: null when there is none.
  RunObserver(RunFolder& folder, Progress& progress, const Workload& workload, bool scales_loss, StepProfile* profile)
      : folder_(folder), progress_(progress), workload_(workload), scales_loss_(scales_loss), profile_(profile) {}

  int64_t steps() const { return steps_; }
  /// The epoch whose weights are in the run folder; 0: none yet.
  int64_t saved_epoch() const { return saved_epoch_; }
  void on_step_begin(int64_t step) override {
    if (profile_) profile_->on_step_begin(step);
  }
  void on_step(const models::StepMetrics& m) override;
  void on_validation_begin(int64_t epoch) override { progress_.on_validation_begin(epoch); }
  void on_epoch(const models::EpochMetrics& m) override;
  void on_checkpoint() override { folder_.sync_metrics(); }
  void on_resume(const models::TrainPosition& position, const std::vector<std::string>& removed) override;
  void on_checkpoint_failed(const std::string& reason) override {
    folder_.check_own();
    progress_.log(reason + "; training continues");
  }

 private:
  RunFolder& folder_;
  Progress& progress_;
  const Workload& workload_;
  const bool scales_loss_;
  StepProfile* const profile_;
  int64_t steps_ = 0, saved_epoch_ = 0;
};

}  // namespace tern::cli
