#pragma once
// What all optimizers have in common: parameter groups, state, the step with clipping and the non-finite check folded
// in. What differs is an Algorithm.
//
//   optim::AdamW optimizer(net.parameters(), {.lr = 3e-4});
//   loss.backward();
//   const optim::StepResult result = optimizer.step({.max_norm = 1.0, .skip_non_finite = true});
//   optimizer.zero_grad();

#include <any>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/autograd/parameter.h"
#include "tern/core/ops/tensor/transfer.h"
#include "tern/kernels/optimizer/optimizer.h"

namespace tern::optim {

struct GroupState;

/// What a rule of whole parameters, made of ops, is given and changes, in fp32 (fp64 for fp64 weights), with gradients
/// off.
struct WholeParameter {
  std::string name;
  Tensor weight;               // is replaced by the new weight
  Tensor gradient;             // multiplied by all factors (clipping, loss scale, sign)
  std::vector<Tensor> states;  // are replaced too; undefined where the parameter does not keep one
  Tensor count;                // float64 without dimensions, on the device: the number of this update, from 1
};

/// What an optimizer does with its parameters: algorithm_of() in optim/rule_optimizer.h makes one of an options struct.
struct Algorithm {
  const char* name = "";  // for messages; a literal
  double lr = 0, weight_decay = 0;
  bool master_weights = true;  // 16-bit weights are updated through fp32 copies, made at their first update
  bool kahan = false;          // bf16 weights with a bf16 compensation each instead
  bool capturable = false;     // learning rates on the device
  bool needs_whole = false;    // a step depends on norms or products of whole parameters
  struct State {
    std::string name;
    int index = 0;       // in kernels::OptimizerTensor::states
    double initial = 0;  // its value before the first update
    /// Its shape for a parameter of this shape, if that keeps one; null: the parameter's.
    std::function<std::optional<Shape>(const Shape& parameter)> shape = {};
  };
  std::vector<State> states;            // of each parameter
  std::any rule;                        // the rule's struct, for update
  std::optional<double> momentum = {};  // its momentum or beta1, which schedules may cycle; none if it has neither
  /// Calls the kernel. A tensor's `group` indexes the groups.
  std::function<void(kernels::Stream stream, const std::vector<GroupState>& groups,
                     const std::vector<kernels::OptimizerTensor>& tensors, const kernels::OptimizerStep& step)>
      update;
  /// Instead of update, for a rule that is made of ops: replaces the weights and the states of a group's parameters,
  /// whose results must not depend on which others there are. It must not wait for the device.
  std::function<void(const GroupState& group, std::vector<WholeParameter>& parameters)> whole = {};
};

/// Parameters that share hyper-parameters; what is not given is the optimizer's.
struct ParameterGroup {
  std::vector<NamedTensor> parameters = {};
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
  /// All hyper-parameters at once: algorithm_of(AdamWOptions{.beta2 = 0.95}) in a group of an AdamW. The options
  /// master_weights, kahan and capturable must be those of the optimizer. lr and weight_decay above take precedence.
  std::optional<Algorithm> algorithm = {};
};

/// Two groups: matrices and larger with this weight decay, biases and norm weights (one dimension or none) without.
std::vector<ParameterGroup> no_decay_groups(const std::vector<NamedTensor>& parameters, double weight_decay);
/// The parameters of several modules for one optimizer, named "ROOT.NAME": join_parameters({{"generator",
/// generator.parameters()}, {"critic", critic.parameters()}}).
std::vector<NamedTensor> join_parameters(const std::vector<std::pair<std::string, std::vector<NamedTensor>>>& roots);

/// The groups as they stand: names and rates to look at.
struct GroupState {
  std::vector<NamedTensor> parameters;
  double base_lr = 0;  // what schedules scale
  double lr = 0;
  double weight_decay = 0;
  std::optional<double> momentum = {};   // as Algorithm's
  std::any rule = {};                    // as Algorithm's; the numbers above replace its own
  std::vector<Algorithm::State> states;  // as Algorithm's
};

struct StepOptions {
  double max_norm = 0;  // > 0: gradients are scaled by min(1, max_norm / (norm + 1e-6)); infinity only measures
  bool skip_non_finite = false;  // a gradient with a NaN or infinity leaves weights and state as they are
  Tensor inverse_scale = {};  // float32, one element: gradients are multiplied by it on the fly (GradScaler); absent: 1
  Tensor earlier_norm = {};   // gradient_norm() of the gradients at an earlier time: non-finite ones count as today's
};

/// What a step found. The numbers stay on the device: reading one waits for it, so read late or not at all.
class StepResult {
 public:
  /// Norm of all gradients before clipping, times inverse_scale. Throws Error when the step had neither max_norm nor
  /// skip_non_finite.
  double grad_norm() const;
  /// True when the update was left out because of a gradient that is not finite.
  bool skipped() const;
  /// Name of the first parameter whose gradient has a NaN or infinity; empty when there is none. Throws like
  /// grad_norm().
  std::string first_non_finite() const;
  /// The loss scale that the gradients carried; 1 without a scaler.
  double loss_scale() const;
  /// The same numbers on their way to the host: a later step does not change them, and reading them waits for this step
  /// alone.
  StepResult fetch() const;
  /// True when fetched numbers have arrived: reading them does not wait.
  bool ready() const { return !arrival_ || arrival_->ready(); }

