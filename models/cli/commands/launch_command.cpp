#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "tern/dist/mpi/engine.h"
#include "tern/dist/store/rendezvous.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/launch/launcher.h"
#include "tern/models/cli/launch/rank_program.h"
#include "tern/models/cli/options/common_options.h"
#include "tern/models/cli/options/train_help.h"
#include "tern/models/cli/run/run_folder.h"

namespace tern::cli {
namespace {

struct LaunchOptions : Options {
  using Self = LaunchOptions;
  int processes = option(&Self::processes, 0, "--nproc", "processes", Bounds{1, 4096}, Required{});
  int threads = option(&Self::threads, 0, "--threads", "CPU threads of each; 0: an equal share of the cores",
                       Bounds{0, kernels::ThreadPool::kMaxThreads});
  std::string logs = option(&Self::logs, "", "--logs", "folder of the ranks' logs (default: runs/launch-DATE)");
  bool quiet = option(&Self::quiet, false, "--quiet", "do not print how the processes are started");
};

constexpr const char* kCommands[] = {"train", "resume", "eval", "info"};

/// What each rank is started with: a command of this program, or a program of the user.
std::vector<std::string> arguments_of(const std::vector<std::string>& command) {
  if (std::find(std::begin(kCommands), std::end(kCommands), command[0]) != std::end(kCommands)) return command;
  std::vector<std::string> arguments = command;
  arguments[0] = find_program(command[0]);
  if (arguments[0].empty())
    throw UsageError("'" + command[0] +
                     "' is neither train, resume, eval or info nor a program in PATH; a program in " +
                     "this folder is ./" + command[0]);
  arguments.insert(arguments.begin(), kRankProgram);
  return arguments;
}

int launch(const LaunchOptions& a, const std::vector<std::string>& command) {
  if (command.empty())
    throw UsageError("nothing to start: tern launch --nproc 2 -- train " + example_family().name +
                     " ..., or -- ./my_program ...");
  if (command[0] == "launch") throw UsageError("the command to start cannot be 'launch'");
  if (command[0] == "predict" || command[0] == "tokenize")
    throw UsageError("'" + command[0] +
                     "' prints results in the order of its input, in one process: start it without launch");
  const std::vector<std::string> arguments = arguments_of(command);
  const dist::Launch self = dist::detect_launch();
  TERN_CHECK(!self.is_parallel(), "this process was itself started as one of ", self.size, " by ", self.name,
             "; 'tern launch' starts the processes itself");
  dist::mpi::load_functions();  // what is missing is said once, not by every rank
  LaunchPlan plan;
  plan.program = std::filesystem::read_symlink("/proc/self/exe").string();
  plan.arguments = arguments;
  plan.processes = a.processes;
  const int cores = kernels::num_threads();
  plan.threads = a.threads > 0 ? a.threads : dist::threads_per_process(cores, plan.processes);
  plan.logs = std::filesystem::absolute(a.logs.empty() ? default_run_folder("launch") : a.logs).string();
  if (!a.quiet) {
    std::cerr << "launch: " << plan.processes << " processes of " << plan.threads
              << (plan.threads == 1 ? " thread" : " threads") << " each by mpirun";
    if (geteuid() == 0) std::cerr << ", --allow-run-as-root";
    if (plan.processes > cores) std::cerr << ", --oversubscribe (there are " << cores << " cores)";
    std::cerr << "; logs in " << plan.logs << std::endl;
  }
  return launch_processes(plan);
}

}  // namespace

std::vector<std::string> cut_launched(std::vector<std::string>& words) {
  const auto mark = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> launched;
  if (mark == words.end()) return launched;
  launched.assign(mark + 1, words.end());
  words.erase(mark, words.end());
  return launched;
}

Command launch_command(const std::vector<std::string>& launched) {
  const auto options = std::make_shared<LaunchOptions>();
  return {
      "launch", "several processes of train, resume, eval, info or your own program on this machine",
      "Each process trains on different batches, of the size that --batch-size or --batch-tokens gives; a step uses "
      "all of them together.\n"
      "A program of yours (./my_program ARGUMENTS) finds its rank by dist::detect_launch(), or dist::Accelerator.\n"
      "Example: tern launch --nproc 2 -- train " +
          example_family().name + " --max-steps 100",
      options, [options, launched] { return launch(*options, launched); }};
}

}  // namespace tern::cli
