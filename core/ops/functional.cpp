#include "tern/core/ops/functional.h"

#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/pointwise/pointwise.h"

namespace tern {
namespace {

/// Copies of the inputs that require gradients; recorded ones where the results shall be differentiated by the inputs.
std::vector<Tensor> function_inputs(const char* op, const std::vector<Tensor>& inputs, bool create_graph) {
  TERN_CHECK(!inputs.empty(), op, ": there are no inputs");
  std::vector<Tensor> copies;
  for (const Tensor& input : inputs) {
    TERN_CHECK(input.defined() && is_floating(input.dtype()), op, ": the inputs must be floating tensors, got ",
               input.defined() ? input.describe() : "an undefined one");
    copies.push_back(create_graph && input.requires_grad() ? input.reshape(input.shape())
                                                           : input.detach().set_requires_grad(true));
  }
  return copies;
}

Tensor call(const char* op, const TensorFunction& fn, const std::vector<Tensor>& inputs) {
  const GradMode on(true);
  const Tensor output = fn(inputs);
  TERN_CHECK(output.defined() && is_floating(output.dtype()), op, ": the function must return a floating tensor");
  return output;
}

/// Gradients, zeros where the output does not depend on the input.
std::vector<Tensor> gradients_of(const Tensor& output, const std::vector<Tensor>& inputs, const Tensor& v,
                                 bool retain_graph, bool create_graph) {
  std::vector<Tensor> found(inputs.size());
  if (output.requires_grad())
    found = grad({output}, inputs, {{v}, retain_graph || create_graph, create_graph, /*allow_unused=*/true});
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i].defined()) found[i] = zeros_like(inputs[i]);
  return found;
}

Tensor without_history(const Tensor& x, const DerivativeOptions& options) {
  return options.create_graph ? x : x.detach();
}

/// The gradients of each element of the output, stacked: [elements of the output] + the input's shape.
std::vector<Tensor> rows_of_jacobian(const Tensor& output, const std::vector<Tensor>& inputs, bool create_graph) {
  const int64_t count = output.numel();
  const Tensor flat = output.reshape({count});
  std::vector<std::vector<Tensor>> rows(inputs.size());
  for (int64_t k = 0; k < count; ++k) {
    const std::vector<Tensor> row = gradients_of(flat.select(0, k), inputs, {}, /*retain_graph=*/true, create_graph);
    for (size_t i = 0; i < row.size(); ++i) rows[i].push_back(row[i]);
  }
  std::vector<Tensor> result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> shape = output.shape().vec();
    for (const int64_t size : inputs[i].shape().vec()) shape.push_back(size);
    result.push_back(count == 0 ? zeros(Shape(shape), inputs[i].options()) : stack(rows[i]).reshape(shape));
  }
  return result;
}

}  // namespace

Vjp vjp(const TensorFunction& fn, const std::vector<Tensor>& inputs, const Tensor& v,
        const DerivativeOptions& options) {
  const std::vector<Tensor> x = function_inputs("vjp", inputs, options.create_graph);
  const Tensor output = call("vjp", fn, x);
  TERN_CHECK(v.defined() ? v.shape() == output.shape() : output.numel() == 1, "vjp: v must have the output's shape ",
             output.shape(), v.defined() ? ", got " : ", but is undefined", v.defined() ? v.describe() : "");
  return {without_history(output, options), gradients_of(output, x, v, false, options.create_graph)};
}

Jvp jvp(const TensorFunction& fn, const std::vector<Tensor>& inputs, const std::vector<Tensor>& directions,
        const DerivativeOptions& options) {
  TERN_CHECK(directions.size() == inputs.size(), "jvp: ", directions.size(), " directions for ", inputs.size(),
             " inputs");
  const std::vector<Tensor> x = function_inputs("jvp", inputs, options.create_graph);
  for (size_t i = 0; i < x.size(); ++i)
    TERN_CHECK(directions[i].defined() && directions[i].shape() == x[i].shape(), "jvp: direction ", i,
               " must have its input's shape ", x[i].shape());
  const Tensor output = call("jvp", fn, x);
  // The gradients are linear in v, and their derivative by v along the directions is the tangent.
  const Tensor v = zeros_like(output.detach()).set_requires_grad(true);
  const std::vector<Tensor> of_v = gradients_of(output, x, v, true, true);
  Tensor tangent = zeros_like(output.detach());
  for (size_t i = 0; i < x.size(); ++i)
    tangent = tangent + gradients_of(of_v[i], {v}, directions[i].to(x[i].dtype()), true, options.create_graph)[0];
  return {without_history(output, options), without_history(tangent, options)};
}

std::vector<Tensor> jacobian(const TensorFunction& fn, const std::vector<Tensor>& inputs,
                             const DerivativeOptions& options) {
  const std::vector<Tensor> x = function_inputs("jacobian", inputs, options.create_graph);
  return rows_of_jacobian(call("jacobian", fn, x), x, options.create_graph);
}

std::vector<std::vector<Tensor>> hessian(const TensorFunction& fn, const std::vector<Tensor>& inputs,
                                         const DerivativeOptions& options) {
  const std::vector<Tensor> x = function_inputs("hessian", inputs, options.create_graph);
  const Tensor output = call("hessian", fn, x);
  TERN_CHECK(output.numel() == 1, "hessian: the function must return one element, got ", output.shape());
  std::vector<std::vector<Tensor>> result;
  for (const Tensor& gradient : gradients_of(output.reshape({}), x, {}, true, true))
    result.push_back(rows_of_jacobian(gradient, x, options.create_graph));
  return result;
}

}  // namespace tern
