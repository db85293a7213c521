// Every differentiable op against finite differences in float64: odd sizes, non-contiguous and one-element inputs, and
// second derivatives of all ops.

#include <algorithm>
#include <random>

#include "tern/core/autograd/grad_mode.h"
#include "tern/tests/core/core_test.h"

namespace tern {
namespace {

using Inputs = std::vector<Tensor>;
using Op = std::function<Tensor(const Inputs&)>;

class OpsGradcheck : public testing::Test {
 protected:
  /// Threads do not speed up small tensors, and slow them on a loaded machine.
  void SetUp() override { kernels::set_num_threads(1); }

  Tensor normal(const Shape& shape) { return test::leaf(shape, generator_); }
  /// In [low, high], at least 0.05 from an op's kinks and poles.
  Tensor between(double low, double high, const Shape& shape, const std::vector<double>& kinks = {0}) {
    Tensor x = empty(shape, {.dtype = float64});
    std::uniform_real_distribution<double> uniform(low, high);
    const auto at_kink = [&](double v) {
      return std::any_of(kinks.begin(), kinks.end(), [v](double kink) { return std::abs(v - kink) < 0.05; });
    };
    for (int64_t i = 0; i < x.numel(); ++i) {
      double& v = x.data<double>()[i];
      do v = uniform(random_);
      while (at_kink(v));
    }
    return x.set_requires_grad(true);
  }
  /// Elements so far apart that finite differences do not change their order.
  Tensor distinct(const Shape& shape) { return test::distinct_leaf(shape, generator_); }
  /// Draws until no element of op(inputs) is so close to 0 that a finite difference would cross it.
  static Inputs away_from_zero(const Op& op, const std::function<Inputs()>& draw) {
    Inputs inputs = draw();
    while (!(min(abs(op(inputs))).item<double>() > 1e-3)) inputs = draw();
    return inputs;
  }
  Generator generator_ = test::fresh_generator();
  std::mt19937_64 random_ = fresh_random();
};

const GradcheckOptions kTwice{.second = true, .seed = fresh_seed()};

TEST_F(OpsGradcheck, Unary) {
  using Unary = Tensor (*)(const Tensor&);
  const auto check = [&](const char* name, const Op& op, double low, double high,
                         const std::vector<double>& kinks = {0}) {
    SCOPED_TRACE(name);
    for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{}, Shape{0, 2}, Shape{17}})
      EXPECT_NO_THROW(gradcheck(op, {between(low, high, shape, kinks)}, kTwice)) << shape;
    const Op strided = [&](const Inputs& in) { return op({in[0].t().slice(0, 0, 5, 2)}); };
    EXPECT_NO_THROW(gradcheck(strided, {between(low, high, {3, 5}, kinks)}, kTwice));
  };
  const auto plain = [&](const char* name, Unary op, double low, double high) {
    check(
        name, [op](const Inputs& in) { return op(in[0]); }, low, high);
  };
  plain("neg", neg, -2, 2);
  plain("abs", abs, -2, 2);
  plain("exp", exp, -2, 2);
  plain("expm1", expm1, -2, 2);
  plain("log", log, 0.3, 3);
  plain("log1p", log1p, -0.5, 3);
  plain("sqrt", sqrt, 0.3, 3);
  plain("rsqrt", rsqrt, 0.3, 3);
  plain("square", square, -2, 2);
  plain("reciprocal", reciprocal, 0.4, 2);
  plain("sigmoid", sigmoid, -4, 4);
  plain("tanh", tanh, -2, 2);
  plain("sin", sin, -3, 3);
  plain("cos", cos, -3, 3);
  plain("erf", erf, -2, 2);
  plain("relu", relu, -2, 2);
  plain("gelu", gelu, -3, 3);
  plain("gelu_tanh", gelu_tanh, -3, 3);
  plain("silu", silu, -3, 3);
  plain("softplus", softplus, -3, 3);
  check(
      "leaky_relu", [](const Inputs& in) { return leaky_relu(in[0], 0.1); }, -2, 2);
  check(
      "pow", [](const Inputs& in) { return pow(in[0], 2.5); }, 0.3, 2);
  check(
      "pow -1", [](const Inputs& in) { return pow(in[0], -1); }, 0.4, 2);
  check("clamp", [](const Inputs& in) { return clamp(in[0], -1.01, 0.97); }, -2, 2, {-1.01, 0.97});
  check(
      "scalars", [](const Inputs& in) { return 2.0 - (3.0 / in[0] + in[0] / 4.0) * 0.5 - in[0]; }, 0.4, 2);
}

