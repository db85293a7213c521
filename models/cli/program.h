#pragma once
// The program: tern train, resume, eval, predict, tokenize, info, launch.
// Exit status: 0 done; 1 failed, one line on stderr; 2 wrong usage; 130 and 143 ended by SIGINT and SIGTERM after
// saving; 75 saved on SIGUSR1, to be started again.

#include <string>
#include <vector>

#include "tern/models/cli/commands/commands.h"

namespace tern::cli {

/// `arguments`: the command line, without the program's name. `launched`: of it, what launch starts.
std::vector<Command> all_commands(const std::vector<std::string>& arguments, const std::vector<std::string>& launched);

/// Runs a command line; the result is the exit status.
int run_program(const std::vector<std::string>& arguments);

}  // namespace tern::cli
