#include "tern/nn/module.h"

#include <cxxabi.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "tern/core/autograd/grad_mode.h"

namespace tern::nn {
namespace {

/// An Error whose message names the module in which it was thrown.
class ErrorInModule : public Error {
 public:
  using Error::Error;
};

using Visitor = std::function<void(const std::string& name, const Module::Member& member)>;

void visit(const Module& module, const std::string& prefix, const Visitor& visitor) {
  for (const Module::Member& member : module.members()) visitor(prefix + member.name, member);
  for (const Module* child : module.children()) visit(*child, prefix + child->local_name() + ".", visitor);
}

/// Collects the members below a module that satisfy the predicate, each tensor once.
template <class Predicate>
std::vector<NamedTensor> collect(const Module& module, Predicate wanted) {
  detail::MemberCheck::run(module);
  std::vector<NamedTensor> found;
  std::unordered_set<const tern::detail::TensorImpl*> seen;
  visit(module, "", [&](const std::string& name, const Module::Member& member) {
    if (wanted(name, member) && seen.insert(member.tensor.impl()).second) found.push_back({name, member.tensor});
  });
  return found;
}

thread_local bool asks_for_size = false;
thread_local std::size_t size_of_object = 0;

template <class... Alignment>
void delete_module(Module* module, std::size_t size, Alignment... alignment) {
  if (asks_for_size) {
    size_of_object = size;
    return;
  }
  void* const memory = dynamic_cast<void*>(module);
  module->~Module();
  ::operator delete(memory, alignment...);
}

std::string display(const std::string& name) { return name.empty() ? "the root module" : "module '" + name + "'"; }

}  // namespace

Scope::Scope(const ScopeOptions& options) : options_(options) {
  require_available(options.device);
  TERN_CHECK(is_floating(options.dtype), "nn::Scope: parameters need a floating dtype, got ", name_of(options.dtype));
}

Module::Module(const Scope& scope) : options_(scope.options_), parent_(scope.parent_), origin_(scope.identity_) {
  if (parent_ != nullptr) {
    parent_->check_new_name(scope.name_);
    name_ = parent_->qualified_name(scope.name_);
    training_ = parent_->training_;
    parent_->children_.push_back(this);
  }
  detail::MemberCheck::enter(*this);
}

Module::~Module() {
  // Only an operator delete of a derived class leads here. The object is lost: the program ends with this message.
  if (asks_for_size) fail("nn: a class derived from Module must not declare operator delete; name '", name_, "'");
  detail::MemberCheck::leave(*this);
  for (Module* child : children_) child->parent_ = nullptr;  // a child on the heap may outlive its parent
  if (parent_ != nullptr) std::erase(parent_->children_, this);
}

void Module::operator delete(Module* module, std::destroying_delete_t, std::size_t size) {
  delete_module(module, size);
}
void Module::operator delete(Module* module, std::destroying_delete_t, std::size_t size, std::align_val_t alignment) {
  delete_module(module, size, alignment);
}

/// Only the compiler knows the size of the object's class and passes it where the object is deleted. With a destroying
/// operator delete, `delete` itself destroys nothing, so that it can be used to get the size.
std::size_t Module::object_size() const {
  asks_for_size = true;
  delete this;
  asks_for_size = false;
  return size_of_object;
}

std::string Module::local_name() const {
  const size_t dot = name_.rfind('.');
  return dot == std::string::npos ? name_ : name_.substr(dot + 1);
}

std::string Module::type_name() const {
  const char* mangled = typeid(*this).name();
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? text.get() : mangled;
  name = name.substr(0, name.find('<'));
  const size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

std::string Module::qualified_name(const std::string& name) const { return name_.empty() ? name : name_ + "." + name; }

Scope Module::sub(const std::string& name) {
  Scope scope(options_);
  scope.parent_ = this;
  scope.name_ = name;
  return scope;
}

void Module::check_new_name(const std::string& name) const {
  TERN_CHECK(!name.empty() && name.find('.') == std::string::npos, "nn: '", name, "' cannot name a member of ",
             display(name_), ": a name is not empty and has no dots");
  const bool taken =
      std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.name == name; }) ||
      std::any_of(children_.begin(), children_.end(), [&](Module* m) { return m->local_name() == name; });
  TERN_CHECK(!taken, "nn: ", display(name_), " already has a member named '", name,
             "'; parameters, buffers and sub-modules of one module need different names, and '", name,
             "' makes its own members with its own sub(\"name\"), not from the scope that it was given");
}

