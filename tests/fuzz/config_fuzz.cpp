// config.json and preprocessor_config.json of models, and run.json of a run.

#include "tern/models/cli/option_record.h"
#include "tern/models/cli/run_folder.h"
#include "tern/models/cli/train_arguments.h"
#include "tern/models/distilbert/config.h"
#include "tern/models/image/image_pipeline.h"
#include "tern/models/vit/config.h"
#include "tern/tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern;
  const std::string text(fuzz::text_of(data, size));
  fuzz::read([&] {
    const auto config = models::DistilBertConfig::from_json(text, "config.json");
    models::DistilBertConfig::from_json(config.to_json(), "config.json");
  });
  fuzz::read([&] {
    const auto config = models::ViTConfig::from_json(text, "config.json");
    models::ViTConfig::from_json(config.to_json(), "config.json");
  });
  fuzz::read([&] { models::ImagePreprocessing::from_json(text, "preprocessor_config.json"); });
  fuzz::write_file("run.json", text);
  fuzz::read([&] {
    const cli::Json record = cli::RunFolder::read_record(fuzz::folder().string());
    cli::TrainArguments options;
    cli::from_record(options, record["options"], "run.json");
    cli::from_record(options, cli::to_record(options), "run.json");
  });
  return 0;
}