TEST_F(OpsGradcheck, Binary) {
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  const auto check = [&](const char* name, Binary op, double low, double high, bool compares = false) {
    SCOPED_TRACE(name);
    const auto pair = [&](const Shape& a, const Shape& b) {
      return compares ? test::distinct_leaves({a, b}, generator_)
                      : Inputs{between(low, high, a), between(low, high, b)};
    };
    const Op plain = [op](const Inputs& in) { return op(in[0], in[1]); };
    const Op strided = [op](const Inputs& in) { return op(in[0].t(), in[1].slice(1, 0, 4, 3)); };
    for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{
             {{3, 5}, {3, 5}}, {{3, 1}, {5}}, {{}, {2, 2}}, {{1}, {}}, {{0, 3}, {3}}, {{2, 1, 3}, {1, 4, 1}}})
      EXPECT_NO_THROW(gradcheck(plain, pair(a, b), kTwice)) << a << b;
    EXPECT_NO_THROW(gradcheck(strided, pair({2, 3}, {3, 4}), kTwice));
    const Op itself = [op](const Inputs& in) { return op(in[0], in[0] * 1.5); };
    EXPECT_NO_THROW(gradcheck(itself, {between(low, high, {3})}, kTwice));
  };
  check("add", add, -2, 2);
  check("sub", sub, -2, 2);
  check("mul", mul, -2, 2);
  check("div", div, 0.4, 2);
  check("pow", pow, 0.4, 2);
  check("maximum", maximum, -2, 2, true);
  check("minimum", minimum, -2, 2, true);
  const Tensor condition = from_vector<bool>({true, false, true}, {3});
  const Op choose = [&](const Inputs& in) { return where(condition, in[0], in[1]); };
  EXPECT_NO_THROW(gradcheck(choose, {normal({2, 3}), normal({2, 1})}, kTwice));
}

TEST_F(OpsGradcheck, Reductions) {
  for (const std::vector<int>& dims : std::vector<std::vector<int>>{{}, {0}, {-1}, {0, 2}, {1}})
    for (const bool keepdim : {false, true}) {
      const Tensor x = normal({3, 2, 5}), apart = distinct({3, 2, 5});
      EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return square(sum(in[0], dims, keepdim)); }, {x}, kTwice));
      EXPECT_NO_THROW(gradcheck(
          [&](const Inputs& in) {
            return square(mean(in[0].permute({2, 0, 1}), dims, keepdim));
          },
          {x}, kTwice));
      EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return square(max(in[0], dims, keepdim)); }, {apart}, kTwice));
      EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return square(min(in[0], dims, keepdim)); }, {apart}, kTwice));
    }
  EXPECT_NO_THROW(gradcheck([](const Inputs& in) { return norm(in[0]); }, {normal({3, 4})}, kTwice));
  EXPECT_NO_THROW(gradcheck(
      [](const Inputs& in) {
        return square(sum_to(in[0], {3, 1}));
      },
      {normal({2, 3, 4})}, kTwice));
  // Equal extremes share the gradient.
  const Tensor ties = tensor({2, 1, 2}, {.requires_grad = true});
  max(ties).backward();
  EXPECT_EQ(ties.grad().to_vector<double>(), (std::vector<double>{0.5, 0, 0.5}));
}

