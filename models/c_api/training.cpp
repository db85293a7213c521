// The C API's optimizers, training steps and checkpoints.

#include <cmath>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/parameter.h"
#include "tern/dist/loop/loop_state.h"
#include "tern/models/c_api/model.h"
#include "tern/models/c_api/ops.h"
#include "tern/models/trainer/trainer.h"
#include "tern/optim/adam.h"

namespace tern::models::c_api {
namespace {

constexpr int32_t kMostNumbers = 1024;  // of a checkpoint

/// Adam's moments, where the options have any.
void set_moments(optim::Algorithm& algorithm, const tern_optimizer_options& options) {
  if (options.beta1 == 0 && options.beta2 == 0 && options.eps == 0) return;
  auto* const rule = std::any_cast<kernels::AdamRule>(&algorithm.rule);
  require(rule != nullptr, "tern_optimizer_options.beta1, beta2 and eps are for adam and adamw, not for ",
          algorithm.name);
  const auto fraction = [](double value) { return value >= 0 && value < 1; };
  require(fraction(options.beta1) && fraction(options.beta2),
          "tern_optimizer_options.beta1 and beta2: expected numbers in [0, 1), got ", options.beta1, " and ",
          options.beta2);
  require(options.eps >= 0 && std::isfinite(options.eps), "tern_optimizer_options.eps: expected a number >= 0, got ",
          options.eps);
  if (options.beta1 != 0) algorithm.momentum = rule->beta1 = options.beta1;
  if (options.beta2 != 0) rule->beta2 = options.beta2;
  if (options.eps != 0) rule->eps = options.eps;
}

std::unique_ptr<optim::Optimizer> made_optimizer(const StateView& parameters, const tern_optimizer_options& options,
                                                 const std::string& hidden_layers) {
  require(options.size != 0, "options is NULL: an optimizer needs tern_optimizer_options.lr");
  require(std::isfinite(options.lr) && options.lr > 0, "tern_optimizer_options.lr: expected a number above 0, got ",
          options.lr);
  require(std::isfinite(options.weight_decay) && options.weight_decay >= 0,
          "tern_optimizer_options.weight_decay: expected a number >= 0, got ", options.weight_decay);
  TERN_CHECK(!parameters.empty(), "there is no parameter that requires a gradient");
  TrainOptions chosen{.lr = options.lr,
                      .weight_decay = options.weight_decay,
                      .nesterov = flag_of(options.nesterov, "tern_optimizer_options.nesterov"),
                      .hidden_layers = hidden_layers,
                      .kahan = flag_of(options.kahan, "tern_optimizer_options.kahan"),
                      .device = parameters.front().tensor.device()};
  if (options.name != nullptr) chosen.optimizer = options.name;
  if (flag_of(options.has_momentum, "tern_optimizer_options.has_momentum")) chosen.momentum = options.momentum;
  optim::Algorithm algorithm = algorithm_of(chosen);
  set_moments(algorithm, options);
  return std::make_unique<optim::Optimizer>(parameter_groups(parameters, chosen), algorithm);
}

StateView trained(const StateView& parameters) {
  StateView found;
  for (const NamedTensor& parameter : parameters)
    if (parameter.tensor.requires_grad()) found.push_back(parameter);
  return found;
}

optim::StepOptions step_options(const tern_step_options& options) {
  require(options.max_norm >= 0, "tern_step_options.max_norm: expected a number >= 0, got ", options.max_norm);
  return {.max_norm = options.max_norm,
          .skip_non_finite = flag_of(options.skip_non_finite, "tern_step_options.skip_non_finite")};
}

/// The tensors of a caller in a checkpoint.
struct ListState {
  StateView tensors;
  StateView state_dict() const { return tensors; }
  void load_state_dict(const StateView& state) const { load_state(tensors, state); }
};

/// Calls use(state) with the parts that there are. numbers: as LoopState reads and writes them.
template <class Use>
void with_loop_state(Call& call, tern_model* model, tern_tensors* tensors, tern_optimizer* optimizer,
                     std::vector<int64_t>& numbers, const Use& use) {
  dist::LoopState state;
  ListState list;
  if (model != nullptr) {
    SharedModel& shared = model_of(call, model);
    state.add("model", *shared.module);
    state.add("generator", shared.generator);
  }
  if (tensors != nullptr) {
    list.tensors = call.content(tensors, "tensors").tensors;
    state.add("tensors", list);
  }
  if (optimizer != nullptr) state.add("optimizer", *optimizer_of(call, optimizer).optimizer);
  for (size_t i = 0; i < numbers.size(); ++i) state.add("number." + std::to_string(i), numbers[i]);
  require(model != nullptr || tensors != nullptr || optimizer != nullptr || !numbers.empty(),
          "model, tensors, optimizer and numbers are all NULL: there is nothing to keep");
  use(state);
}

std::vector<int64_t> numbers_of(const int64_t* numbers, int32_t count) {
  require(count >= 0 && count <= kMostNumbers, "count: expected 0 to ", kMostNumbers, " numbers, got ", count);
  require(numbers != nullptr || count == 0, "numbers is NULL");
  return count == 0 ? std::vector<int64_t>() : std::vector<int64_t>(numbers, numbers + count);
}

}  // namespace

extern "C" {

tern_code tern_optimizer_new(tern_model* model, const tern_optimizer_options* options, tern_optimizer** optimizer,
                             tern_status* status) {
  return return_handle("tern_optimizer_new", optimizer, status, [&](Call& call) {
    const tern_optimizer_options chosen = options_of(options, "tern_optimizer_options");
    const SharedModel& shared = model_of(call, model);
    auto made = std::make_unique<OptimizerHandle>();
    made->model = call.content(model, "model").model;
    const Model* const family = shared.family_model();
    made->optimizer =
        made_optimizer(trained(shared.module->parameters()), chosen, family != nullptr ? family->hidden_layers() : "");
    return made;
  });
}
tern_code tern_optimizer_new_for(tern_tensors* parameters, const tern_optimizer_options* options,
                                 tern_optimizer** optimizer, tern_status* status) {
  return return_handle("tern_optimizer_new_for", optimizer, status, [&](Call& call) {
    const tern_optimizer_options chosen = options_of(options, "tern_optimizer_options");
    const StateView& tensors = call.content(parameters, "parameters").tensors;
    for (const NamedTensor& parameter : tensors)
      TERN_CHECK(parameter.tensor.requires_grad(), "the tensor '", parameter.name,
                 "' requires no gradient: call tern_tensor_set_requires_grad(tensor, 1, ...)");
    auto made = std::make_unique<OptimizerHandle>();
    made->optimizer = made_optimizer(tensors, chosen, "");
    return made;
  });
}
tern_code tern_optimizer_free(tern_optimizer* optimizer) {
  return free_handle("tern_optimizer_free", optimizer, "optimizer");
}

tern_code tern_optimizer_step(tern_optimizer* optimizer, const tern_step_options* options, tern_step_result* result,
                              tern_status* status) {
  return run_call("tern_optimizer_step", status, [&](Call& call) {
    const optim::StepOptions chosen = step_options(options_of(options, "tern_step_options"));
    options_of(result, "tern_step_result");
    const optim::StepResult found = optimizer_of(call, optimizer).optimizer->step(chosen);
    if (result == nullptr) return;
    const bool measured = chosen.max_norm > 0 || chosen.skip_non_finite;
    result->skipped = measured && found.skipped() ? 1 : 0;
    result->grad_norm = measured ? found.grad_norm() : 0;
  });
}
tern_code tern_optimizer_zero_grad(tern_optimizer* optimizer, tern_status* status) {
  return run_call("tern_optimizer_zero_grad", status,
                  [&](Call& call) { optimizer_of(call, optimizer).optimizer->zero_grad(); });
}
tern_code tern_optimizer_set_lr(tern_optimizer* optimizer, double lr, tern_status* status) {
  return run_call("tern_optimizer_set_lr", status,
                  [&](Call& call) { optimizer_of(call, optimizer).optimizer->set_lr(lr); });
}
tern_code tern_optimizer_lr(tern_optimizer* optimizer, double* lr, tern_status* status) {
  return return_value("tern_optimizer_lr", lr, status,
                      [&](Call& call) { return optimizer_of(call, optimizer).optimizer->lr(); });
}
tern_code tern_optimizer_state(tern_optimizer* optimizer, tern_tensors** list, tern_status* status) {
  return return_handle("tern_optimizer_state", list, status, [&](Call& call) {
    auto made = std::make_unique<TensorList>();
    for (const NamedTensor& entry : optimizer_of(call, optimizer).optimizer->state_dict())
      made->tensors.push_back({entry.name, entry.tensor.clone()});  // the optimizer may replace its own at a step
    return made;
  });
}

tern_code tern_model_train_step(tern_model* model, tern_optimizer* optimizer, tern_tensor* const* inputs,
                                int32_t input_count, int32_t loss, tern_tensor* target,
                                const tern_loss_options* loss_options, const tern_step_options* options, double* value,
                                tern_status* status) {
  return run_call("tern_model_train_step", status, [&](Call& call) {
    const SharedModel& shared = model_of(call, model);
    const OptimizerHandle& updated = optimizer_of(call, optimizer);
    require(!updated.model || updated.model.get() == &shared, "the optimizer was made for another model");
    const tern_loss_options of_loss = options_of(loss_options, "tern_loss_options");
    require(of_loss.reduction != TERN_REDUCE_NONE,
            "tern_loss_options.reduction: a step needs one number, the mean or sum");
    const optim::StepOptions of_step = step_options(options_of(options, "tern_step_options"));
    const std::vector<Tensor> given = call.tensors(inputs, input_count, "inputs", true);
    const Tensor& wanted = call.tensor(target, "target");
    const GradMode recording(true);
    Tensor found;
    try {
      const Tensor prediction = shared.run(given).front();
      found = loss_result(loss, prediction, wanted, of_loss);
      found.backward();
      updated.optimizer->step(of_step);
    } catch (...) {
      updated.optimizer->zero_grad();
      shared.module->zero_grad();
      throw;
    }
    updated.optimizer->zero_grad();
    shared.module->zero_grad();
    if (value != nullptr) *value = found.item<double>();
  });
}

tern_code tern_checkpoint_save(const char* path, tern_model* model, tern_tensors* tensors, tern_optimizer* optimizer,
                               const int64_t* numbers, int32_t count, tern_status* status) {
  return run_call("tern_checkpoint_save", status, [&](Call& call) {
    std::vector<int64_t> kept = numbers_of(numbers, count);
    const std::string to = text_of(path, "path");
    with_loop_state(call, model, tensors, optimizer, kept, [&](dist::LoopState& state) { state.save(to); });
  });
}
tern_code tern_checkpoint_load(const char* path, tern_model* model, tern_tensors* tensors, tern_optimizer* optimizer,
                               int64_t* numbers, int32_t count, tern_status* status) {
  return run_call("tern_checkpoint_load", status, [&](Call& call) {
    std::vector<int64_t> kept = numbers_of(numbers, count);
    const std::string from = text_of(path, "path");
    with_loop_state(call, model, tensors, optimizer, kept, [&](dist::LoopState& state) { state.load(from); });
    std::copy(kept.begin(), kept.end(), numbers);
  });
}

}  // extern "C"
}  // namespace tern::models::c_api
