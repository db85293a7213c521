#include "tern/dist/rendezvous.h"
#include "tern/models/cli/commands.h"
#include "tern/models/cli/resume.h"
#include "tern/models/cli/subcommand.h"
#include "tern/models/cli/train_arguments.h"
#include "tern/models/cli/train_run.h"

namespace tern::cli {

Command add_train(CLI::App& app, const std::vector<std::string>& arguments) {
  Subcommand command(app, "train", "train a model and leave a run folder");
  auto options = std::make_shared<TrainArguments>();
  add_train_options(command, *options);
  return [command, options, arguments] {
    if (command.has("--profile") && options->profile.empty()) options->profile = "on";
    check_train_arguments(*options, [&](const std::string& flag) { return command.has(flag); });
    return train_run(*options, arguments);
  };
}

Command add_resume(CLI::App& app, const std::vector<std::string>& arguments) {
  Subcommand command(app, "resume", "go on with a run that was stopped, with the options it was started with");
  struct Options {
    std::string run;
    CommonOptions common;
  };
  auto options = std::make_shared<Options>();
  command.add_option("run", &options->run, "the folder of the run, or one of its checkpoints").required();
  add_common(command, options->common);
  command.footer("Example: tern resume runs/distilbert-20250131-120000");
  return [command, options, arguments] {
    if (command.has("--seed"))
      throw UsageError("resume: --seed belongs to the run; it goes on with the one it was started with");
    TrainArguments train;
    train.resume = options->run;
    const std::string folder = plan_resume(train, "").run_folder;
    train = recorded_arguments(folder, dist::detect_launch().size);
    train.resume = options->run;
    // What decides no bit is today's.
    if (command.has("--device")) train.common.device = options->common.device;
    train.common.threads = options->common.threads;
    train.common.quiet = options->common.quiet;
    check_train_arguments(train, [](const std::string&) { return false; });
    return train_run(train, arguments);
  };
}

}  // namespace tern::cli
