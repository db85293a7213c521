#pragma once
// How a run goes on with what an earlier one left in its folder.

#include <string>
#include <vector>

#include "tern/models/cli/run/run_folder.h"
#include "tern/models/cli/run/workload.h"

namespace tern::cli {

/// Where the run takes place, and what it goes on from.
struct ResumePlan {
  std::string run_folder;
  RunFolder::Mode mode = RunFolder::Mode::kNew;
  std::string checkpoint;  // a certain one; empty: the newest whole one of the run folder
};

/// By --resume and --out, each "" where it is not given. `fallback`: the run folder where neither names one. Throws
/// UsageError when they contradict each other.
ResumePlan plan_resume(const std::string& resume, const std::string& out, const std::string& fallback);

/// The folder of the checkpoint to go on from; empty: there is none, and the run starts from the beginning. Call it
/// with the run folder locked. `run`: the run's id. Throws Error when all are damaged or of other runs.
std::string find_checkpoint(const ResumePlan& plan, const std::string& run, const models::Log& log);

/// One line about a run that came to its end, with its results, and how to train further.
std::string finished_text(const std::string& run_folder, const Json& results);
/// Throws Error when `now`, the options as they were given for a finished run, says otherwise than the record.
void check_finished_run(const Json& before, const TrainArguments& now);
/// A line for the log where the run goes on with arithmetic of other bits than before; empty: the same.
std::string describe_other_arithmetic(const Json& before, const Json& now);

/// Lines for the log: what was removed because it lay ahead of the step that a run goes on from, and what of the steps
/// before it is missing.
std::vector<std::string> describe_cut(int64_t step, const std::vector<std::string>& checkpoints,
                                      const RunFolder::Cut& metrics);

/// The entries of a record: lines "PREFIXname value".
std::string as_lines(const Json& record, const std::string& prefix);
/// --accumulate with which so many processes make steps of so many batches. Throws Error when there is none.
int64_t accumulate_for(int64_t batches_a_step, int64_t processes);

/// What the run in `folder` was started with, with the defaults of its data and model, and paths as seen from here; the
/// options' own defaults where the folder has no run.json. Throws Error when that cannot be read.
TrainArguments arguments_of_run(const std::string& folder);
/// The views of the test after that training (models/image/test_time.h).
std::string views_of_run(const TrainArguments& trained);
/// The options that a run goes on with, `run` being its folder or one of its checkpoints: those that it was started
/// with, --accumulate for so many processes, and those that decide no bit as they are given now. Throws UsageError or
/// Error when there is no such run, or run.json cannot be read, or the processes cannot share its steps.
TrainArguments arguments_to_resume(const std::string& run, const CommonOptions& given, int64_t processes);

/// Throws Error unless both records are of one run: the same data, the same model and the same value of every option
/// that is compared (Compared). The number of processes may differ when a step has as many batches: the results then
/// differ by rounding.
void check_same_run(const Json& before, const Json& now);
/// Throws Error when the run in a record was started with another --task: its model, of another kind, could not be read
/// as this run's. To be called before that.
void check_same_task(const Json& before, const TrainArguments& now);

}  // namespace tern::cli
