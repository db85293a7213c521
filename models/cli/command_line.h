#pragma once

#include <string>
#include <vector>

#include "tern/models/cli/commands.h"

namespace tern::cli {

/// Runs the command that the words name, with the options that they and the option file give; the result is the exit
/// status. Prints --help and --version. Throws UsageError, which names the nearest known word where there is one.
int run_command_line(const std::vector<Command>& commands, const std::vector<std::string>& words);

}  // namespace tern::cli
