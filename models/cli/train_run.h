#pragma once
// One run of `tern train`: the run folder, checkpoints, the loop, what is said and written about it.

#include <string>
#include <vector>

#include "tern/models/cli/train_arguments.h"

namespace tern::cli {

/// Runs to the end and returns the exit status. `command`: the command line, for the record.
int train_run(const TrainArguments& given, std::vector<std::string> command);

/// The arguments with which the run in a folder was started, its defaults filled in; paths as seen from here, and
/// --accumulate for so many processes. Throws Error when run.json cannot be read, or they cannot share its steps.
TrainArguments recorded_arguments(const std::string& run_folder, int64_t processes);

}  // namespace tern::cli
