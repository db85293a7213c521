#pragma once
// --profile: records some steps of a training run and writes them as a table and as a trace.

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tern/core/profiler/profiler.h"

namespace tern::cli {

/// Paths of table and trace: RUN/profile.txt and RUN/trace.json for an empty prefix, otherwise PREFIX.profile.txt and
/// PREFIX.trace.json.
std::pair<std::string, std::string> profile_files(const std::string& prefix, const std::string& run_folder);
/// Throws Error if the prefix is not empty and its files cannot be created or exist.
void check_profile_prefix(const std::string& prefix);

struct StepProfileOptions {
  std::string table, trace;  // paths
  int64_t steps = 20;        // to record, after two warm-up steps (one if the run has only two)
  int64_t total_steps = 0;   // of the run
  Device device = {};
  DType dtype = DType::kFloat32;
  std::function<void(const std::string& line)> log = {};
};

class StepProfile {
 public:
  /// Measures the machine's memory and compute rates.
  explicit StepProfile(const StepProfileOptions& options);

  void on_step_begin(int64_t step);
  /// Writes the files after the last recorded step. A failure to write is logged and does not end the run.
  void on_step_end(int64_t step);
  /// Called when the run is over, possibly before the last recorded step.
  void end();
  /// Throws the Error that prevented writing the files, if any.
  void throw_failure() const;

 private:
  void write(const ProfileReport& report);

  const StepProfileOptions options_;
  const int64_t first_;  // first recorded step, from 1
  int64_t last_ = 0;     // last step recorded so far
  tern::detail::Roofline roofline_;
  std::optional<Profiler> profiler_;
  std::string failure_;
};

}  // namespace tern::cli
