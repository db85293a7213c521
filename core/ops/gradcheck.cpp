#include "tern/core/ops/gradcheck.h"

#include <cmath>

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/reduce.h"

namespace tern {
namespace {

using Objective = std::function<Tensor(const std::vector<Tensor>&)>;

/// Copies of the inputs as fresh fp64 leaves.
std::vector<Tensor> fresh_leaves(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : inputs) {
    Tensor leaf = x.defined() ? x.detach().clone() : Tensor();
    if (x.defined() && x.requires_grad()) leaf.set_requires_grad(true);
    leaves.push_back(leaf);
  }
  return leaves;
}

double evaluate(const Objective& objective, const std::vector<Tensor>& inputs) {
  return objective(inputs).item<double>();
}

void compare(const char* order, const Objective& objective, const std::vector<Tensor>& inputs,
             const std::vector<size_t>& checked, const std::vector<Tensor>& analytic, const GradcheckOptions& options) {
  for (size_t k = 0; k < checked.size(); ++k) {
    const size_t i = checked[k];
    const std::vector<double> got = analytic[k].defined()
                                        ? analytic[k].to_vector<double>()
                                        : std::vector<double>(static_cast<size_t>(inputs[i].numel()), 0.0);
    const std::vector<Tensor> moved = fresh_leaves(inputs);
    double* values = moved[i].data<double>();
    for (int64_t e = 0; e < moved[i].numel(); ++e) {
      const double original = values[e];
      values[e] = original + options.eps;
      const double above = evaluate(objective, moved);
      values[e] = original - options.eps;
      const double below = evaluate(objective, moved);
      values[e] = original;
      const double expected = (above - below) / (2 * options.eps);
      const double error = std::abs(got[static_cast<size_t>(e)] - expected);
      // In this form a NaN on either side fails.
      TERN_CHECK(error <= options.atol + options.rtol * std::abs(expected), "gradcheck: ", order, " gradient of input ",
                 i, " at element ", e, " is ", got[static_cast<size_t>(e)], ", finite differences give ", expected);
    }
  }
}

/// The first gradient must be the same with create_graph, for which an op may use another computation.
void compare_recorded(const std::vector<size_t>& checked, const std::vector<Tensor>& plain,
                      const std::vector<Tensor>& recorded, const GradcheckOptions& options) {
  for (size_t k = 0; k < checked.size(); ++k) {
    TERN_CHECK(plain[k].defined() == recorded[k].defined(), "gradcheck: input ", checked[k], " has ",
               plain[k].defined() ? "a gradient without create_graph alone" : "a gradient with create_graph alone");
    if (!plain[k].defined()) continue;
    const std::vector<double> want = plain[k].to_vector<double>(), got = recorded[k].to_vector<double>();
    for (size_t e = 0; e < want.size(); ++e)
      TERN_CHECK(std::abs(got[e] - want[e]) <= options.atol + options.rtol * std::abs(want[e]),
                 "gradcheck: first gradient of input ", checked[k], " at element ", e, " is ", want[e],
                 ", with create_graph ", got[e]);
  }
}

}  // namespace

void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn, const std::vector<Tensor>& inputs,
               const GradcheckOptions& options) {
  std::vector<size_t> checked;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    TERN_CHECK(inputs[i].dtype() == DType::kFloat64 && inputs[i].device().is_cpu() && inputs[i].is_contiguous(),
               "gradcheck: input ", i, " is ", inputs[i].describe(), ", expected contiguous float64 on the CPU");
    checked.push_back(i);
  }
  TERN_CHECK(!checked.empty(),
             "gradcheck: no input requires a gradient; call set_requires_grad(true) on those to check");

  Generator generator(options.seed + 1);
  const Tensor weights = rand(fn(inputs).shape(), generator, {.dtype = DType::kFloat64}) + 0.5;
  const Objective projected = [&](const std::vector<Tensor>& x) { return sum(mul(fn(x), weights)); };
  const auto pick = [&](const std::vector<Tensor>& x) {
    std::vector<Tensor> picked;
    for (size_t i : checked) picked.push_back(x[i]);
    return picked;
  };

  const std::vector<Tensor> leaves = fresh_leaves(inputs);
  const std::vector<Tensor> plain = grad({projected(leaves)}, pick(leaves), {.allow_unused = true});
  compare("first", projected, inputs, checked, plain, options);
  if (!options.second) return;
  const std::vector<Tensor> recorded =
      grad({projected(leaves)}, pick(leaves), {.create_graph = true, .allow_unused = true});
  compare_recorded(checked, plain, recorded, options);

  // For the second derivative, the first gradients are projected on random weights as well.
  std::vector<Tensor> directions;
  for (size_t i : checked) directions.push_back(rand(inputs[i].shape(), generator, {.dtype = DType::kFloat64}) - 0.5);
  const Objective slope = [&](const std::vector<Tensor>& x) {
    GradMode on(true);
    const std::vector<Tensor> first = grad({projected(x)}, pick(x), {.create_graph = true, .allow_unused = true});
    Tensor total = zeros({}, {.dtype = DType::kFloat64});
    for (size_t k = 0; k < first.size(); ++k)
      if (first[k].defined()) total = total + sum(mul(first[k], directions[k]));
    return total;
  };
  const std::vector<Tensor> again = fresh_leaves(inputs);
  const Tensor value = slope(again);
  std::vector<Tensor> second(checked.size());
  if (value.requires_grad()) second = grad({value}, pick(again), {.allow_unused = true});
  compare("second", slope, inputs, checked, second, options);
}

}  // namespace tern
