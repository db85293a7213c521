#include "tern/optim/sgd.h"

#include <cmath>

namespace tern::optim {

SGD::SGD(const std::vector<NamedTensor>& parameters, const SGDOptions& options)
    : SGD(std::vector<ParameterGroup>{{parameters, {}, {}}}, options) {}

SGD::SGD(const std::vector<ParameterGroup>& groups, const SGDOptions& options)
    : Optimizer({.name = "sgd",
                 .lr = options.lr,
                 .weight_decay = options.weight_decay,
                 .master_weights = options.master_weights,
                 .kahan = options.kahan,
                 .capturable = options.capturable,
                 .state_names =
                     options.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{}},
                groups),
      options_(options) {
  detail::check_not_negative("sgd", "momentum", options.momentum);
  TERN_CHECK(std::isfinite(options.dampening), "sgd: dampening must be finite, got ", options.dampening);
  TERN_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
             "sgd: nesterov needs momentum > 0 and dampening 0, got momentum ", options.momentum, " and dampening ",
             options.dampening);
}

void SGD::update(kernels::Stream stream, const std::vector<kernels::OptimizerTensor>& tensors,
                 const kernels::OptimizerStep& step) const {
  std::vector<kernels::SgdGroup> groups;
  for (const GroupState& group : param_groups()) {
    groups.push_back({.lr = group.lr,
                      .momentum = options_.momentum,
                      .dampening = options_.dampening,
                      .weight_decay = group.weight_decay,
                      .nesterov = options_.nesterov,
                      .maximize = options_.maximize});
  }
  kernels::sgd(stream, tensors.data(), static_cast<int64_t>(tensors.size()), groups.data(),
               static_cast<int64_t>(groups.size()), step);
}

}  // namespace tern::optim
