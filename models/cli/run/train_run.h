#pragma once

#include <string>
#include <vector>

#include "tern/models/cli/options/train_arguments.h"

namespace tern::cli {

/// One run of `tern train`: runs to the end and returns the exit status. `command`: the command line, for the record.
int train_run(const TrainArguments& given, std::vector<std::string> command);

}  // namespace tern::cli