void Module::add_parameter(Parameter& parameter) {
  const std::string name = parameter.name().substr(name_.empty() ? 0 : name_.size() + 1);  // name() is the full name
  check_new_name(name);
  members_.push_back({name, parameter.tensor(), true, true, parameter.handle()});
}

void Module::add_buffer(const std::string& name, const std::shared_ptr<Tensor>& buffer, bool persistent) {
  check_new_name(name);
  TERN_CHECK(buffer->defined(), "nn: buffer '", qualified_name(name), "' is an undefined tensor");
  members_.push_back({name, *buffer, false, persistent, buffer});
}

std::vector<NamedTensor> Module::parameters() const {
  return collect(*this, [](const std::string&, const Member& member) { return member.is_parameter; });
}

std::vector<NamedTensor> Module::buffers() const {
  return collect(*this, [](const std::string&, const Member& member) { return !member.is_parameter; });
}

bool matches_pattern(const std::string& name, const std::string& pattern) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::vector<NamedTensor> Module::parameters(const std::string& pattern) const {
  return collect(*this, [&](const std::string& name, const Member& member) {
    return member.is_parameter && matches_pattern(name, pattern);
  });
}

StateView Module::state_dict(const StateOptions& options) const {
  StateView state = collect(*this, [&](const std::string& name, const Member& member) {
    return member.persistent && matches_pattern(name, options.pattern);
  });
  for (NamedTensor& entry : state) entry.name = options.prefix + entry.name;
  return state;
}

void Module::load_state_dict(const StateView& state, const LoadOptions& options) {
  std::unordered_map<const tern::detail::TensorImpl*, std::string> first_names;
  std::unordered_map<std::string, std::string> aliases;  // maps further names of a shared tensor to its first name
  visit(*this, "", [&](const std::string& name, const Member& member) {
    const auto [entry, is_new] = first_names.emplace(member.tensor.impl(), name);
    if (member.persistent && !is_new) aliases.emplace(name, entry->second);
  });

  std::set<std::string> given;
  for (const NamedTensor& entry : state) given.insert(entry.name);
  StateView source;
  for (const NamedTensor& entry : state) {
    const auto alias = aliases.find(entry.name);
    if (alias == aliases.end())
      source.push_back(entry);
    else if (given.insert(alias->second).second)
      source.push_back({alias->second, entry.tensor});
  }
  load_state(state_dict(), source, options);
}

int64_t Module::num_parameters() const {
  int64_t count = 0;
  for (const NamedTensor& parameter : parameters()) count += parameter.tensor.numel();
  return count;
}

void Module::train(bool mode) {
  detail::MemberCheck::run(*this);
  set_training(mode);
}

void Module::set_training(bool mode) {
  training_ = mode;
  for (Module* child : children_) child->set_training(mode);
}

/// Within a catch block. An Error that has a name already, and those derived from Error, pass unchanged.
void Module::rethrow_with_name(const Error& error) const {
  if (typeid(error) != typeid(Error)) throw;
  throw ErrorInModule(error.what() + ("; in " + type_name()) + (name_.empty() ? "" : " '" + name_ + "'"));
}

void Module::zero_grad() {
  for (NamedTensor& parameter : parameters()) parameter.tensor.set_grad({});
}

Buffer::Buffer(Module* owner, const std::string& name, const Tensor& value, bool persistent)
    : tensor_(std::make_shared<Tensor>(value.defined() ? value.detach().to(owner->device()) : Tensor())) {
  owner->add_buffer(name, tensor_, persistent);
}

void Buffer::copy_(const Tensor& source) {
  TERN_CHECK(source.shape() == tensor_->shape(), "nn::Buffer::copy_: expected ", tensor_->shape(), ", got ",
             source.shape());
  NoGrad off;
  tensor_->copy_(source);
}

}  // namespace tern::nn
