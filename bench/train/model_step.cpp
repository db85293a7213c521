#include "tern/bench/train/model_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tern/core/autocast.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler.h"

namespace tern::bench {
namespace {

models::DistilBertConfig config_of(const ModelOptions& options) {
  models::DistilBertConfig config = models::DistilBertConfig::preset(options.preset);
  config.classifier_dropout = 0.1;  // like the others
  return config;
}

}  // namespace

ModelStep::ModelStep(const ModelOptions& options)
    : options_(options),
      model_(std::make_unique<models::DistilBert>(nn::Scope({.device = options.device, .generator = Generator(1)}),
                                                  config_of(options))) {
  model_->train(options.train);
  if (options.train)
    optimizer_ =
        std::make_unique<optim::AdamW>(model_->parameters(), optim::AdamWOptions{.lr = 5e-5, .weight_decay = 0.01});
  const auto step = [this](const std::vector<Tensor>& t) {
    models::EncoderInput input{.tokens = t[0], .positions = t[1], .first_rows = t[2], .layout = {}};
    input.layout = {.offsets = t[3], .max_length = longest_, .key_mask = t[4], .row_keys = t[5]};
    return std::vector<Tensor>{options_.train ? train(input, t[6]) : infer(input)};
  };
  captured_ =
      std::make_unique<CapturedStep>(step, CapturedStepOptions{.enabled = options.capture && options.device.is_cuda()});
}

Tensor ModelStep::logits(const models::EncoderInput& input) {
  if (!options_.full_last_layer) return model_->forward(input);
  return model_->classify(index_select(model_->hidden_states(input), 0, input.first_rows), input);
}

/// The loss.
Tensor ModelStep::train(const models::EncoderInput& input, const Tensor& labels) {
  Tensor loss;
  {
    const ProfileRange range("forward");
    loss = autocast(model_->device(), options_.dtype, [&] { return cross_entropy(logits(input), labels); });
  }
  {
    const ProfileRange range("backward");
    loss.backward();
  }
  const ProfileRange range("optimizer");
  optimizer_->step({.max_norm = 1, .skip_non_finite = true});
  optimizer_->zero_grad();
  return loss.detach();
}

/// The sum of the logits.
Tensor ModelStep::infer(const models::EncoderInput& input) {
  const ProfileRange range("forward");
  NoGrad off;
  const Tensor result = autocast(model_->device(), options_.dtype, [&] { return logits(input); });
  return sum(result.to(DType::kFloat32));
}

void ModelStep::run(const models::EncoderInput& input, const Tensor& labels) {
  longest_ = input.layout.max_length;
  std::vector<Tensor> batch = {
      input.tokens,          input.positions, input.first_rows, input.layout.offsets, input.layout.key_mask,
      input.layout.row_keys, labels};
  for (Tensor& tensor : batch)
    if (tensor.defined()) tensor = tensor.to(options_.device);
  const double value = (*captured_)(batch)[0].item<double>();
  TERN_CHECK(std::isfinite(value), "tern-bench-train: the ", options_.train ? "loss" : "sum of the logits", " is ",
             value);
}

std::vector<Product> products(const models::DistilBertConfig& config, const std::vector<int64_t>& lengths,
                              bool full_last_layer) {
  const int64_t d = config.width, h = config.hidden, sequences = static_cast<int64_t>(lengths.size());
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t whole = full_last_layer ? config.layers : config.layers - 1;
  std::vector<Product> list = {{rows, d, 3 * d, whole}, {rows, d, d, whole}, {rows, d, h, whole}, {rows, h, d, whole}};
  if (!full_last_layer)  // keys and values of all rows, the rest of the first rows alone
    list.insert(list.end(), {{rows, d, 2 * d, 1}, {sequences, d, d, 2}, {sequences, d, h, 1}, {sequences, h, d, 1}});
  list.insert(list.end(), {{sequences, d, d, 1}, {sequences, d, config.num_labels(), 1}});
  return list;
}

double step_flops(const models::DistilBertConfig& config, const std::vector<int64_t>& lengths,
                  const ModelOptions& options) {
  double flops = 0;
  for (const Product& product : products(config, lengths, options.full_last_layer)) flops += product.flops();
  for (const int64_t length : lengths) {
    const double n = static_cast<double>(length), layers = static_cast<double>(config.layers);
    const double queries = options.full_last_layer ? n * layers : n * (layers - 1) + 1;
    flops += 4 * queries * n * static_cast<double>(config.width);
  }
  return options.train ? 3 * flops : flops;
}

}  // namespace tern::bench
