#include "tern/bench/train/lstm_step.h"

#include "tern/core/ops/ops.h"

namespace tern::bench {

Lstm::Lstm(const nn::Scope& s, int64_t input, int64_t width, int64_t classes)
    : Module(s),
      width_(width),
      input_(sub("input"), input, 4 * width),
      state_(sub("state"), width, 4 * width),
      classifier_(sub("classifier"), width, classes) {}

Tensor Lstm::forward(const Tensor& x) const {
  Tensor h = zeros({x.size(0), width_}, x.options()), c = h;
  for (int64_t t = 0; t < x.size(1); ++t) {
    const std::vector<Tensor> gates = (input_.forward(x.select(1, t)) + state_.forward(h)).chunk(4, 1);
    c = sigmoid(gates[1]) * c + sigmoid(gates[0]) * tanh(gates[2]);
    h = sigmoid(gates[3]) * tanh(c);
  }
  return classifier_.forward(h);
}

LstmStep::LstmStep(const ModelOptions& options)
    : ModelStep(options),
      model_(nn::Scope({.device = options.device, .generator = Generator(1)}), kInput, kWidth, kClasses) {
  prepare(model_);
}

void LstmStep::run(const Tensor& sequences, const Tensor& labels) { ModelStep::run({sequences}, labels); }

Tensor LstmStep::logits(const std::vector<Tensor>& batch) { return model_.forward(batch[0]); }

}  // namespace tern::bench
