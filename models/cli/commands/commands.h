#pragma once
// The commands of the program.

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tern/models/cli/options/options.h"

namespace tern::cli {

/// Takes a line about what a command does.
using Log = std::function<void(const std::string& line)>;

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
Command info_command();
/// `launched`: the command line of the processes to start.
Command launch_command(const std::vector<std::string>& launched);
/// Takes what follows "--" off the command line.
std::vector<std::string> cut_launched(std::vector<std::string>& words);

/// Runs the command that the words name, with the options that they and the option file give; the result is the exit
/// status. Prints --help and --version. Throws UsageError, which names the nearest known word where there is one.
int run_command_line(const std::vector<Command>& commands, std::vector<std::string> words);

/// Reports the exception that is being handled, and returns the exit status. A command that is connected with other
/// ranks calls it before it closes the connection: the others end when the connection does, and this process may be
/// ended with them before it has reported.
int report_failure();

/// The number of the first SIGINT, SIGTERM or SIGUSR1 that came, or 0. Always 0 until end_in_order_on_signals().
int pending_signal();
/// From now on these signals only set pending_signal(), so that the command can save and end. Before, the process ends
/// at once with signal_status(). So it does at a SIGINT or SIGTERM that comes more than a second after the first one;
/// but one of several processes does not: their launcher kills them. However often SIGUSR1 comes, it does not.
void end_in_order_on_signals();
/// The exit status that says which signal came: 128 + its number, for SIGUSR1 75 (EX_TEMPFAIL: to be started again),
/// and 0 for none.
inline int signal_status(int number) { return number == SIGUSR1 ? 75 : number == 0 ? 0 : 128 + number; }
/// Ends the command where there is nothing to save; the exit status is signal_status().
struct Interrupted {};
/// Throws Interrupted when a signal is pending.
void check_interrupted();

/// Ends the command because nobody reads stdout any more (`| head`): without a word, the exit status is that of a
/// program that SIGPIPE ended.
struct ReaderGone {};
/// Throws ReaderGone, or Error where stdout is closed or full, if a write to it has failed.
void check_output();

}  // namespace tern::cli