TEST_F(OpsGradcheck, Views) {
  const auto check = [&](const Op& op) {
    EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return square(op(in)); }, {normal({3, 4, 2})}, kTwice));
  };
  check([](const Inputs& in) { return in[0].reshape({6, 4}); });
  check([](const Inputs& in) { return in[0].permute({2, 0, 1}).reshape({24}); });
  check([](const Inputs& in) { return in[0].transpose(0, 1).contiguous(); });
  check([](const Inputs& in) { return in[0].slice(1, 1, 4, 2); });
  check([](const Inputs& in) { return in[0][-1][2]; });
  check([](const Inputs& in) { return in[0].unsqueeze(1).expand({3, 2, 4, 2}); });
  check([](const Inputs& in) { return in[0].split({1, 3}, 1)[1] * in[0].chunk(2, 1)[0].slice(1, 0, 1); });
  check([](const Inputs& in) { return in[0].clone().to(float64).flatten(0, 1); });
}

TEST_F(OpsGradcheck, Matmul) {
  const auto check = [&](const Shape& a, const Shape& b) {
    EXPECT_NO_THROW(gradcheck([](const Inputs& in) { return matmul(in[0], in[1]); }, {normal(a), normal(b)}, kTwice))
        << a << b;
  };
  check({3, 5}, {5, 2});
  check({1, 1}, {1, 1});
  check({5}, {5});
  check({5}, {5, 2});
  check({3, 5}, {5});
  check({2, 3, 4}, {4, 2});
  check({2, 3, 4}, {2, 4, 2});
  check({2, 1, 3, 2}, {3, 2, 2});
  check({2, 3, 4}, {4});
  check({2}, {3, 2, 2});
  check({2, 0}, {0, 3});
  check({0, 3}, {3, 2});
  const Op strided = [](const Inputs& in) { return matmul(in[0].t(), in[1].slice(1, 0, 6, 2)); };
  EXPECT_NO_THROW(gradcheck(strided, {normal({4, 3}), normal({4, 6})}, kTwice));
}

TEST_F(OpsGradcheck, LinearAndNorms) {
  for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kRelu}) {
    const Op op = [&](const Inputs& in) { return linear(in[0], in[1], in[2], activation); };
    const Op pre = [](const Inputs& in) { return linear(in[0], in[1], in[2]); };
    const auto check = [&](const std::function<Inputs()>& draw) {
      EXPECT_NO_THROW(gradcheck(op, away_from_zero(pre, draw), kTwice));
    };
    check([&] { return Inputs{normal({3, 5}), normal({4, 5}), normal({4})}; });
    check([&] { return Inputs{normal({2, 1, 3}), normal({1, 3}), normal({1})}; });
    check([&] { return Inputs{normal({5, 3}), normal({2, 3}), Tensor()}; });
    const auto turned = [](const Inputs& in) { return Inputs{in[0].t(), in[1].t(), in[2]}; };
    const Inputs strided = away_from_zero([&](const Inputs& in) { return pre(turned(in)); },
                                          [&] {
                                            return Inputs{normal({3, 2}), normal({3, 4}), normal({4})};
                                          });
    EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return op(turned(in)); }, strided, kTwice));
  }
  for (const int64_t cut : {0, 1, 4}) {
    const auto pair = [cut](const Inputs& in) { return linear_pair(in[0], in[1], in[2], in[3], cut); };
    const Inputs inputs = {normal({2, 3}), normal({5, 3}), normal({4, 3}), normal({4})};
    EXPECT_NO_THROW(
        gradcheck([&](const Inputs& in) { return sum(pair(in).first) + sum(pair(in).second * 2); }, inputs, kTwice));
    EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return pair(in).first; }, inputs, kTwice));
    EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return pair(in).second; }, inputs, kTwice));
  }
  const Op normalise = [](const Inputs& in) { return layer_norm(in[0], in[1], in[2], 1e-3); };
  EXPECT_NO_THROW(gradcheck(normalise, {normal({3, 7}), normal({7}), normal({7})}, kTwice));
  EXPECT_NO_THROW(gradcheck(normalise, {normal({2, 2, 5}), Tensor(), normal({5})}, kTwice));
  EXPECT_NO_THROW(gradcheck(normalise, {normal({4}), normal({4}), Tensor()}, kTwice));
  EXPECT_NO_THROW(gradcheck([](const Inputs& in) { return layer_norm(in[0].t(), {}, {}); }, {normal({5, 3})}, kTwice));
  const Op fused = [](const Inputs& in) {
    Generator g = test::fresh_generator(5);
    return dropout_residual_layer_norm(in[0], in[1], in[2], in[3], 1e-3, {.p = 0.4, .generator = &g});
  };
  EXPECT_NO_THROW(gradcheck(fused, {normal({3, 9}), normal({3, 9}), normal({9}), normal({9})}, kTwice));
  const auto with_sum = [](const Inputs& in) {
    Generator g = test::fresh_generator(5);
    return dropout_residual_sum_layer_norm(in[0], in[1], in[2], in[3], 1e-3, {.p = 0.4, .generator = &g});
  };
  const Inputs inputs = {normal({3, 9}), normal({3, 9}), normal({9}), normal({9})};
  EXPECT_NO_THROW(
      gradcheck([&](const Inputs& in) { return with_sum(in).sum * 2 + with_sum(in).norm; }, inputs, kTwice));
  EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return with_sum(in).sum; }, inputs, kTwice));
  EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return with_sum(in).norm; }, inputs, kTwice));
}

