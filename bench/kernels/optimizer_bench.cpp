// Optimizer updates of the 66 M parameters of DistilBERT in 100 tensors, in bytes that must move.

#include "tern/kernels/optimizer/optimizer.h"

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "tern/bench/benchmark.h"
#include "tern/kernels/optimizer/layerwise.h"
#include "tern/kernels/optimizer/tiles.h"

namespace tern::bench {
namespace {

constexpr int64_t kTensors = 100;
int64_t tensor_size() { return scaled(660000, 40); }

/// Weights and gradients of one dtype, fp32 states (and master copies of 16-bit weights), step count and norm.
struct Parameters {
  std::vector<Buffer> weights, gradients, memory;
  std::vector<kernels::OptimizerTensor> tensors;
  Scratch step{sizeof(int64_t)};
  Buffer norm{float64, {sizeof(kernels::GradientNorm) / sizeof(double)}};  // compared like any result

  /// states: those that the rule keeps, a bit each.
  Parameters(DType dtype, unsigned states) {
    const int64_t n = tensor_size();
    const auto state = [&] { return memory.emplace_back(float32, Shape{n}, 2, 1e-3).data(); };
    for (int64_t t = 0; t < kTensors; ++t) {
      weights.emplace_back(dtype, Shape{n});
      gradients.emplace_back(dtype, Shape{n}, 2, 1e-3);
      kernels::OptimizerTensor tensor;
      tensor.weight = weights.back().data();
      tensor.gradient = gradients.back().data();
      for (unsigned k = 0; k < kernels::kMaxOptimizerStates; ++k) {
        if ((states >> k & 1) == 0) continue;
        tensor.states[k] = state();
        kernels::fill_uniform(stream(), {2, static_cast<uint64_t>(t)}, 0, 1e-6, memory.back().view());  // squares
      }
      if (dtype != float32) tensor.master = state();
      tensor.size = n;
      tensor.weight_dtype = tensor.gradient_dtype = dtype;
      tensors.push_back(tensor);
    }
  }
  std::vector<kernels::ConstView> gradient_views() const {
    std::vector<kernels::ConstView> views;
    for (const Buffer& gradient : gradients) views.push_back(gradient.view());
    return views;
  }
  /// Fills `norm`.
  void measure_norm() const {
    const Scratch workspace(kernels::gradient_norm_workspace(stream(), kTensors * tensor_size(), kTensors)), ticket(4);
    kernels::gradient_norm(stream(), gradient_views().data(), kTensors, workspace.data(), ticket.data(), norm_data());
  }
  kernels::GradientNorm* norm_data() const { return static_cast<kernels::GradientNorm*>(norm.data()); }
  kernels::OptimizerStep options() const {
    return {.step = static_cast<int64_t*>(step.data()), .norm = norm_data(), .max_norm = 1};
  }
};

Work work_of(int64_t bytes_per_element) {
  return {.bytes = static_cast<double>(kTensors * tensor_size() * bytes_per_element), .share_budget = 0.80};
}

/// Weight (and master) and states read and written, gradient read.
template <class Rule>
void add_rule(const std::string& name, const Rule& rule, DType dtype = float32) {
  const unsigned states = kernels::kept_states<Rule>(kernels::cases_of(rule, 1));
  const int64_t bytes = 8 * std::popcount(states) + 3 * size_of(dtype) + (dtype == float32 ? 0 : 8 - size_of(dtype));
  add(name, work_of(bytes), [=]() -> Call {
    const Parameters p(dtype, states);
    p.measure_norm();
    return
        [=] { kernels::update_weights(stream(), kernels::make_rules(&rule), p.tensors.data(), kTensors, p.options()); };
  });
}

/// Tensors as matrices with this many columns; 0: as vectors. `bytes`: optimizer/layerwise.h's.
template <class Rule>
void add_layerwise(const std::string& name, const Rule& rule, unsigned states, int64_t columns, int64_t bytes) {
  add(name, work_of(bytes), [=]() -> Call {
    Parameters p(float32, states);
    p.measure_norm();
    for (kernels::OptimizerTensor& tensor : p.tensors) {
      tensor.columns = columns;
      tensor.rows = columns > 0 ? tensor.size / columns : 0;
    }
    const kernels::OptimizerTensor* const tensors = p.tensors.data();
    constexpr bool kIsLamb = std::is_same_v<Rule, kernels::LambRule>;
    const Scratch workspace(kIsLamb ? kernels::lamb_workspace(stream(), tensors, kTensors)
                                    : kernels::adafactor_workspace(stream(), tensors, kTensors));
    return [=, p = std::make_shared<Parameters>(std::move(p))] {
      if constexpr (kIsLamb)
        kernels::update_lamb(stream(), &rule, p->tensors.data(), kTensors, p->options(), workspace.data());
      else
        kernels::update_adafactor(stream(), &rule, p->tensors.data(), kTensors, p->options(), workspace.data());
    };
  });
}

void add_scale_by_norm() {
  add("scale_by_norm", work_of(8), []() -> Call {
    const Parameters p(float32, 0);
    p.measure_norm();
    std::vector<kernels::View> views;
    for (const Buffer& weight : p.weights) views.push_back(weight.view());
    return [=] { kernels::scale_by_norm(stream(), views.data(), kTensors, p.norm_data(), 1e-3); };
  });
}

void add_gradient_norm() {
  add("gradient_norm", work_of(4), []() -> Call {
    const Parameters p(float32, 0);
    const Scratch workspace(kernels::gradient_norm_workspace(stream(), kTensors * tensor_size(), kTensors)), ticket(4);
    return [=, views = p.gradient_views()] {
      kernels::gradient_norm(stream(), views.data(), kTensors, workspace.data(), ticket.data(), p.norm_data());
    };
  });
}

const Rows rows([] {
  for (const DType dtype : {float32, bfloat16})
    add_rule(name_of_row("adamw", dtype), kernels::AdamRule{.weight_decay = 0.01}, dtype);
  add_rule(name_of_row("sgd", "plain"), kernels::SgdRule{.weight_decay = 0.01});
  add_rule(name_of_row("sgd", "momentum"), kernels::SgdRule{.momentum = 0.9, .weight_decay = 0.01});
  add_rule("nadam", kernels::NAdamRule{});
  add_rule("radam", kernels::RAdamRule{});
  add_rule("rmsprop", kernels::RMSpropRule{});
  add_rule("adagrad", kernels::AdagradRule{});
  add_rule("adadelta", kernels::AdadeltaRule{});
  add_rule("lion", kernels::LionRule{.weight_decay = 0.01});
  add_layerwise("lamb", kernels::LambRule{}, 3, 0, 40);
  add_layerwise(name_of_row("lamb", "no decay"), kernels::LambRule{.weight_decay = 0}, 3, 0, 28);
  add_layerwise(name_of_row("adafactor", "matrix"), kernels::AdafactorRule{}, 3, scaled(660, 10), 24);
  add_layerwise(name_of_row("adafactor", "vector"), kernels::AdafactorRule{}, 4, 0, 32);
  add_scale_by_norm();
  add_gradient_norm();
});

}  // namespace
}  // namespace tern::bench
