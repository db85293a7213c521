#include "tern/bench/train/text_step.h"

#include <numeric>

#include "tern/core/ops/ops.h"

namespace tern::bench {
namespace {

models::DistilBertConfig config_of(const ModelOptions& options) {
  models::DistilBertConfig config = models::DistilBertConfig::preset(options.preset);
  config.classifier_dropout = 0.1;  // same as the other dropout probabilities
  return config;
}

/// A linear layer's matrix product in the forward pass: x [rows, in] times weight [out, in].
struct Product {
  int64_t rows, in, out;
  int64_t layers;  // number of equal products
  double flops() const { return 2.0 * static_cast<double>(rows * in * out * layers); }
};

/// All linear layers of a step over sequences of these lengths, as the model computes them.
std::vector<Product> products(const models::DistilBertConfig& config, const std::vector<int64_t>& lengths,
                              bool full_last_layer) {
  const int64_t d = config.width, h = config.hidden, sequences = static_cast<int64_t>(lengths.size());
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t whole = full_last_layer ? config.layers : config.layers - 1;
  std::vector<Product> list = {{rows, d, 3 * d, whole}, {rows, d, d, whole}, {rows, d, h, whole}, {rows, h, d, whole}};
  if (!full_last_layer)  // keys and values of all rows, the rest only of the first rows
    list.insert(list.end(), {{rows, d, 2 * d, 1}, {sequences, d, d, 2}, {sequences, d, h, 1}, {sequences, h, d, 1}});
  list.insert(list.end(), {{sequences, d, d, 1}, {sequences, d, config.num_labels(), 1}});
  return list;
}

}  // namespace

TextStep::TextStep(const ModelOptions& options)
    : ModelStep(options), model_(nn::Scope({.device = options.device, .generator = Generator(1)}), config_of(options)) {
  prepare(model_);
}

void TextStep::run(const data::TokenInput& input, const Tensor& labels) {
  longest_ = input.layout.max_length;
  ModelStep::run({input.tokens, input.positions, input.first_rows, input.layout.offsets, input.layout.key_mask,
                  input.layout.row_keys},
                 labels);
}

Tensor TextStep::logits(const std::vector<Tensor>& t) {
  data::TokenInput input{.tokens = t[0], .positions = t[1], .first_rows = t[2], .layout = {}};
  input.layout = {.offsets = t[3], .max_length = longest_, .key_mask = t[4], .row_keys = t[5]};
  if (!options().full_last_layer) return model_.forward(input);
  return model_.classify(index_select(model_.hidden_states(input), 0, input.first_rows), input);
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
