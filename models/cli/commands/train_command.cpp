#include "tern/dist/store/rendezvous.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/options/train_arguments.h"
#include "tern/models/cli/run/resume.h"

namespace tern::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  tern train distilbert                                  the data at hand, the tiny model
  tern train distilbert --data reviews.csv --epochs 5    a file with the columns label and text
  tern train distilbert --init DIR --lr 5e-5             fine-tune a folder that transformers saved
  tern train vit --data photos --preset tiny             images photos/train/LABEL/*.jpg)";

struct ResumeOptions : CommonOptions {
  using Self = ResumeOptions;
  std::string run = option(&Self::run, "", "run", "the folder of the run, or one of its checkpoints", Required{});
};

/// The options of the run, with those that decide no bit as they are given now.
TrainArguments options_of_run(const ResumeOptions& given) {
  const std::string folder = plan_resume(given.run, "", "").run_folder;
  TrainArguments options = recorded_arguments(folder, dist::detect_launch().size);
  options.resume = given.run;
  if (given.given("--device")) options.device = given.device;
  options.threads = given.threads;
  options.quiet = given.quiet;
  return options;
}

}  // namespace

Command train_command(const std::vector<std::string>& arguments) {
  const auto options = std::make_shared<TrainArguments>();
  return {"train", "train a model and leave a run folder", kExamples, options, [options, arguments] {
            check_train_arguments(*options);
            return train_run(*options, arguments);
          }};
}

Command resume_command(const std::vector<std::string>& arguments) {
  const auto options = std::make_shared<ResumeOptions>();
  return {"resume", "continue a stopped run, with the options it was started with",
          "Example: tern resume runs/distilbert-20250131-120000", options, [options, arguments] {
            if (options->given("--seed"))
              throw UsageError("resume: --seed belongs to the run; it continues with the one it was started with");
            const TrainArguments train = options_of_run(*options);
            check_train_arguments(train);
            return train_run(train, arguments);
          }};
}

}  // namespace tern::cli