 private:
  friend class EMA;
  friend class Optimizer;
  friend class GradScaler;
  void wait() const;
  Tensor inverse_scale_;                     // as it was at the step
  Tensor norm_;                              // a kernels::GradientNorm; undefined when it was not requested
  Tensor earlier_;                           // StepOptions::earlier_norm
  std::shared_ptr<const HostCopy> arrival_;  // of fetched numbers
  bool skips_ = false;
  std::vector<int32_t> parameters_;  // that the norm was taken over
  std::shared_ptr<const std::vector<std::string>> names_;
};

class Optimizer {
 public:
  /// Throws Error when there are no parameters, when one is given twice, is not a contiguous floating leaf or is on
  /// another device than the first, and for kahan with master_weights or with a parameter that is not bf16.
  Optimizer(const std::vector<ParameterGroup>& groups, const Algorithm& algorithm);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient. The others, and their state, stay as they are. State follows
  /// weights that nn::Module::to(dtype) has converted: its numbers are converted too, and 16-bit weights get fp32
  /// copies or lose them. Throws Error when weights have been moved to another device than their state, and for kahan
  /// when they are no bf16 any more.
  StepResult step(const StepOptions& options = {});
  /// Drops all gradients.
  virtual void zero_grad();
  /// A kernels::GradientNorm of the gradients as they are now, on the device.
  Tensor gradient_norm();

  /// The algorithm's name, "adamw".
  const char* name() const { return algorithm_.name; }
  const std::vector<GroupState>& param_groups() const { return groups_; }
  /// The learning rate of the first group.
  double lr() const { return groups_.front().lr; }
  /// Sets the base rate of every group (and the rate itself). Throws Error unless finite and >= 0. With the option
  /// capturable the rates are also copied to the device, in the order of the stream, where step() reads them.
  void set_lr(double lr);
  /// Every group's rate becomes its base rate times factor: for schedules.
  void set_lr_factor(double factor);
  /// The rate of each group; the base rates stay. Throws Error unless there is one finite number >= 0 for each group.
  void set_group_lr(const std::vector<double>& lr);
  /// The momentum, or beta1, of each group. Throws Error unless there is a number in (0, 1) for each group, when a
  /// group has none or was made with 0 (it may lack the state), and with the option capturable: it is part of a
  /// captured step.
  void set_group_momentum(const std::vector<double>& momentum);

  /// One more group, whose parameters begin with no state. Throws Error like the constructor, then nothing has changed,
  /// and with the option capturable after the first step, because a captured step would not update the group.
  virtual void add_param_group(const ParameterGroup& group);

  /// For every parameter: "step.<name>" (int64, updates done) and what the algorithm keeps: "exp_avg.<name>", ...,
  /// "master.<name>", "compensation.<name>". The same names at any time; handles on live tensors, to be used before the
  /// next step.
  virtual StateView state_dict() const;
  /// Missing, unexpected and mis-shaped entries are listed in one Error, and nothing is written then.
  virtual void load_state_dict(const StateView& state);
  /// Bytes of the state that there is now: master copies and compensation too, and zero before the first step.
  int64_t state_bytes() const;
  /// Bytes of the state that a parameter gets: by its group, or for a tensor that is in none by the optimizer's
  /// algorithm.
  int64_t state_bytes_of(const Tensor& parameter) const;

