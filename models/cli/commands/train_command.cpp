#include "tern/dist/store/rendezvous.h"
#include "tern/models/cli/commands/commands.h"
#include "tern/models/cli/options/train_arguments.h"
#include "tern/models/cli/run/resume.h"
#include "tern/models/cli/run/train_run.h"

namespace tern::cli {
namespace {

std::string examples() {
  const models::ModelFamily &texts = example_family(), &images = example_family(models::ModelKind::kImages);
  std::string all = "Examples:";
  const auto add = [&](std::string command, const std::string& what) {
    command.resize(50, ' ');
    all += "\n  tern " + command + what;
  };
  add("train " + texts.name, std::string("the data at hand, the ") + texts.presets.front().name + " model");
  add("train " + texts.name + " --data reviews.csv --epochs 5", "a file with the columns label and text");
  add("train " + texts.name + " --init DIR --lr 5e-5", "fine-tune a folder that transformers saved");
  add("train " + images.name + " --data photos --preset " + images.presets.front().name,
      "images photos/train/LABEL/*.jpg");
  return all;
}

struct ResumeOptions : CommonOptions {
  using Self = ResumeOptions;
  std::string run = option(&Self::run, "", "run", "the folder of the run, or one of its checkpoints", Required{});
};

}  // namespace

Command train_command(const std::vector<std::string>& arguments) {
  const auto options = std::make_shared<TrainArguments>();
  return {"train", "train a model and leave a run folder", examples(), options, [options, arguments] {
            check_train_arguments(*options);
            return train_run(*options, arguments);
          }};
}

Command resume_command(const std::vector<std::string>& arguments) {
  const auto options = std::make_shared<ResumeOptions>();
  return {"resume", "continue a stopped run, with the options it was started with",
          "Example: tern resume " + example_run(), options, [options, arguments] {
            if (options->given("--seed"))
              throw UsageError("resume: --seed belongs to the run; it continues with the one it was started with");
            const TrainArguments train = arguments_to_resume(options->run, *options, dist::detect_launch().size);
            check_train_arguments(train);
            return train_run(train, arguments);
          }};
}

}  // namespace tern::cli
