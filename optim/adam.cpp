#include "tern/optim/adam.h"

namespace tern::optim {

template <bool kDecoupled>
BasicAdam<kDecoupled>::BasicAdam(const std::vector<NamedTensor>& parameters, const Options& options)
    : BasicAdam(std::vector<ParameterGroup>{{parameters, {}, {}}}, options) {}

template <bool kDecoupled>
BasicAdam<kDecoupled>::BasicAdam(const std::vector<ParameterGroup>& groups, const Options& options)
    : Optimizer({.name = kDecoupled ? "adamw" : "adam",
                 .lr = options.lr,
                 .weight_decay = options.weight_decay,
                 .master_weights = options.master_weights,
                 .kahan = options.kahan,
                 .capturable = options.capturable,
                 .state_names = options.amsgrad ? std::vector<std::string>{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
                                                : std::vector<std::string>{"exp_avg", "exp_avg_sq"}},
                groups),
      options_(options) {
  const char* name = kDecoupled ? "adamw" : "adam";
  detail::check_fraction(name, "beta1", options.beta1);
  detail::check_fraction(name, "beta2", options.beta2);
  detail::check_not_negative(name, "eps", options.eps);
}

template <bool kDecoupled>
void BasicAdam<kDecoupled>::update(kernels::Stream stream, const std::vector<kernels::OptimizerTensor>& tensors,
                                   const kernels::OptimizerStep& step) const {
  std::vector<kernels::AdamGroup> groups;
  for (const GroupState& group : param_groups()) {
    groups.push_back({.lr = group.lr,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .eps = options_.eps,
                      .weight_decay = group.weight_decay,
                      .decoupled = kDecoupled,
                      .amsgrad = options_.amsgrad,
                      .maximize = options_.maximize});
  }
  kernels::adam(stream, tensors.data(), static_cast<int64_t>(tensors.size()), groups.data(),
                static_cast<int64_t>(groups.size()), step);
}

template class BasicAdam<false>;
template class BasicAdam<true>;

}  // namespace tern::optim
