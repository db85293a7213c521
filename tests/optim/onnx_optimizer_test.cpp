// ONNX's node tests of optimizers (tests/golden/make_onnx.py): one step from a given state.

#include "tern/optim/optim.h"
#include "tern/tests/core/onnx_rows.h"

namespace tern::test::onnx {
namespace {

/// Inputs: rate, count of updates so far, then of each parameter its value, of each its gradient, and so its states.
/// Outputs: of each parameter its new value, and so its states.
Tensors step_of(const Case& c, const optim::Algorithm& algorithm, int64_t count) {
  const size_t kinds = 2 + algorithm.states.size(), parameters = (c.inputs.size() - 2) / kinds;
  const auto input = [&](size_t kind, size_t p) { return c.in(2 + kind * parameters + p); };
  std::vector<NamedTensor> named;
  StateView state;
  for (size_t p = 0; p < parameters; ++p) {
    const std::string name = std::to_string(p);
    named.push_back({name, input(0, p).clone().set_requires_grad(true)});
    named.back().tensor.set_grad(input(1, p).clone());
    state.push_back({"step." + name, full({1}, static_cast<double>(count), {.dtype = int64})});
    for (size_t s = 0; s < algorithm.states.size(); ++s)
      state.push_back({algorithm.states[s].name + "." + name, input(2 + s, p)});
  }
  optim::Optimizer optimizer({{.parameters = named}}, algorithm);
  optimizer.load_state_dict(state);
  optimizer.step();
  Tensors results;
  for (const NamedTensor& parameter : named) results.push_back(parameter.tensor.detach());
  for (const auto& kept : algorithm.states)
    for (size_t p = 0; p < parameters; ++p)
      results.push_back(find(optimizer.state_dict(), kept.name + "." + std::to_string(p)));
  return results;
}

Tensors adagrad(const Case& c) {
  return step_of(c,
                 algorithm_of(optim::AdagradOptions{.lr = c.scalar(0),
                                                    .lr_decay = c.get("decay_factor", 0.0),
                                                    .eps = c.get("epsilon", 0.0),
                                                    .weight_decay = c.get("norm_coefficient", 0.0)}),
                 c.list(1).at(0));
}

/// In ONNX the count of updates before a step corrects the biases, and at 0 nothing does. So do Tern's corrections
/// after many steps.
Tensors adam(const Case& c) {
  TERN_CHECK(c.list(1).at(0) == 0, "the test knows no Adam with a count of updates");
  return step_of(c,
                 algorithm_of(optim::AdamOptions{.lr = c.scalar(0),
                                                 .beta1 = c.get("alpha", 0.9),
                                                 .beta2 = c.get("beta", 0.999),
                                                 .eps = c.get("epsilon", 0.0),
                                                 .weight_decay = c.get("norm_coefficient", 0.0)}),
                 1'000'000);
}

/// In ONNX the first update has the momentum's given state too: it counts as the second, without dampening.
Tensors momentum(const Case& c) {
  const int64_t count = c.list(1).at(0);
  return step_of(c,
                 algorithm_of(optim::SGDOptions{.lr = c.scalar(0),
                                                .momentum = c.get("alpha", 0.0),
                                                .dampening = count > 0 ? 1 - c.get("beta", 1.0) : 0,
                                                .weight_decay = c.get("norm_coefficient", 0.0),
                                                .nesterov = c.get<std::string>("mode", "standard") == "nesterov"}),
                 std::max<int64_t>(count, 1));
}

TEST(OnnxOptimizer, GivesTheOutputs) {
  const Table rows = {{"Adagrad", adagrad}, {"Adam", adam}, {"Momentum", momentum}};
  std::set<std::string> run;
  for (const Case& c : load_cases(cpu)) {
    if (!kOptimizers.contains(c.op)) continue;
    expect_outputs(c, rows.at(c.op));
    run.insert(c.op);
  }
  EXPECT_EQ(run, kOptimizers);
}

}  // namespace
}  // namespace tern::test::onnx
