// The optimizers that a training run names.

#include "tern/models/trainer/trainer.h"

namespace tern::models {
namespace {

template <class Options>
Options with_options(Options chosen, const TrainOptions& options) {
  chosen.lr = options.lr;
  chosen.master_weights = !options.kahan;
  if constexpr (requires { chosen.momentum; }) chosen.momentum = options.momentum.value_or(chosen.momentum);
  if constexpr (requires { chosen.kahan; }) chosen.kahan = options.kahan;
  if constexpr (requires { chosen.capturable; }) chosen.capturable = options.device.is_cuda();
  return chosen;
}

optim::SGDOptions sgd(const TrainOptions& options) {
  return with_options(optim::SGDOptions{.momentum = 0.9, .nesterov = options.nesterov}, options);
}

/// The learning rates and the weight decay of AdamW fit both parts of the model; with fixed norms the rate is the
/// length of a matrix's step as a part of its norm.
optim::MuonOptions muon(const TrainOptions& options) {
  using optim::MuonScale;
  optim::MuonOptions chosen{.weight_decay = options.weight_decay,
                            .scale = options.fixed_norm ? MuonScale::kOriginal : MuonScale::kMatchAdamRms,
                            .fixed_norm = options.fixed_norm};
  if (options.device.is_cuda()) chosen.product_dtype = autocast_dtype(options.device);
  return with_options(chosen, options);
}

std::vector<optim::ParameterGroup> without_decay_of_vectors(const std::vector<NamedTensor>& parameters,
                                                            const TrainOptions& options) {
  return optim::no_decay_groups(parameters, options.weight_decay);
}

std::vector<optim::ParameterGroup> hidden_layers_apart(const std::vector<NamedTensor>& parameters,
                                                       const TrainOptions& options) {
  return optim::muon_groups(parameters, muon(options), [&](const NamedTensor& parameter) {
    return parameter.name.starts_with(options.hidden_layers) && !parameter.tensor.has_few_gradient_rows();
  });
}

struct NamedOptimizer {
  const char* name;
  optim::Algorithm (*make)(const TrainOptions& options);
  bool has_momentum = false, has_nesterov = false, has_kahan = true;
  std::vector<optim::ParameterGroup> (*groups)(const std::vector<NamedTensor>& parameters,
                                               const TrainOptions& options) = without_decay_of_vectors;
};

template <class Options>
optim::Algorithm made(const TrainOptions& options) {
  return optim::algorithm_of(with_options(Options{}, options));
}

constexpr NamedOptimizer kOptimizers[] = {
    {"adamw", made<optim::AdamWOptions>},
    {"adam", made<optim::AdamOptions>},
    {.name = "sgd",
     .make = [](const TrainOptions& o) { return optim::algorithm_of(sgd(o)); },
     .has_momentum = true,
     .has_nesterov = true},
    {"nadam", made<optim::NAdamOptions>},
    {"radam", made<optim::RAdamOptions>},
    {.name = "rmsprop", .make = made<optim::RMSpropOptions>, .has_momentum = true},
    {"adagrad", made<optim::AdagradOptions>},
    {"adadelta", made<optim::AdadeltaOptions>},
    {"lion", made<optim::LionOptions>},
    {"lamb", made<optim::LambOptions>},
    {"adafactor", made<optim::AdafactorOptions>},
    {.name = "muon",
     .make = [](const TrainOptions& o) { return optim::algorithm_of(muon(o)); },
     .has_momentum = true,
     .has_kahan = false,
     .groups = hidden_layers_apart},
};

std::string names_where(bool (*holds)(const NamedOptimizer& optimizer)) {
  std::string names;
  for (const NamedOptimizer& optimizer : kOptimizers)
    if (holds(optimizer)) names += std::string(names.empty() ? "" : ", ") + optimizer.name;
  return names;
}

const NamedOptimizer& named_optimizer(const TrainOptions& options) {
  for (const NamedOptimizer& optimizer : kOptimizers)
    if (options.optimizer == optimizer.name) return optimizer;
  fail("optimizer: expected one of ", names_where([](const NamedOptimizer&) { return true; }), ", got '",
       options.optimizer, "'");
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const NamedOptimizer& optimizer : kOptimizers) names.push_back(optimizer.name);
  return names;
}

void check_optimizer(const TrainOptions& options) {
  const NamedOptimizer& optimizer = named_optimizer(options);
  TERN_CHECK(!options.momentum || optimizer.has_momentum, "momentum is for the optimizers ",
             names_where([](const NamedOptimizer& o) { return o.has_momentum; }), ", not for ", optimizer.name);
  TERN_CHECK(!options.nesterov || optimizer.has_nesterov, "nesterov is for the optimizer ",
             names_where([](const NamedOptimizer& o) { return o.has_nesterov; }), ", not for ", optimizer.name);
  TERN_CHECK(!options.nesterov || options.momentum != 0.0, "nesterov needs a momentum above 0");
  TERN_CHECK(!options.kahan || optimizer.has_kahan, "kahan is not for the optimizer ", optimizer.name,
             ", which keeps fp32 master copies");
}

optim::Algorithm algorithm_of(const TrainOptions& options) {
  check_optimizer(options);
  return named_optimizer(options).make(options);
}

std::vector<optim::ParameterGroup> parameter_groups(const std::vector<NamedTensor>& parameters,
                                                    const TrainOptions& options) {
  return named_optimizer(options).groups(parameters, options);
}

}  // namespace tern::models
