#include "tern/optim/lamb.h"

#include "tern/core/ops/vector_norm.h"

namespace tern::optim {

void LambOptions::check() const {
  detail::check_not_negative(kName, "lr", lr);
  detail::check_fraction(kName, "beta1", beta1);
  detail::check_fraction(kName, "beta2", beta2);
  detail::check_not_negative(kName, "eps", eps);
  detail::check_not_negative(kName, "weight_decay", weight_decay);
}

std::vector<Algorithm::State> LambOptions::states() {
  return {{.name = "exp_avg"}, {.name = "exp_avg_sq", .index = 1}};
}

void LambOptions::update(WholeParameter& p) const {
  Tensor &average = p.states[0], &square = p.states[1];
  average = lerp(average, p.gradient, 1 - beta1);
  square = square * beta2 + p.gradient * p.gradient * (1 - beta2);
  const auto corrected = [&](double beta) {  // 1 - beta^count
    return (1.0 - pow(full({}, beta, p.count.options()), p.count)).to(p.weight.dtype());
  };
  Tensor change = average / corrected(beta1) / (sqrt(square / corrected(beta2)) + eps);
  if (weight_decay != 0) change = change + p.weight * weight_decay;
  if (weight_decay != 0 || always_adapt) {
    const Tensor length = norm(p.weight), step = norm(change);
    const Tensor known = mul(length > 0.0, step > 0.0);
    change = change * where(known, length / step, 1.0);
  }
  p.weight = p.weight - change * lr;
}

}  // namespace tern::optim
