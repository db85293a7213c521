#pragma once
// Progress of a training run on stderr: a bar on a terminal, a few lines elsewhere.

#include <chrono>
#include <string>

#include "tern/models/trainer/trainer.h"

namespace tern::cli {

class Progress {
 public:
  /// `unit` names what StepMetrics::items counts.
  Progress(bool quiet, std::string unit);

  void on_step(const models::StepMetrics& metrics);
  void on_validation_begin(int64_t epoch);
  /// metric: the validation's, in words.
  void on_epoch(const models::EpochMetrics& metrics, const std::string& metric);
  /// The next step has number step + 1.
  void on_resume(int64_t step) { first_step_ = step + 1; }
  /// Prints a separate line above the bar.
  void log(const std::string& line);

 private:
  void clear_bar();

  const std::string unit_;
  bool quiet_, terminal_, drawn_ = false;
  int64_t first_step_ = 1;
  std::chrono::steady_clock::time_point last_drawn_;
  double loss_ = 0, rate_ = 0, step_seconds_ = 0;  // running averages
  int64_t last_tenth_ = -1;
};

/// "4:05" or "1:02:33".
std::string clock_text(double seconds);

}  // namespace tern::cli
