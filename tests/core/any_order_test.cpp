// Derivatives of the built-in element-wise ops of every order: those made of ops against the kernels', the third
// against finite differences in fp64, and a loss with a second derivative in it.

#include <numbers>

#include "tern/core/autograd/autocast.h"
#include "tern/core/ops/pointwise/derivatives.h"
#include "tern/tests/core/core_test.h"
#include "tern/tests/kernels/contracts/pointwise.h"

namespace tern::test {
namespace {

/// An op of BuiltinOps with the parameters and the range of inputs of its contract.
struct BuiltinOp {
  detail::PointwiseOp op;
  int index;
  double low, high;
  std::string name() const { return op.name; }
  Tensor operator()(const Tensors& in) const {
    const Tensor* addresses[3] = {};
    for (size_t k = 0; k < in.size(); ++k) addresses[k] = &in[k];
    return detail::apply_pointwise(op, {addresses, in.size()});
  }
  bool has_derivative() const { return op.differentiable[0] || op.differentiable[1] || op.differentiable[2]; }
};

std::vector<BuiltinOp> builtin_ops() {
  std::vector<BuiltinOp> ops;
  kernels::BuiltinOps::for_each([&]<class Op>() {
    const kernels::Case& c = kernels::definitions().at(Op::name);
    ops.push_back({detail::describe_pointwise(kernels::make_op<Op>()), static_cast<int>(ops.size()), c.low, c.high});
  });
  return ops;
}

class AnyOrder : public DerivativeTest {
 protected:
  /// In [low, high], and at least 0.005 from every kink (a multiple of 0.02) and from the elements of other inputs.
  Tensor between(double low, double high, const Shape& shape, size_t input) {
    const Tensor steps = floor(rand(shape, generator_, {.dtype = float64}) * ((high - low) * 50 - 1));
    const double first = std::ceil(low * 50);
    return ((steps + first + 0.5) / 50.0 + (input == 0 ? 0 : input == 1 ? 0.005 : -0.005)).clamp_(low, high);
  }
  Tensors inputs_of(const BuiltinOp& p) {
    Tensors in;
    const Shape shapes[] = {{2, 3}, {3}, {2, 1}};
    for (size_t i = 0; i < static_cast<size_t>(p.op.arity); ++i)
      in.push_back(between(p.low, p.high, shapes[i], i).set_requires_grad(p.op.differentiable[i]));
    return in;
  }
};

/// Equal up to rounding, NaN and infinities at the same places, where the op's result y is a number.
void expect_same(const Tensor& got, const Tensor& want, const Tensor& result) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> g = got.to_vector<double>(), w = want.to_vector<double>(), y = result.to_vector<double>();
  for (size_t i = 0; i < w.size(); ++i) {
    if (std::isnan(y[i])) continue;
    if (std::isnan(w[i]) || std::isinf(w[i]))
      EXPECT_TRUE(std::isnan(w[i]) ? std::isnan(g[i]) : g[i] == w[i]) << i << ": " << g[i] << " and " << w[i];
    else
      EXPECT_LE(std::abs(g[i] - w[i]), 1e-12 * (1 + std::abs(w[i]))) << i << ": " << g[i] << " and " << w[i];
  }
}

/// Also at kinks, and at 0.
TEST_F(AnyOrder, DerivativesMadeOfOpsAreThoseOfKernels) {
  const NoGrad off;
  const Tensor special = tensor({-3, -1, -0.6, 0, 0.6, 1, 2, 3}, {.dtype = float64});
  for (const BuiltinOp& p : builtin_ops()) {
    const detail::DerivativeOfOps derivative = detail::derivative_of_ops(p.index);
    if (!derivative) continue;
    SCOPED_TRACE(p.name());
    const Shape shape = p.op.arity == 1 ? Shape{8} : p.op.arity == 2 ? Shape{8, 8} : Shape{8, 8, 8};
    for (const bool at_special : {false, true}) {
      Tensors in;
      for (int i = 0; i < p.op.arity; ++i) {
        std::vector<int64_t> column(static_cast<size_t>(p.op.arity), 1);
        column[static_cast<size_t>(i)] = 8;
        const Tensor x = at_special ? special.reshape(column) : rand(shape, generator_, {.dtype = float64});
        in.push_back(at_special ? x.expand(shape).contiguous() : x * (p.high - p.low) + p.low);
      }
      const Tensor y = p(in);
      const Tensors saved = p.op.saves == kernels::Saves::kOutput ? Tensors{y} : in;
      const Tensor dy = randn(shape, generator_, {.dtype = float64});
      for (int i = 0; i < p.op.arity; ++i)
        if (p.op.differentiable[i])
          expect_same(derivative(p.op.parameters, i, dy, saved), detail::pointwise_derivative(p.op, i, dy, saved), y);
    }
  }
}

/// Every op whose derivative depends on what it saves has one made of ops: without it there is no third derivative.
/// Remainders are left out here, because finite differences can cross one of their many jumps.
TEST_F(AnyOrder, ThirdDerivatives) {
  int checked = 0;
  for (const BuiltinOp& p : builtin_ops()) {
    if (!p.has_derivative() || p.name() == "remainder" || p.name() == "fmod") continue;
    SCOPED_TRACE(p.name());
    const Tensor weights = randn({2, 3}, generator_, {.dtype = float64});
    const auto times_gradient = [&](const Tensors& in, const TensorOp& op) {
      Tensors wanted, parts;
      for (const Tensor& x : in)
        if (x.requires_grad()) wanted.push_back(x);
      const Tensor y = op(in);
      const Tensors first = grad({y}, wanted, {.gradients = {weights.expand(y.shape())}, .create_graph = true});
      for (size_t i = 0; i < first.size(); ++i) parts.push_back((first[i] * wanted[i]).flatten());
      return cat(parts);
    };
    const TensorOp gradient = [&](const Tensors& in) { return times_gradient(in, p); };
    expect_derivatives(gradient, inputs_of(p));
    ++checked;
    if (p.op.arity != 2) continue;
    // Both inputs are one tensor.
    const TensorOp itself = [&](const Tensors& in) {
      return times_gradient(in, [&](const Tensors& x) { return p({x[0], x[0]}); });
    };
    if (p.name() != "maximum" && p.name() != "minimum")
      expect_derivatives(itself, {between(p.low, p.high, {2, 3}, 0).set_requires_grad(true)});
  }
  EXPECT_GT(checked, 60);
}

/// The n-th derivatives of sin, of exp(2 x) and of x^-1, and of relu in place.
TEST_F(AnyOrder, ManyTimes) {
  const Tensor x = between(0.3, 2, {5}, 0).set_requires_grad(true);
  const auto derive = [&](Tensor y, int times) {
    for (int i = 0; i < times; ++i) y = grad({sum(y)}, {x}, {.create_graph = true})[0];
    return y.detach();
  };
  const NoGrad off;
  const auto recorded = [&](const TensorOp& fn, int times) {
    const GradMode on(true);
    return derive(fn({x}), times);
  };
  expect_near(recorded([](const Tensors& in) { return sin(in[0]); }, 7), -cos(x), 1e-12);
  expect_near(recorded([](const Tensors& in) { return exp(in[0] * 2.0); }, 6), exp(x * 2.0) * 64.0, 1e-10);
  const Tensor fifth = -120.0 / pow(x, 6.0);
  expect_near(recorded([](const Tensors& in) { return 1.0 / in[0]; }, 5) / fifth, ones_like(x), 1e-12);
  expect_near(recorded([](const Tensors& in) { return div(ones_like(in[0]), in[0]); }, 5) / fifth, ones_like(x), 1e-12);
  const TensorOp cube_in_place = [](const Tensors& in) {
    Tensor y = in[0] * 1.0;
    y.tanh_();
    return y;
  };
  const Tensor t = tanh(x.detach()), slope = 1.0 - square(t);
  expect_near(recorded(cube_in_place, 3), slope * (square(t) * 6.0 - 2.0), 1e-12);
}

/// A layer's fused activation, and 16 bits, of which the third derivative is computed in fp32.
TEST_F(AnyOrder, FusedAndSixteenBits) {
  for (const Activation activation : {Activation::kGelu, Activation::kRelu}) {
    const TensorOp slopes = [&](const Tensors& in) {
      const Tensor y = linear(in[0], in[1], in[2], activation);
      return grad({sum(y)}, {in[0]}, {.create_graph = true})[0] * in[0];
    };
    expect_derivatives(slopes, {normal({3, 4}), normal({2, 4}), normal({2})});
  }
  const auto third = [](const Tensor& x) {
    Tensor y = gelu(x);
    for (int i = 0; i < 3; ++i) y = grad({sum(y)}, {x}, {.create_graph = true})[0];
    return y;
  };
  const Tensor x = (rand({50}, generator_) * 4.0 - 2.0).to(bfloat16).set_requires_grad(true);
  const Tensor got = third(x), want = third(x.detach().to(float64).set_requires_grad(true));
  EXPECT_EQ(got.dtype(), bfloat16);
  expect_near(got.detach(), want.detach().to_vector<double>(), 0x1p-6);  // |gelu'''| < 1.3; some roundings of 2^-9
}

/// u'' of a network as a part of the loss, whose gradients are third derivatives: against finite differences.
TEST_F(AnyOrder, LossWithASecondDerivative) {
  for (Tensor (*activation)(const Tensor&) : {tern::tanh, tern::sin, tern::silu, tern::softplus, tern::gelu}) {
    const Tensor x = normal({4, 1}).detach();
    const TensorOp residual = [&](const Tensors& in) {
      const Tensor at = x.clone().set_requires_grad(true);
      const Tensor u = linear(activation(linear(at, in[0], in[1])), in[2]);
      const Tensor first = grad({sum(u)}, {at}, {.create_graph = true})[0];
      const Tensor second = grad({sum(first)}, {at}, {.create_graph = true})[0];
      return square(second + u * first);
    };
    gradcheck(residual, {normal({5, 1}), normal({5}), normal({1, 5})}, {.seed = fresh_seed()});
  }
}

}  // namespace
}  // namespace tern::test
