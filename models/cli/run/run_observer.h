#pragma once
// What a training run leaves in its folder and shows while it goes on.

#include <string>
#include <vector>

#include "tern/models/cli/commands/evaluation_text.h"
#include "tern/models/cli/progress.h"
#include "tern/models/cli/run/resume.h"
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
  void on_step(const models::StepMetrics& m) override {
    steps_ = m.step;
    if (profile_) profile_->on_step_end(m.step);
    Json line = {
        {"step", m.step},      {"loss", m.loss}, {"lr", m.lr}, {"grad_norm", m.grad_norm}, {workload_.unit(), m.items},
        {"seconds", m.seconds}};
    if (scales_loss_) {
      line["loss_scale"] = m.loss_scale;
      line["skipped"] = m.skipped;
    }
    folder_.append_metrics(line);
    progress_.on_step(m);
  }
  void on_validation_begin(int64_t epoch) override { progress_.on_validation_begin(epoch); }
  void on_epoch(const models::EpochMetrics& m) override {
    const data::LabelKind kind = workload_.model().label_kind();
    folder_.append_metrics({{"epoch", m.epoch},
                            {"val_loss", m.validation.loss},
                            {"val_" + metric_key(kind), shown_metric(kind, m.validation)}});
    if (m.best) {
      folder_.write_model([&](const std::string& dir) { workload_.save(dir); });
      saved_epoch_ = m.epoch;
    }
    progress_.on_epoch(m, metric_text(kind, m.validation));
  }
  void on_checkpoint() override { folder_.sync_metrics(); }
  void on_resume(const models::TrainPosition& position, const std::vector<std::string>& removed) override {
    steps_ = position.step;
    saved_epoch_ = position.best_epoch;
    const RunFolder::Cut cut = folder_.cut_metrics(position);
    for (const std::string& line : describe_cut(position.step, removed, cut)) progress_.log("resume: " + line);
    folder_.write_model([&](const std::string& dir) { workload_.save(dir); });
    progress_.on_resume(position.step);
  }
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
