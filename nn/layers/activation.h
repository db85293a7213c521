#pragma once
// Activation functions as modules, with PyTorch's names: for a Sequential, which takes the functions too, and for
// hooks. core/ops/pointwise/pointwise.h and softmax.h define the functions.

#include <tuple>

#include "tern/core/ops/pointwise/pointwise.h"
#include "tern/core/ops/reduce/softmax.h"
#include "tern/nn/module.h"

namespace tern::nn {

template <auto kFunction>
class FunctionModule;

/// The module whose forward is kFunction(x, values...).
template <class... Values, Tensor (*kFunction)(const Tensor&, Values...)>
class FunctionModule<kFunction> : public Module {
 public:
  explicit FunctionModule(const Scope& s, Values... values) : Module(s), values_(values...) {}
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) {
      return std::apply([&](const Values&... values) { return kFunction(input, values...); }, values_);
    });
  }

 private:
  std::tuple<Values...> values_;
};

struct ReLU final : FunctionModule<tern::relu> {
  using FunctionModule::FunctionModule;
};
struct ReLU6 final : FunctionModule<tern::relu6> {
  using FunctionModule::FunctionModule;
};
struct LeakyReLU final : FunctionModule<tern::leaky_relu> {
  explicit LeakyReLU(const Scope& s, double slope = 0.01) : FunctionModule(s, slope) {}
};
struct ELU final : FunctionModule<tern::elu> {
  explicit ELU(const Scope& s, double alpha = 1) : FunctionModule(s, alpha) {}
};
struct CELU final : FunctionModule<tern::celu> {
  explicit CELU(const Scope& s, double alpha = 1) : FunctionModule(s, alpha) {}
};
struct Threshold final : FunctionModule<tern::threshold> {
  Threshold(const Scope& s, double threshold, double value) : FunctionModule(s, threshold, value) {}
};
struct SELU final : FunctionModule<tern::selu> {
  using FunctionModule::FunctionModule;
};
struct GELU final : FunctionModule<tern::gelu> {
  using FunctionModule::FunctionModule;
};
/// PyTorch's GELU(approximate="tanh").
struct GELUTanh final : FunctionModule<tern::gelu_tanh> {
  using FunctionModule::FunctionModule;
};
struct SiLU final : FunctionModule<tern::silu> {
  using FunctionModule::FunctionModule;
};
struct Mish final : FunctionModule<tern::mish> {
  using FunctionModule::FunctionModule;
};
struct Sigmoid final : FunctionModule<tern::sigmoid> {
  using FunctionModule::FunctionModule;
};
struct LogSigmoid final : FunctionModule<tern::logsigmoid> {
  using FunctionModule::FunctionModule;
};
struct Tanh final : FunctionModule<tern::tanh> {
  using FunctionModule::FunctionModule;
};
struct Softplus final : FunctionModule<tern::softplus> {
  using FunctionModule::FunctionModule;
};
struct Softsign final : FunctionModule<tern::softsign> {
  using FunctionModule::FunctionModule;
};
struct Softshrink final : FunctionModule<tern::softshrink> {
  explicit Softshrink(const Scope& s, double lambda = 0.5) : FunctionModule(s, lambda) {}
};
struct Hardshrink final : FunctionModule<tern::hardshrink> {
  explicit Hardshrink(const Scope& s, double lambda = 0.5) : FunctionModule(s, lambda) {}
};
struct Hardtanh final : FunctionModule<tern::hardtanh> {
  explicit Hardtanh(const Scope& s, double low = -1, double high = 1) : FunctionModule(s, low, high) {}
};
struct Hardsigmoid final : FunctionModule<tern::hardsigmoid> {
  using FunctionModule::FunctionModule;
};
struct Hardswish final : FunctionModule<tern::hardswish> {
  using FunctionModule::FunctionModule;
};
struct Softmax final : FunctionModule<tern::softmax> {
  explicit Softmax(const Scope& s, int dim = -1) : FunctionModule(s, dim) {}
};
struct LogSoftmax final : FunctionModule<tern::log_softmax> {
  explicit LogSoftmax(const Scope& s, int dim = -1) : FunctionModule(s, dim) {}
};

/// Leaky ReLU with trained slopes: one, or one for each channel, see tern::prelu.
class PReLU final : public Module {
 public:
  explicit PReLU(const Scope& s, int64_t count = 1, double slope = 0.25);
  Tensor forward(const Tensor& x) const {
    return hooked(x, [&](const Tensor& input) { return prelu(input, weight_); });
  }

  const Parameter& weight() const { return weight_; }

 private:
  Parameter weight_;
};

}  // namespace tern::nn
