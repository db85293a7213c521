#include "tern/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tern/core/ops/indexing/join.h"
#include "tern/core/ops/matmul/matmul.h"
#include "tern/core/ops/reduce/vector_norm.h"
#include "tern/optim/adam.h"

namespace tern::optim {
namespace {

/// Elements of a stack of matrices, unless one matrix alone has more.
constexpr int64_t kStackElements = int64_t{1} << 24;

/// Matrices with the singular vectors of x's [n, rows, columns], whose singular values are about 1.
Tensor near_orthogonal(const Tensor& x, const MuonOptions& o) {
  const bool is_tall = x.size(1) > x.size(2);
  Tensor wide = is_tall ? x.transpose(1, 2).contiguous() : x;
  wide = wide / clamp(norm(wide.reshape({wide.size(0), -1}), {1}).reshape({-1, 1, 1}), o.eps, INFINITY);
  if (x.dtype() == float32) wide = wide.to(o.product_dtype);
  for (int i = 0; i < o.iterations; ++i) {
    const Tensor gram = bmm(wide, wide.transpose(1, 2));
    wide = baddbmm(wide, baddbmm(gram, gram, gram, o.b, o.c), wide, o.a);
  }
  wide = wide.to(x.dtype());
  return is_tall ? wide.transpose(1, 2) : wide;
}

double rate_factor(double m, double n, MuonScale scale) {
  if (scale == MuonScale::kOriginal) return std::sqrt(std::max(1.0, m / n));
  if (scale == MuonScale::kMatchAdamRms) return 0.2 * std::sqrt(std::max(m, n));
  return std::sqrt(m / n);
}

/// One step of matrices of equal shape.
void update_stack(const std::vector<WholeParameter*>& parameters, const MuonOptions& o) {
  std::vector<Tensor> weights, gradients, buffers;
  for (const WholeParameter* p : parameters) {
    weights.push_back(p->weight.flatten(1));
    gradients.push_back(p->gradient.flatten(1));
    buffers.push_back(p->states[0].flatten(1));
  }
  const Tensor weight = stack(weights), gradient = stack(gradients);
  const Tensor buffer = lerp(stack(buffers), gradient, 1 - o.momentum);
  const Tensor direction = o.nesterov ? lerp(gradient, buffer, o.momentum) : buffer;
  const double factor = rate_factor(static_cast<double>(weight.size(1)), static_cast<double>(weight.size(2)), o.scale);
  Tensor kept = weight * (1 - o.lr * o.weight_decay);
  if (o.fixed_norm) {
    const Tensor size = norm(weight.flatten(1), {1}).reshape({-1, 1, 1});
    kept = weight * (std::sqrt(static_cast<double>(weight.size(1))) / clamp(size, o.eps, INFINITY));
  }
  const Tensor updated = kept - near_orthogonal(direction, o) * (o.lr * factor);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Shape shape = parameters[i]->weight.shape();
    parameters[i]->weight = updated.select(0, static_cast<int64_t>(i)).reshape(shape);
    parameters[i]->states[0] = buffer.select(0, static_cast<int64_t>(i)).reshape(shape);
  }
}

kernels::AdamRule adamw_rule(const MuonOptions& o) {
  return AdamWOptions{
      .lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.adamw_eps, .weight_decay = o.weight_decay}
      .rule();
}

/// One step of AdamW's own kernel, which writes in place.
void update_by_adamw(WholeParameter& p, const kernels::AdamRule& rule) {
  p.weight = p.weight.clone();
  for (Tensor& state : p.states) state = state.clone();
  const Tensor done = (p.count - 1).to(int64);
  kernels::OptimizerTensor tensor;
  tensor.weight = p.weight.raw_data();
  tensor.gradient = p.gradient.raw_data();
  for (size_t i = 0; i < p.states.size(); ++i) tensor.states[i] = p.states[i].raw_data();
  tensor.size = p.weight.numel();
  tensor.weight_dtype = tensor.gradient_dtype = p.weight.dtype();
  kernels::update_weights(current_stream(p.weight.device()), kernels::make_rules(&rule), &tensor, 1,
                          {.step = static_cast<int64_t*>(done.raw_data())});
}

}  // namespace

void MuonOptions::check() const {
  detail::check_not_negative(kName, "lr", lr);
  detail::check_not_negative(kName, "weight_decay", weight_decay);
  detail::check_fraction(kName, "momentum", momentum);
  detail::check_not_negative(kName, "eps", eps);
  TERN_CHECK(iterations >= 1 && iterations <= 100, kName, ": iterations must be in 1 to 100, got ", iterations);
  TERN_CHECK(product_dtype == float32 || product_dtype == bfloat16, kName,
             ": product_dtype must be float32 or bfloat16, got ", product_dtype);
  adamw_rule(*this);
}

std::vector<Algorithm::State> MuonOptions::states() const {
  if (adamw) return {{.name = "exp_avg"}, {.name = "exp_avg_sq", .index = 1}};
  return {{.name = "momentum_buffer"}};
}

void MuonOptions::update(std::vector<WholeParameter>& parameters) const {
  if (adamw) {
    const kernels::AdamRule rule = adamw_rule(*this);
    for (WholeParameter& p : parameters) update_by_adamw(p, rule);
    return;
  }
  std::map<std::tuple<DType, int64_t, int64_t>, std::vector<WholeParameter*>> of_shape;
  for (WholeParameter& p : parameters) {
    TERN_CHECK(
        p.weight.dim() >= 2, kName, ": '", p.name, "' has shape ", p.weight.shape(),
        ", but Muon is for matrices: leave the others to AdamW, in a group with adamw = true (optim::muon_groups)");
    if (p.weight.numel() > 0)
      of_shape[{p.weight.dtype(), p.weight.size(0), p.weight.numel() / p.weight.size(0)}].push_back(&p);
  }
  for (const auto& [shape, of_it] : of_shape) {
    const auto most = static_cast<size_t>(std::max<int64_t>(1, kStackElements / of_it.front()->weight.numel()));
    for (size_t begin = 0; begin < of_it.size(); begin += most)
      update_stack({of_it.begin() + static_cast<int64_t>(begin),
                    of_it.begin() + static_cast<int64_t>(std::min(begin + most, of_it.size()))},
                   *this);
  }
}

std::vector<ParameterGroup> muon_groups(const std::vector<NamedTensor>& parameters, const MuonOptions& options,
                                        const std::function<bool(const NamedTensor& parameter)>& is_hidden) {
  MuonOptions others = options;
  others.adamw = true;
  ParameterGroup by_muon{.algorithm = algorithm_of(options)}, by_adamw{.algorithm = algorithm_of(others)};
  ParameterGroup without_decay = by_adamw;
  without_decay.weight_decay = 0;
  for (const NamedTensor& parameter : parameters) {
    const bool hidden = parameter.tensor.dim() >= 2 && is_hidden(parameter);
    (hidden ? by_muon : parameter.tensor.dim() > 1 ? by_adamw : without_decay).parameters.push_back(parameter);
  }
  return {by_muon, by_adamw, without_decay};
}

}  // namespace tern::optim