TEST_F(OpsGradcheck, SoftmaxLossesDropout) {
  for (const int d : {0, 1, -1}) {
    EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return softmax(in[0], d); }, {normal({3, 4, 5})}, kTwice));
    EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return log_softmax(in[0], d); }, {normal({3, 4, 5})}, kTwice));
  }
  EXPECT_NO_THROW(gradcheck([](const Inputs& in) { return softmax(in[0]); }, {normal({})}, kTwice));
  const Tensor targets = from_vector<int64_t>({1, 0, -100, 4, 2}, {5}), weights = tensor({1, 2, 3, 0, 0.5});
  for (const LossReduction reduction : {LossReduction::kMean, LossReduction::kSum, LossReduction::kNone})
    for (const double smoothing : {0.0, 0.3}) {
      CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = reduction};
      const Op loss = [&](const Inputs& in) { return cross_entropy(in[0], targets, options); };
      EXPECT_NO_THROW(gradcheck(loss, {normal({5, 5})}, kTwice));
      options.row_weights = weights;
      EXPECT_NO_THROW(gradcheck(loss, {normal({5, 5})}, kTwice));
    }
  EXPECT_NO_THROW(
      gradcheck([](const Inputs& in) { return mse_loss(in[0], in[1]); }, {normal({3, 2}), normal({3, 2})}, kTwice));
  const Op drop = [](const Inputs& in) {
    Generator g = test::fresh_generator(9);
    return dropout(in[0].t(), {.p = 0.5, .generator = &g});
  };
  EXPECT_NO_THROW(gradcheck(drop, {normal({5, 7})}, kTwice));
}

TEST_F(OpsGradcheck, Indexing) {
  const Tensor ids = from_vector<int64_t>({2, 0, 2, 3, 0, 0}, {2, 3});
  EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return embedding(in[0], ids); }, {normal({4, 3})}, kTwice));
  EXPECT_NO_THROW(
      gradcheck([&](const Inputs& in) { return embedding(in[0].t(), ids.to(int32).t()); }, {normal({3, 4})}, kTwice));
  // The second derivative by the gradient of the look-up, which the padding row does not have.
  const Op padded = [&](const Inputs& in) {
    const Tensor y = embedding(in[0], ids, 2);
    const GradMode on(true);
    return grad({y}, {in[0]}, {.gradients = {square(in[1])}, .create_graph = true})[0];
  };
  EXPECT_NO_THROW(gradcheck(padded, {normal({4, 3}), normal({2, 3, 3})}, kTwice));
  const Tensor index = from_vector<int64_t>({1, 1, 0}, {3});
  for (const int d : {0, 1, 2})
    EXPECT_NO_THROW(
        gradcheck([&](const Inputs& in) { return index_select(in[0], d, index); }, {normal({2, 3, 2})}, kTwice));
  EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return index_select(in[0], 0, index); }, {normal({4})}, kTwice));
  EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return gather(in[0].t(), 1, ids); }, {normal({4, 3})}, kTwice));
  for (const int d : {0, -1}) {
    EXPECT_NO_THROW(gradcheck(
        [&](const Inputs& in) {
          return square(stack({in[0], in[1], in[0]}, d));
        },
        {normal({2, 3}), normal({2, 3})}, kTwice));
    EXPECT_NO_THROW(gradcheck(
        [&](const Inputs& in) {
          return square(cat({in[0], in[1].t(), in[0]}, d));
        },
        {normal({3, 3}), normal({3, 3})}, kTwice));
  }
}

