#include "tern/models/cli/run/step_profile.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "tern/core/io/atomic_file.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/roofline.h"
#include "tern/core/profiler/device_profiler.h"
#include "tern/data/loaders/data_waits.h"
#include "tern/kernels/base/check.h"

namespace tern::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWarmUpSteps = 2;
constexpr size_t kShownOps = 12;  // limit on the terminal

tern::detail::Roofline measured(const StepProfileOptions& options) {
  std::vector<DType> dtypes = {float32};
  if (options.dtype != float32) dtypes.push_back(options.dtype);
  tern::detail::Roofline roofline = measure_roofline(options.device, dtypes);
  allocator(options.device).empty_cache();  // so that the measurement's memory does not count as the run's
  return roofline;
}

}  // namespace

std::pair<std::string, std::string> profile_files(const std::string& prefix, const std::string& run_folder) {
  if (!prefix.empty()) return {prefix + ".profile.txt", prefix + ".trace.json"};
  return {(fs::path(run_folder) / "profile.txt").string(), (fs::path(run_folder) / "trace.json").string()};
}

void check_profile_prefix(const std::string& prefix) {
  if (prefix.empty()) return;
  const auto [table, trace] = profile_files(prefix, "");
  for (const std::string& path : {table, trace}) {
    std::error_code error;
    TERN_CHECK(!fs::exists(path, error), path, ": exists; choose another --profile, nothing is overwritten");
    const fs::path folder = fs::absolute(path).parent_path();
    TERN_CHECK(fs::is_directory(folder, error), path, ": cannot be written: no folder ", folder.string());
    TERN_CHECK(access(folder.c_str(), W_OK | X_OK) == 0, path, ": cannot be written: ", std::strerror(errno));
  }
}

StepProfile::StepProfile(const StepProfileOptions& options)
    : options_(options),
      first_(1 + std::clamp<int64_t>(options.total_steps - 1, 0, kWarmUpSteps)),
      roofline_(measured(options)) {}

void StepProfile::on_step_begin(int64_t step) {
  if (step != first_) return;
  profiler_.emplace(ProfilerOptions{
      .roofline = roofline_, .device = options_.device, .device_profiler = device_profiler(options_.device)});
}

void StepProfile::on_step_end(int64_t step) {
  if (!profiler_) return;
  last_ = step;
  if (step + 1 == first_ + options_.steps) end();
}

void StepProfile::end() {
  if (!profiler_) return;
  const ProfileReport report = profiler_->stop();
  profiler_.reset();
  if (last_ == 0) return options_.log("the run ended before the first step to profile, step " + std::to_string(first_));
  try {
    write(report);
  } catch (const Error& error) {
    failure_ = error.what();
    options_.log("the profile is lost: " + failure_);
  }
}

void StepProfile::write(const ProfileReport& report) {
  const std::string steps = "steps " + std::to_string(first_) + " to " + std::to_string(last_) + " of " +
                            std::to_string(options_.total_steps) + ", " + name_of(options_.dtype) + " on " +
                            options_.device.str();
  const std::string waits = data::data_waits(report).str();
  write_atomically(options_.table, steps + "\n" + report.table() + (waits.empty() ? "" : "\n" + waits + "\n"));
  report.write_trace(options_.trace);
  std::istringstream shown(steps + ": " + report.table(kShownOps));
  for (std::string line; std::getline(shown, line);) options_.log(line);
  if (!waits.empty()) options_.log(waits);
  options_.log("the whole table is in " + options_.table + ", the trace in " + options_.trace +
               " (open it in https://ui.perfetto.dev)");
}

void StepProfile::throw_failure() const {
  TERN_CHECK(failure_.empty(), "the run is complete, but its profile is not: ", failure_);
}

}  // namespace tern::cli
