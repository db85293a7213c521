#include "tern/bench/train/cnn_step.h"

#include <string>

namespace tern::bench {
namespace {

models::CnnConfig config_of(const ModelOptions& options, int64_t size) {
  models::CnnConfig config = models::CnnConfig::preset(options.preset);
  config.image_size = size;
  config.small_images = size < 64;
  config.dropout = 0;
  config.labels.clear();
  for (int i = 0; i < 10; ++i) config.labels.push_back(std::to_string(i));
  return config;
}

}  // namespace

CnnStep::CnnStep(const ModelOptions& options, int64_t size)
    : ModelStep(options),
      model_(models::Cnn::make(nn::Scope({.device = options.device, .generator = Generator(1)}),
                               config_of(options, size))) {
  prepare(*model_);
}

}  // namespace tern::bench
