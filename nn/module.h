#pragma once
// Module: a node of the tree of parameters. Declaring a member registers it, so it cannot be forgotten:
//
//   class FeedForward final : public nn::Module {
//    public:
//     FeedForward(const nn::Scope& s, int64_t d, int64_t hidden)
//         : Module(s), lin1_(sub("lin1"), d, hidden), lin2_(sub("lin2"), hidden, d) {}
//     Tensor forward(const Tensor& x) const { return lin2_.forward(gelu(lin1_.forward(x))); }
//
//    private:
//     nn::Linear lin1_, lin2_;
//   };
//
// Modules cannot be copied or moved, so that addresses and names stay valid. A member made from another scope than
// sub("name") is an error when the parameters or the state of the module are requested, and in train().

#include <atomic>
#include <concepts>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tern/core/autograd/grad_mode.h"
#include "tern/core/autograd/parameter.h"
#include "tern/core/autograd/place.h"
#include "tern/nn/unknown_members.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC takes Module's operator delete for one that frees memory. It warns, where the derived class stands, of every
// class with another base before Module, and with -O2 of modules that come from new.
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace tern::nn {

class Module;

/// What runs before and after a module's forward. x: its first argument; y: its result. A hook that returns a tensor
/// replaces x or y by it; one that returns an undefined tensor leaves it as it is.
using ForwardPreHook = std::function<Tensor(const Module& module, const Tensor& x)>;
using ForwardHook = std::function<Tensor(const Module& module, const Tensor& x, const Tensor& y)>;

/// The entries of a state_dict() that are wanted, and their names.
struct StateOptions {
  std::string prefix = {};    // is put in front of every name
  std::string pattern = "*";  // of the names without prefix
};

/// Device and dtype of the parameters of new modules, and the generator of initial values and dropout masks.
struct ScopeOptions {
  Device device = {};
  DType dtype = DType::kFloat32;
  Generator generator = default_generator();
};

/// The place of a new module in the tree: the first argument of every module's constructor. The user creates the scope
/// of the root, nn::Scope({.device = device, .generator = Generator(42)}); a module creates those of its members with
/// sub("name"). One scope may serve several roots; a root that another one points to must be made before that one, or
/// from another scope (nn/unknown_members.h).
class Scope {
 public:
  Scope() : Scope(ScopeOptions{}) {}
  /// Throws Error when the device cannot be used or dtype is not a floating type.
  explicit Scope(const ScopeOptions& options);

 private:
  friend class Module;
  ScopeOptions options_;
  Module* parent_ = nullptr;
  std::string name_;
  detail::ScopeIdentity identity_;
};

class Module : public ParameterOwner {
 public:
  /// A parameter or buffer of this module, without those of its children.
  struct Member {
    std::string name;
    Tensor tensor;
    bool is_parameter = false;
    bool persistent = true;
    std::shared_ptr<Tensor> handle = {};  // what forward() reads: functional_call() replaces it for a time
  };

  /// Throws Error when the parent already has a member with this name.
  explicit Module(const Scope& scope);
  ~Module() override;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  /// Called by `delete` for a module of any class, with the size of that class, which object_size() needs. Derived
  /// classes must not declare operator delete.
  static void operator delete(Module* module, std::destroying_delete_t, std::size_t size);
  static void operator delete(Module* module, std::destroying_delete_t, std::size_t size, std::align_val_t alignment);

  /// Full name, from the root: "encoder.layer.0"; empty for a root.
  const std::string& name() const { return name_; }
  /// The last part of name(): "0".
  std::string local_name() const;
  /// The class without namespaces and template arguments: "Linear".
  std::string type_name() const;
  const std::vector<Module*>& children() const { return children_; }
  const std::vector<Member>& members() const { return members_; }
  /// The module that has this one as a member; null for a root.
  const Module* parent() const { return parent_; }

  // Names in these lists are relative to this module; its direct members come before those of its children. A tensor
  // that several modules share is listed once, under its first name. These functions and train() throw Error when a
  // member of this module or of a descendant was not made with sub("name").
  std::vector<NamedTensor> parameters() const;
  /// Those of which a name matches the pattern, as a shell matches it: * any characters, dots too, ? one, [ab] a set.
  std::vector<NamedTensor> parameters(const std::string& pattern) const;
  std::vector<NamedTensor> buffers() const;
  /// Parameters and persistent buffers: handles to the live tensors, no copies.
  StateView state_dict(const StateOptions& options = {}) const;
  /// Copies `state` into the parameters and buffers; dtypes are converted. A shared tensor is accepted under any of its
  /// names (the first is used when several are present). Missing, unexpected and mis-shaped entries are listed in one
  /// Error; nothing is written then.
  void load_state_dict(const StateView& state, const LoadOptions& options = {});
  /// The number of elements of parameters(), frozen ones included.
  int64_t num_parameters() const;

  /// Switches this module and all its descendants between training (the default) and evaluation.
  void train(bool mode = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  /// Drops the gradients of all parameters.
  void zero_grad();
  /// Sets requires_grad of the parameters that match the pattern, see parameters(pattern), and returns their number.
  /// Throws Error when there is none. A frozen parameter loses its gradient, so that no optimizer changes it.
  int64_t freeze(const std::string& pattern = "*") { return require_grad(pattern, false); }
  int64_t unfreeze(const std::string& pattern = "*") { return require_grad(pattern, true); }

  /// Calls function for every descendant and then for this module, children before their parent.
  void apply(const std::function<void(Module&)>& function);
  /// Moves all parameters, buffers and gradients, of which every handle stays valid; modules made later are there too.
  /// A graph recorded before cannot be run backward. Make optimizers, averages and DataParallel afterwards: they throw
  /// Error when their state is elsewhere. Tensors that a module keeps elsewhere stay where they are.
  void to(Device device);
  /// The same, converting floating tensors. The state of optimizers and averages follows when it is used next. Throws
  /// Error when dtype is not a floating type.
  void to(DType dtype);
  /// Takes values, gradients, requires_grad, modes and hooks from a module whose tree has the same names, shapes, types
  /// and devices. Throws Error where it has not, and then nothing is written.
  void copy_from(const Module& source);

  // Hooks run in the order of registration, in forward() of this module, also where another module calls it; results
  // are passed from one to the next. They are run by the layers of nn and by modules whose forward() calls hooked(). A
  // step of a RowChain with hooks is computed by itself. The number that is returned removes a hook.
  int64_t register_forward_pre_hook(ForwardPreHook hook);
  int64_t register_forward_hook(ForwardHook hook);
  void remove_hook(int64_t handle);
  bool has_hooks() const { return hooks_ != nullptr; }

  DType dtype() const { return options_.dtype; }
  Device device() const { return options_.device; }
  /// A shared handle: drawing from it changes no member of the module, so forward() may be const.
  Generator& generator() const { return options_.generator; }

  // ParameterOwner.
  void add_parameter(Parameter& parameter) override;
  void add_buffer(const std::string& name, const Tensor& buffer) override {
    add_buffer(name, std::make_shared<Tensor>(buffer), true);
  }
  void add_buffer(const std::string& name, const std::shared_ptr<Tensor>& buffer, bool persistent);
  TensorOptions parameter_options() const override { return {options_.dtype, options_.device, false}; }
  Generator& parameter_generator() override { return options_.generator; }
  std::string qualified_name(const std::string& name) const override;

 protected:
  /// The scope of a member module. Names must be non-empty, unique within this module and free of dots.
  Scope sub(const std::string& name);
  /// For copy_from(): takes what a module of the same class keeps besides members, modes and hooks.
  virtual void copy_own_from(const Module&) {}
  /// body(x) between the hooks: what a forward() with one result returns. An Error then ends with the module's name.
  template <class Body>
  Tensor hooked(const Tensor& x, const Body& body) const {
    std::optional<tern::detail::InModule> place;
    if (anomaly_mode() != Anomaly::kOff) place.emplace(name_);
    try {
      if (!hooks_) return body(x);
      const Tensor given = after_pre_hooks(x);
      return after_hooks(given, body(given));
    } catch (const Error& error) {
      rethrow_with_name(error);
    }
  }

 private:
  friend class detail::MemberCheck;
  struct Hooks {  // with their numbers
    std::vector<std::pair<int64_t, ForwardPreHook>> before = {};
    std::vector<std::pair<int64_t, ForwardHook>> after = {};
  };
  void check_new_name(const std::string& name) const;
  std::size_t object_size() const;
  void set_training(bool mode);
  int64_t require_grad(const std::string& pattern, bool value);
  template <class Convert>
  void convert(const Convert& convert);
  Tensor after_pre_hooks(const Tensor& x) const;
  Tensor after_hooks(const Tensor& x, const Tensor& y) const;
  void copy_modes_from(const Module& source);
  [[noreturn]] void rethrow_with_name(const Error& error) const;

  mutable ScopeOptions options_;
  Module* parent_ = nullptr;
  std::string name_;
  std::vector<Member> members_;
  std::vector<Module*> children_;
  bool training_ = true;
  std::unique_ptr<Hooks> hooks_;  // null without hooks
  detail::ModuleOrigin origin_;
  mutable std::atomic<uint64_t> checked_ = 0;  // the number of modules at the last check
};

/// A new module with the values, gradients, requires_grad, modes and hooks of `source`, which shares nothing with it.
/// args: those of M's constructor after the scope, with which source was made. Device, dtype and the generator's state
/// are source's. Throws Error when the new tree has other names or shapes than source's, which may have adapters.
template <std::derived_from<Module> M, class... Args>
std::unique_ptr<M> clone(const M& source, const Args&... args) {
  Generator generator(source.generator().seed());
  auto copy =
      std::make_unique<M>(Scope({.device = source.device(), .dtype = source.dtype(), .generator = generator}), args...);
  copy->copy_from(source);
  generator.set_offset(source.generator().offset());
  return copy;
}

/// Whether the whole name matches the pattern, see Module::parameters(pattern).
bool matches_pattern(const std::string& name, const std::string& pattern);

/// The entries whose names begin with prefix, without it: what a part of a model loads.
StateView without_prefix(const StateView& state, const std::string& prefix);

/// A registered tensor that is not trained (positions, running statistics), on its module's device. It is saved with
/// the state unless not persistent. Assign values with copy_; only functional_call() replaces the tensor.
class Buffer {
 public:
  Buffer(Module* owner, const std::string& name, const Tensor& value, bool persistent = true);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const Tensor& tensor() const { return *tensor_; }
  operator const Tensor&() const { return *tensor_; }  // NOLINT(google-explicit-constructor): a buffer is a tensor
  void copy_(const Tensor& source);

 private:
  std::shared_ptr<Tensor> tensor_;
};

struct SummaryOptions {
  int depth = 3;  // levels of modules below the root that get a separate line
};
/// A table of modules, parameters and buffers with types, shapes and counts, followed by the totals.
std::string summary(const Module& module, const SummaryOptions& options = {});
/// The same with two more columns: the shape of each module's last result, and its floating-point operations in one
/// call of run, which calls module.forward(). Operations are those of matrix products and what else the profiler counts
/// (core/profiler/profiler.h); a multiplication and an addition are two, so that they are twice the mult-adds of fvcore
/// and torchinfo. Modules whose forward() does not run hooks have no shape. Throws Error while a profiler runs.
std::string summary(Module& module, const std::function<void()>& run, const SummaryOptions& options = {});

}  // namespace tern::nn
