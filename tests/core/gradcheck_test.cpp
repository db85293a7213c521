// The gradient checker must fail where a gradient is wrong.

#include "tern/core/autograd/function.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

/// sin with a gradient that is wrong by `error` at one element.
struct WrongSin final : Function<WrongSin> {
  static constexpr const char* kName = "wrong_sin";
  static constexpr bool kTwiceDifferentiable = true;
  Saved x_;
  double error_ = 0;
  Tensor forward(const Tensor& x, double error) {
    error_ = error;
    x_ = x;
    return sin(x);
  }
  Grads backward(const Tensor& dy) override {
    const Tensor wrong = zeros_like(dy);
    wrong.data<double>()[2] = error_;
    return {dy * cos(x_.get()) + wrong};
  }
};

/// Correct at first order, wrong at second: the gradient's dependence on x is dropped.
struct CutSin final : Function<CutSin> {
  static constexpr const char* kName = "cut_sin";
  static constexpr bool kTwiceDifferentiable = true;
  Saved x_;
  Tensor forward(const Tensor& x) {
    x_ = x;
    return sin(x);
  }
  Grads backward(const Tensor& dy) override { return {dy * cos(x_.get().detach())}; }
};

TEST(Gradcheck, PassesAndFailsWhereItShould) {
  Generator g = fresh_generator();
  const std::vector<Tensor> x = {leaf({5}, g)};
  const auto wrong = [](double error) {
    return [error](const std::vector<Tensor>& in) { return WrongSin::apply(in[0], error); };
  };
  EXPECT_NO_THROW(gradcheck(wrong(0), x, {.second = true}));
  expect_error([&] { gradcheck(wrong(1e-2), x); }, {"gradcheck", "first gradient", "input 0", "element 2"});
  expect_error([&] { gradcheck(wrong(NAN), x); }, {"element 2", "nan"});
  expect_error([&] { gradcheck(wrong(INFINITY), x); }, {"element 2", "inf"});
  const auto cut = [](const std::vector<Tensor>& in) { return CutSin::apply(in[0]); };
  EXPECT_NO_THROW(gradcheck(cut, x));
  expect_error([&] { gradcheck(cut, x, {.second = true}); }, {"second gradient"});
}

/// Its gradient differs when it can be differentiated again.
struct TwoWays final : Function<TwoWays> {
  static constexpr const char* kName = "two_ways";
  static constexpr bool kTwiceDifferentiable = true;
  Tensor forward(const Tensor& x) { return mul(x, 2.0); }
  Grads backward(const Tensor& dy) override { return {mul(dy, grad_enabled() ? 2.5 : 2.0)}; }
};

TEST(Gradcheck, ComparesTheFirstGradientWithAndWithoutCreateGraph) {
  const Tensor x = tensor({1, 2}, {.dtype = float64, .requires_grad = true});
  const auto op = [](const std::vector<Tensor>& in) { return TwoWays::apply(in[0]); };
  EXPECT_NO_THROW(gradcheck(op, {x}));
  expect_error([&] { gradcheck(op, {x}, {.second = true}); }, {"first gradient of input 0", "create_graph"});
}

TEST(Gradcheck, FailsOnNaNInTheFunction) {
  const std::vector<Tensor> x = {tensor({-1, 2}, {.dtype = float64, .requires_grad = true})};
  expect_error([&] { gradcheck([](const auto& in) { return sqrt(in[0]); }, x); }, {"gradcheck", "nan"});
}

TEST(Gradcheck, ChecksItsInputs) {
  const auto id = [](const std::vector<Tensor>& in) { return in[0] * 1.0; };
  expect_error([&] { gradcheck(id, {tensor({1}, {.requires_grad = true})}); }, {"float32", "float64"});
  expect_error([&] { gradcheck(id, {tensor({1}, {.dtype = float64})}); }, {"no input requires"});
}

}  // namespace
}  // namespace tern::test
