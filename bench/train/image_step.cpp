#include "tern/bench/train/image_step.h"

#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

models::ViTConfig config_of(const ModelOptions& options) {
  models::ViTConfig config = models::ViTConfig::preset(options.preset);
  config.dropout = config.attention_dropout = 0.1;
  config.labels.clear();
  for (int i = 0; i < 10; ++i) config.labels.push_back(std::to_string(i));
  return config;
}

}  // namespace

ImageStep::ImageStep(const ModelOptions& options)
    : ModelStep(options), model_(nn::Scope({.device = options.device, .generator = Generator(1)}), config_of(options)) {
  prepare(model_);
}

void ImageStep::run(const Tensor& images, const Tensor& labels) { ModelStep::run({images}, labels); }

Tensor ImageStep::logits(const std::vector<Tensor>& batch) {
  if (!options().full_last_layer) return model_.forward(batch[0]);
  return model_.forward_head(model_.hidden_states(batch[0]).slice(1, 0, 1).squeeze(1));
}

double ImageStep::flops_per_image() const {
  const models::ViTConfig& c = config();
  double flops = model_.forward_flops();
  if (!options().full_last_layer) {  // keys and values of all tokens, the rest only of the class token
    const double d = static_cast<double>(c.width), h = static_cast<double>(c.hidden);
    const double rest = static_cast<double>(c.grid() * c.grid());
    flops -= rest * (2 * (2 * d * d + 2 * d * h) + 4 * (rest + 1) * d);
  }
  return options().train ? 3 * flops : flops;
}

}  // namespace tern::bench