 protected:
  // What differs for an optimizer that shares its work with other processes, which take the same steps
  // (dist/gradients/sharded_optimizer.h): its parameters are parts of larger ones, or it updates some and gets the
  // others.
  /// A kernels::GradientNorm of these gradients. `parameters`: whose they are, by their place in param_groups(),
  /// counted through.
  virtual Tensor norm_of(const std::vector<Tensor>& gradients, const std::vector<int32_t>& parameters);
  /// Parameters of equal number are updated together, smaller numbers first.
  virtual int64_t bucket_of(int32_t /*parameter*/) const { return 0; }
  /// The update of all parameters with this number is queued.
  virtual void on_updated(int64_t /*bucket*/) {}
  /// That of all parameters is.
  virtual void on_step_end() {}
  /// Whether this process updates the parameter and keeps its state; of the others it counts the updates alone.
  virtual bool is_own(int32_t /*parameter*/) const { return true; }
  /// A parameter's entries of the whole state_dict(). Where is_own() is false only the count of updates is right.
  StateView state_of(int32_t parameter) const;

 private:
  /// One parameter and its state.
  struct Slot {
    std::string name;
    Tensor weight;
    int32_t group = 0;
    DType dtype = DType::kFloat32;  // of the weight when the state was made
    std::vector<Tensor> states;     // as its group's; empty until the first gradient
    Tensor master;                  // 16-bit weights with master_weights only
    Tensor compensation;            // with kahan only
    bool started() const { return step.defined(); }
    // Updates done: int64 [1], one tensor for all parameters of a bucket that were always updated together.
    Tensor step;
  };

  /// What there is of them, contiguous, and whose.
  struct Gradients {
    std::vector<Tensor> tensors;
    std::vector<int32_t> parameters;
  };

  void check_kind(const Algorithm& algorithm) const;
  /// The parameters of a group to be appended, checked.
  std::vector<Slot> slots_of(const ParameterGroup& group) const;
  void append_group(const ParameterGroup& group);
  void on_groups_changed();
  Gradients gradients() const;
  bool wants_master(const Tensor& weight) const;
  void check_kahan(const Slot& slot) const;
  const std::vector<Algorithm::State>& states_of(const Slot& slot) const {
    return groups_[static_cast<size_t>(slot.group)].states;
  }
  /// A slot like this one with a count of 0 and the state's initial values, on the device.
  Slot fresh(const Slot& slot, Device device) const;
  /// A slot with a state, for the type that the weight has now.
  Slot converted(const Slot& slot) const;
  /// The slot with the initial values where it has no state yet, and with a state that fits the weight.
  Slot completed(int32_t parameter) const;
  void follow_device();
  void prepare(const std::vector<int32_t>& active);
  kernels::OptimizerTensor describe(const Slot& slot, const Tensor& gradient) const;
  void run_updates(const Gradients& gradients, kernels::OptimizerStep step);
  void run_whole_updates(const Gradients& gradients, const StepOptions& options, const StepResult& result);
  void append_state(const Slot& slot, StateView& state) const;
  void check_steps(const StateView& state) const;
  void share_steps();
  void send_rates();

  const Algorithm algorithm_;
  std::vector<GroupState> groups_;
  Tensor rates_;        // capturable: of each group, float64 on the device
  Tensor norm_ticket_;  // gradient_norm's
  std::vector<Slot> slots_;
  std::shared_ptr<const std::vector<std::string>> names_;
};

namespace detail {
/// Throws Error "adamw: lr must be ..., got ..." unless value is finite and >= 0.
void check_not_negative(const char* optimizer, const char* option, double value);
/// ... unless value is in [0, 1).
void check_fraction(const char* optimizer, const char* option, double value);
/// ... unless value is in [0, 1].
void check_share(const char* optimizer, const char* option, double value);
}  // namespace detail

}  // namespace tern::optim
