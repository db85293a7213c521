#pragma once
// ModuleList, ParameterList and Sequential: members named "0", "1", ...; ModuleDict and ParameterDict.

#include <algorithm>
#include <concepts>
#include <deque>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern/core/tensor/size_checks.h"
#include "tern/nn/module.h"

namespace tern::nn {

/// A list of modules of one type, constructed in place:
///   ModuleList<Layer> layer_;  ...  layer_(sub("layer"), 6, config)   gives layer.0, layer.1, ...
///   for (const Layer& layer : layer_) x = layer.forward(x);
template <std::derived_from<Module> T>
class ModuleList final : public Module {
 public:
  explicit ModuleList(const Scope& s) : Module(s) {}
  /// Constructs `count` modules, each T(scope, args...).
  template <class... Args>
  ModuleList(const Scope& s, int64_t count, const Args&... args) : Module(s) {
    TERN_CHECK(count >= 0, "nn::ModuleList: the number of modules must be >= 0, got ", count);
    tern::detail::check_host_list("nn::ModuleList", count, sizeof(T));
    for (int64_t i = 0; i < count; ++i) emplace_back(args...);
  }

  template <class... Args>
  T& emplace_back(Args&&... args) {
    return items_.emplace_back(sub(std::to_string(items_.size())), std::forward<Args>(args)...);
  }

  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  T& operator[](int64_t i) { return items_[checked(i)]; }
  const T& operator[](int64_t i) const { return items_[checked(i)]; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  size_t checked(int64_t i) const {
    TERN_CHECK(i >= 0 && i < size(), "nn::ModuleList: index ", i, " is outside [0, ", size(), ")");
    return static_cast<size_t>(i);
  }

  std::deque<T> items_;  // never moves its elements
};

/// Modules by name, in the order in which they were made: of class T or derived from it.
///   ModuleDict<Linear> heads(sub("heads"));  heads.emplace("start", 64, 2);  heads["start"].forward(x)
template <std::derived_from<Module> T>
class ModuleDict final : public Module {
 public:
  explicit ModuleDict(const Scope& s) : Module(s) {}

  /// Constructs U(scope, args...). Throws Error when the name is taken, is empty or has a dot.
  template <std::derived_from<T> U = T, class... Args>
  U& emplace(const std::string& name, Args&&... args) {
    auto made = std::make_unique<U>(sub(name), std::forward<Args>(args)...);
    U& module = *made;
    items_.push_back(std::move(made));
    return module;
  }

  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  bool contains(const std::string& name) const { return place(name) != items_.end(); }
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const auto& item : items_) names.push_back(item->local_name());
    return names;
  }
  T& operator[](const std::string& name) { return *checked(name); }
  const T& operator[](const std::string& name) const { return *checked(name); }

 private:
  auto place(const std::string& name) const {
    return std::find_if(items_.begin(), items_.end(), [&](const auto& item) { return item->local_name() == name; });
  }
  T* checked(const std::string& name) const {
    const auto found = place(name);
    TERN_CHECK(found != items_.end(), "nn::ModuleDict: '", this->name(), "' has no module named '", name, "'");
    return found->get();
  }

  std::vector<std::unique_ptr<T>> items_;
};

/// Parameters named "0", "1", ...
class ParameterList final : public Module {
 public:
  explicit ParameterList(const Scope& s) : Module(s) {}
  /// Zeros unless an initialiser is given.
  Parameter& append(const Shape& shape, const Initializer& initializer = {});

  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  Parameter& operator[](int64_t i) { return items_[checked(i)]; }
  const Parameter& operator[](int64_t i) const { return items_[checked(i)]; }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  size_t checked(int64_t i) const;
  std::deque<Parameter> items_;  // never moves its elements
};

