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
#include <new>
#include <string>
#include <vector>

#include "tern/core/autograd/parameter.h"
#include "tern/nn/unknown_members.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC takes Module's operator delete for one that frees memory. It warns, where the derived class stands, of every
// class with another base before Module, and with -O2 of modules that come from new.
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace tern::nn {

class Module;

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
  std::vector<NamedTensor> buffers() const;
  /// Parameters and persistent buffers: handles to the live tensors, no copies.
  StateView state_dict() const;
  /// Copies `state` into the parameters and buffers; dtypes are converted. A shared tensor is accepted under any of its
  /// names (the first is used when several are present). Missing, unexpected and mis-shaped entries are listed in one
  /// Error, and then nothing is written.
  void load_state_dict(const StateView& state, const LoadOptions& options = {});
  /// The number of elements of parameters(), frozen ones included.
  int64_t num_parameters() const;

  /// Switches this module and all its descendants between training (the default) and evaluation.
  void train(bool mode = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  /// Drops the gradients of all parameters.
  void zero_grad();

  DType dtype() const { return options_.dtype; }
  Device device() const { return options_.device; }
  /// A shared handle: drawing from it changes no member of the module, so forward() may be const.
  Generator& generator() const { return options_.generator; }

  // ParameterOwner.
  void add_parameter(Parameter& parameter) override;
  void add_buffer(const std::string& name, const Tensor& buffer) override { add_buffer(name, buffer, true); }
  void add_buffer(const std::string& name, const Tensor& buffer, bool persistent);
  TensorOptions parameter_options() const override { return {options_.dtype, options_.device, false}; }
  Generator& parameter_generator() override { return options_.generator; }
  std::string qualified_name(const std::string& name) const override;

 protected:
  /// The scope of a member module. Names must be non-empty, unique within this module and free of dots.
  Scope sub(const std::string& name);

 private:
  friend class detail::MemberCheck;
  void check_new_name(const std::string& name) const;
  std::size_t object_size() const;
  void set_training(bool mode);

  mutable ScopeOptions options_;
  Module* parent_ = nullptr;
  std::string name_;
  std::vector<Member> members_;
  std::vector<Module*> children_;
  bool training_ = true;
  detail::ModuleOrigin origin_;
  mutable std::atomic<uint64_t> checked_ = 0;  // the number of modules at the last check
};

/// A registered tensor that is not trained (positions, running statistics), on its module's device. It is saved with
/// the state unless not persistent. Assign values with copy_; the tensor cannot be replaced.
class Buffer {
 public:
  Buffer(Module* owner, const std::string& name, const Tensor& value, bool persistent = true);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const Tensor& tensor() const { return tensor_; }
  operator const Tensor&() const { return tensor_; }  // NOLINT(google-explicit-constructor): a buffer is a tensor
  void copy_(const Tensor& source);

 private:
  Tensor tensor_;
};

struct SummaryOptions {
  int depth = 3;  // levels of modules below the root that get a separate line
};
/// A table of modules, parameters and buffers with types, shapes and counts, followed by the totals.
std::string summary(const Module& module, const SummaryOptions& options = {});

}  // namespace tern::nn