TEST_F(OpsGradcheck, SortingAndRunningSums) {
  const auto check = [&](const Op& op, const Shape& shape) {
    EXPECT_NO_THROW(gradcheck([&](const Inputs& in) { return square(op(in)); }, {distinct(shape)}, kTwice)) << shape;
  };
  for (const int d : {0, 1, -1})
    for (const bool flag : {false, true}) {
      check([&](const Inputs& in) { return sort(in[0], d, flag).values; }, {3, 4});
      check([&](const Inputs& in) { return topk(in[0].t(), 2, d, flag).values; }, {3, 4});
      check([&](const Inputs& in) { return topk(in[0], 3, d, true, flag).values; }, {4, 3});
      check([&](const Inputs& in) { return cumsum(flag ? in[0].t() : in[0], d); }, {3, 4});
    }
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 2}, Shape{2, 0}}) {
    check([](const Inputs& in) { return sort(in[0], 0).values; }, shape);
    check([](const Inputs& in) { return cumsum(in[0], 0); }, shape);
  }
  const Tensor mask = from_vector<bool>({true, false, true, true}, {4});
  check([&](const Inputs& in) { return masked_select(in[0], mask); }, {3, 4});
  check([&](const Inputs& in) { return masked_select(in[0].t(), mask); }, {4, 1});
  check([&](const Inputs& in) { return masked_select(in[0].slice(0, 1, 8, 2), mask); }, {8});
  check([&](const Inputs& in) { return masked_select(in[0], logical_not(mask)); }, {});
  check([&](const Inputs& in) { return masked_select(in[0], zeros({1}, {.dtype = boolean})); }, {2});
}

TEST_F(OpsGradcheck, Attention) {
  const SequenceLayout packed = packed_layout({3, 0, 4, 1}), keys = packed_layout({2, 1, 5, 3});
  for (const double p : {0.0, 0.3})
    for (const bool causal : {false, true}) {
      const auto options = [&](Generator& g) {
        return AttentionOptions{.causal = causal, .window = causal ? 2 : -1, .dropout = p, .generator = &g};
      };
      EXPECT_NO_THROW(gradcheck(
          [&](const Inputs& in) {
            Generator g = test::fresh_generator(3);
            return self_attention(in[0], packed, options(g));
          },
          {normal({8, 3, 2, 4})}, kTwice));
      EXPECT_NO_THROW(gradcheck(
          [&](const Inputs& in) {
            Generator g = test::fresh_generator(3);
            return attention(in[0], in[1], in[2].slice(1, 0, 1), packed, keys, options(g));
          },
          {normal({8, 2, 3}), normal({11, 1, 3}), normal({11, 2, 3})}, kTwice));
    }
  const Tensor mask = from_vector<uint8_t>({1, 1, 1, 1, 0, 0}, {2, 3});
  const SequenceLayout padded = padded_layout(2, 3, mask);
  EXPECT_NO_THROW(
      gradcheck([&](const Inputs& in) { return self_attention(in[0], padded, {.scale = 0.7, .bias = in[1]}); },
                {normal({6, 3, 2, 3}), normal({1, 2, 3, 3})}, kTwice));
}

}  // namespace
}  // namespace tern
