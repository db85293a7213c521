// config.json and preprocessor_config.json of models, and run.json of a run.

#include <nlohmann/json.hpp>

#include "tern/models/cli/options/option_record.h"
#include "tern/models/cli/options/train_arguments.h"
#include "tern/models/cli/run/run_folder.h"
#include "tern/models/distilbert/config.h"
#include "tern/models/image/image_pipeline.h"
#include "tern/models/vit/config.h"
#include "tern/tests/fuzz/fuzz.h"

void tern::fuzz::try_input(std::string_view input) {
  const std::string text(input);
  read([&] {
    const auto config = models::DistilBertConfig::from_json(text, "config.json");
    models::DistilBertConfig::from_json(config.to_json(), "config.json");
  });
  read([&] {
    models::ViTConfig::from_json(models::ViTConfig::from_json(text, "config.json").to_json(), "config.json");
  });
  read([&] { models::ImagePreprocessing::from_json(text, "preprocessor_config.json"); });
  write_file("run.json", text);
  read([&] {
    const cli::Json record = cli::RunFolder::read_record(folder().string());
    cli::TrainArguments options;
    cli::from_record(options, record["options"], "run.json");
    cli::from_record(options, cli::to_record(options), "run.json");
  });
}
