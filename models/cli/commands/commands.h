#pragma once
// The commands of the program.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/models/cli/options/options.h"

namespace tern::cli {

struct Command {
  std::string name, description;
  std::string epilog;                // what --help ends with
  std::shared_ptr<Options> options;  // set from the command line before run() is called
  std::function<int()> run;          // the result is the exit status
};

/// `arguments`: the command line, for the record of the run.
Command train_command(const std::vector<std::string>& arguments);
Command resume_command(const std::vector<std::string>& arguments);
Command eval_command();
Command predict_command();
Command tokenize_command();
Command fetch_command();
Command info_command();
Command export_command();
/// `launched`: the command line of the processes to start.
Command launch_command(const std::vector<std::string>& launched);
/// Takes what follows "--" off the command line.
std::vector<std::string> cut_launched(std::vector<std::string>& words);

/// Runs the command that the words name, with the options that they and the option file give; the result is the exit
/// status. Prints --help and --version. Throws UsageError, which names the nearest known word where there is one.
int run_command_line(const std::vector<Command>& commands, std::vector<std::string> words);

}  // namespace tern::cli
