#include "tern/models/cli/run/run_observer.h"

#include <nlohmann/json.hpp>

#include "tern/models/cli/run/evaluation_text.h"
#include "tern/models/cli/run/resume.h"

namespace tern::cli {

void RunObserver::on_step(const models::StepMetrics& m) {
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

void RunObserver::on_epoch(const models::EpochMetrics& m) {
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

void RunObserver::on_resume(const models::TrainPosition& position, const std::vector<std::string>& removed) {
  steps_ = position.step;
  saved_epoch_ = position.best_epoch;
  const RunFolder::Cut cut = folder_.cut_metrics(position);
  for (const std::string& line : describe_cut(position.step, removed, cut)) progress_.log("resume: " + line);
  folder_.write_model([&](const std::string& dir) { workload_.save(dir); });
  progress_.on_resume(position.step);
}

}  // namespace tern::cli
