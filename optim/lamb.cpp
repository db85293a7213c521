#include "tern/optim/lamb.h"

#include "tern/core/ops/workspace.h"

namespace tern::optim {

kernels::LambRule LambOptions::rule() const {
  detail::check_not_negative(kName, "lr", lr);
  detail::check_fraction(kName, "beta1", beta1);
  detail::check_fraction(kName, "beta2", beta2);
  detail::check_not_negative(kName, "eps", eps);
  detail::check_not_negative(kName, "weight_decay", weight_decay);
  return {.lr = lr,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = eps,
          .weight_decay = weight_decay,
          .always_adapt = always_adapt,
          .maximize = maximize};
}

std::vector<Algorithm::State> LambOptions::states() {
  return {{.name = "exp_avg"}, {.name = "exp_avg_sq", .index = 1}};
}

void LambOptions::update_all(kernels::Stream stream, const std::vector<kernels::LambRule>& groups,
                             const std::vector<kernels::OptimizerTensor>& tensors, const kernels::OptimizerStep& step) {
  const auto count = static_cast<int64_t>(tensors.size());
  const Workspace workspace(Device{stream.device, stream.index},
                            [&] { return kernels::lamb_workspace(stream, tensors.data(), count); });
  kernels::update_lamb(stream, groups.data(), tensors.data(), count, step, workspace.data());
}

}  // namespace tern::optim