/// Parameters by name, in the order in which they were made.
class ParameterDict final : public Module {
 public:
  explicit ParameterDict(const Scope& s) : Module(s) {}
  /// Zeros unless an initialiser is given. Throws Error when the name is taken, is empty or has a dot.
  Parameter& emplace(const std::string& name, const Shape& shape, const Initializer& initializer = {});

  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  bool contains(const std::string& name) const { return place(name) < items_.size(); }
  std::vector<std::string> keys() const;
  Parameter& operator[](const std::string& name) { return items_[checked(name)]; }
  const Parameter& operator[](const std::string& name) const { return items_[checked(name)]; }

 private:
  /// The index, or the size when there is none of that name.
  size_t place(const std::string& name) const;
  size_t checked(const std::string& name) const;
  std::deque<Parameter> items_;  // never moves its elements
};

/// Describes a module to be constructed when its scope is known: make<Linear>(64, 256).
template <class T, class... Args>
struct Factory {
  std::tuple<Args...> args;
};
template <std::derived_from<Module> T, class... Args>
Factory<T, std::decay_t<Args>...> make(Args&&... args) {
  return {{std::forward<Args>(args)...}};
}

/// Goes through the modules of a Sequential; M is Module or const Module.
template <class M>
class ModuleIterator {
 public:
  explicit ModuleIterator(const std::unique_ptr<Module>* at) : at_(at) {}
  M& operator*() const { return **at_; }
  ModuleIterator& operator++() {
    ++at_;
    return *this;
  }
  bool operator==(const ModuleIterator&) const = default;

 private:
  const std::unique_ptr<Module>* at_;
};

/// A chain of modules and functions from a tensor to a tensor:
///   Sequential(sub("body"), make<Linear>(64, 256), gelu, make<Linear>(256, 10))
/// (of functions that C has too, tern::tanh or make<Tanh>()). Functions are counted, like torch.nn.Sequential's
/// activation modules: the parameters above are "0.weight", "2.weight", ...
class Sequential final : public Module {
 public:
  template <class... Steps>
  explicit Sequential(const Scope& s, Steps&&... steps) : Module(s) {
    (append(std::forward<Steps>(steps)), ...);
  }

  template <class T, class... Args>
  void append(const Factory<T, Args...>& factory) {
    const Scope scope = sub(std::to_string(steps_.size()));
    auto made = std::apply([&](const Args&... args) { return std::make_unique<T>(scope, args...); }, factory.args);
    steps_.push_back({[module = made.get()](const Tensor& x) { return module->forward(x); }, made.get()});
    modules_.push_back(std::move(made));
  }
  void append(std::function<Tensor(const Tensor&)> function);

  int64_t size() const { return static_cast<int64_t>(steps_.size()); }
  Tensor forward(const Tensor& x) const;

  /// The module that is step i, from 0. Throws Error when there is no such step, or it is a function.
  Module& operator[](int64_t i) { return *checked(i); }
  const Module& operator[](int64_t i) const { return *checked(i); }
  /// The same as its class: net.at<Linear>(0).weight(). Throws Error when it is of another.
  template <std::derived_from<Module> T>
  T& at(int64_t i) {
    return *as<T>(i);
  }
  template <std::derived_from<Module> T>
  const T& at(int64_t i) const {
    return *as<T>(i);
  }
  // The modules, without the functions.
  auto begin() { return ModuleIterator<Module>(modules_.data()); }
  auto end() { return ModuleIterator<Module>(modules_.data() + modules_.size()); }
  auto begin() const { return ModuleIterator<const Module>(modules_.data()); }
  auto end() const { return ModuleIterator<const Module>(modules_.data() + modules_.size()); }

 private:
  struct Step {
    std::function<Tensor(const Tensor&)> call;
    Module* module = nullptr;  // none: a function
  };
  Module* checked(int64_t i) const;
  template <class T>
  T* as(int64_t i) const {
    T* const module = dynamic_cast<T*>(checked(i));
    TERN_CHECK(module, "nn::Sequential: step ", i, " of '", name(), "' is a module of another class");
    return module;
  }

  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<Step> steps_;
};

}  // namespace tern::nn
