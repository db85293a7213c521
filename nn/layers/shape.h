#pragma once
// Modules without arithmetic: Identity, Flatten, Unflatten.

#include <vector>

#include "tern/nn/module.h"

namespace tern::nn {

/// Returns its input: the place of a module that is left out.
class Identity final : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) const {
    return hooked(x, [](const Tensor& input) { return input; });
  }
};

/// Joins dimensions start to end, both included; without arguments [batch, ...] becomes [batch, rest].
class Flatten final : public Module {
 public:
  explicit Flatten(const Scope& s, int start = 1, int end = -1) : Module(s), start_(start), end_(end) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return input.flatten(start_, end_); });
  }

 private:
  int start_, end_;
};

/// Divides dimension dim into dimensions of these sizes, one of which may be -1.
class Unflatten final : public Module {
 public:
  Unflatten(const Scope& s, int dim, const std::vector<int64_t>& sizes);
  Tensor forward(const Tensor& x) const;

 private:
  int dim_;
  std::vector<int64_t> sizes_;
};

}  // namespace tern::nn
