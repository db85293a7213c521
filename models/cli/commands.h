#pragma once
// The subcommands of the program. Each adds itself to the parser and returns what runs it after parsing.

#include <functional>

#include "tern/models/cli/arguments.h"

namespace tern::cli {

/// Runs a parsed subcommand; the result is the exit status.
using Command = std::function<int()>;

/// `arguments`: the command line, for the record of the run.
Command add_train(CLI::App& app, const std::vector<std::string>& arguments);
Command add_eval(CLI::App& app);
Command add_predict(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_info(CLI::App& app);

/// The number of the SIGINT or SIGTERM that came, or 0. Installed by main.
int pending_signal();

}  // namespace tern::cli
