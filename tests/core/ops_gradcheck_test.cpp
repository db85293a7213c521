// Every differentiable op against finite differences in float64: odd sizes, non-contiguous and one-element inputs, and
// second derivatives of all ops. The Euclidean norm's values, and its derivatives at zero.

#include <algorithm>

#include "tern/core/autograd/autocast.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

class OpsGradcheck : public DerivativeTest {
 protected:
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
  Tensor distinct(const Shape& shape) { return distinct_leaves({shape}, generator_)[0]; }
  /// Draws until no element of op(inputs) is so close to 0 that a finite difference would cross it.
  static Tensors away_from_zero(const TensorOp& op, const std::function<Tensors()>& draw) {
    Tensors inputs = draw();
    while (!(min(abs(op(inputs))).item<double>() > 1e-3)) inputs = draw();
    return inputs;
  }
  std::mt19937_64 random_ = fresh_random();
};

TEST_F(OpsGradcheck, Unary) {
  const auto check = [&](const char* name, double low, double high, const TensorOp& op,
                         const std::vector<double>& kinks = {0}) {
    SCOPED_TRACE(name);
    for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{}, Shape{0, 2}, Shape{17}})
      expect_derivatives(op, {between(low, high, shape, kinks)});
    const TensorOp strided = [&](const Tensors& in) { return op({in[0].t().slice(0, 0, 5, 2)}); };
    expect_derivatives(strided, {between(low, high, {3, 5}, kinks)});
  };
  struct Case {
    const char* name;
    Tensor (*op)(const Tensor&);
    double low, high;
  };
  for (const Case& c : std::vector<Case>{{"neg", neg, -2, 2},
                                         {"abs", abs, -2, 2},
                                         {"exp", exp, -2, 2},
                                         {"expm1", expm1, -2, 2},
                                         {"log", log, 0.3, 3},
                                         {"log1p", log1p, -0.5, 3},
                                         {"sqrt", sqrt, 0.3, 3},
                                         {"rsqrt", rsqrt, 0.3, 3},
                                         {"square", square, -2, 2},
                                         {"reciprocal", reciprocal, 0.4, 2},
                                         {"sigmoid", sigmoid, -4, 4},
                                         {"tanh", tanh, -2, 2},
                                         {"sin", sin, -3, 3},
                                         {"cos", cos, -3, 3},
                                         {"erf", erf, -2, 2},
                                         {"erfinv", erfinv, -0.8, 0.8},
                                         {"relu", relu, -2, 2},
                                         {"gelu", gelu, -3, 3},
                                         {"gelu_tanh", gelu_tanh, -3, 3},
                                         {"silu", silu, -3, 3},
                                         {"softplus", softplus, -3, 3},
                                         {"exp2", exp2, -2, 2},
                                         {"log2", log2, 0.3, 3},
                                         {"log10", log10, 0.3, 3},
                                         {"tan", tan, -1.2, 1.2},
                                         {"asin", asin, -0.9, 0.9},
                                         {"acos", acos, -0.9, 0.9},
                                         {"atan", atan, -3, 3},
                                         {"sinh", sinh, -2, 2},
                                         {"cosh", cosh, -2, 2},
                                         {"asinh", asinh, -3, 3},
                                         {"acosh", acosh, 1.2, 3},
                                         {"atanh", atanh, -0.9, 0.9},
                                         {"selu", selu, -3, 3},
                                         {"mish", mish, -3, 3},
                                         {"softsign", softsign, -3, 3},
                                         {"logsigmoid", logsigmoid, -3, 3}})
    check(c.name, c.low, c.high, [&](const Tensors& in) { return c.op(in[0]); });
  check("leaky_relu", -2, 2, [](const Tensors& in) { return leaky_relu(in[0], 0.1); });
  check("pow", 0.3, 2, [](const Tensors& in) { return pow(in[0], 2.5); });
  check("pow -1", 0.4, 2, [](const Tensors& in) { return pow(in[0], -1); });
  check("clamp", -2, 2, [](const Tensors& in) { return clamp(in[0], -1.01, 0.97); }, {-1.01, 0.97});
  check("relu6", -2, 8, [](const Tensors& in) { return relu6(in[0]); }, {0, 6});
  check("hardtanh", -2, 2, [](const Tensors& in) { return hardtanh(in[0]); }, {-1, 1});
  check("hardsigmoid", -5, 5, [](const Tensors& in) { return hardsigmoid(in[0]); }, {-3, 3});
  check("hardswish", -5, 5, [](const Tensors& in) { return hardswish(in[0]); }, {-3, 3});
  check("elu", -2, 2, [](const Tensors& in) { return elu(in[0], 0.7); });
  check("softshrink", -2, 2, [](const Tensors& in) { return softshrink(in[0], 0.3); }, {-0.3, 0.3});
  check("hardshrink", -2, 2, [](const Tensors& in) { return hardshrink(in[0]); }, {-0.5, 0.5});
  check("remainder", 0.1, 0.8, [](const Tensors& in) { return remainder(in[0] * 3.0, 2.5); }, {2.5 / 3});
  check("masked_fill", -2, 2, [](const Tensors& in) { return masked_fill(in[0], in[0].detach() > 0.5, 3); }, {0.5});
  check("scalars", 0.4, 2, [](const Tensors& in) { return 2.0 - (3.0 / in[0] + in[0] / 4.0) * 0.5 - in[0]; });
}

TEST_F(OpsGradcheck, Binary) {
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  const auto check = [&](const char* name, Binary op, double low, double high, bool compares = false) {
    SCOPED_TRACE(name);
    const auto pair = [&](const Shape& a, const Shape& b) {
      return compares ? distinct_leaves({a, b}, generator_) : Tensors{between(low, high, a), between(low, high, b)};
    };
    const TensorOp plain = [op](const Tensors& in) { return op(in[0], in[1]); };
    const TensorOp strided = [op](const Tensors& in) { return op(in[0].t(), in[1].slice(1, 0, 4, 3)); };
    for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{
             {{3, 5}, {3, 5}}, {{3, 1}, {5}}, {{}, {2, 2}}, {{1}, {}}, {{0, 3}, {3}}, {{2, 1, 3}, {1, 4, 1}}})
      expect_derivatives(plain, pair(a, b));
    expect_derivatives(strided, pair({2, 3}, {3, 4}));
    const TensorOp itself = [op](const Tensors& in) { return op(in[0], in[0] * 1.5); };
    expect_derivatives(itself, {between(low, high, {3})});
  };
  check("add", add, -2, 2);
  check("sub", sub, -2, 2);
  check("mul", mul, -2, 2);
  check("div", div, 0.4, 2);
  check("pow", pow, 0.4, 2);
  check("atan2", atan2, 0.3, 2);
  check("fmod", fmod, 0.4, 0.7);
  check("floor_divide", floor_divide, 0.4, 0.7);
  check("maximum", maximum, -2, 2, true);
  check("minimum", minimum, -2, 2, true);
  const Tensor condition = from_vector<bool>({true, false, true}, {3});
  const TensorOp choose = [&](const Tensors& in) { return where(condition, in[0], in[1]); };
  expect_derivatives(choose, {normal({2, 3}), normal({2, 1})});
  const TensorOp by_channel = [](const Tensors& in) { return prelu(in[0], in[1]); };
  expect_derivatives(by_channel, {between(-2, 2, {2, 3, 5}), normal({3})});
  expect_derivatives(by_channel, {between(-2, 2, {7}), normal({1})});
  const TensorOp mix = [](const Tensors& in) { return lerp(in[0], in[1], in[2]); };
  expect_derivatives(mix, {normal({2, 3}), normal({3}), normal({2, 1})});
}

TEST_F(OpsGradcheck, Reductions) {
  for (const std::vector<int>& dims : std::vector<std::vector<int>>{{}, {0}, {-1}, {0, 2}, {1}})
    for (const bool keepdim : {false, true}) {
      const Tensor x = normal({3, 2, 5}), apart = distinct({3, 2, 5});
      expect_derivatives([&](const Tensors& in) { return square(sum(in[0], dims, keepdim)); }, {x});
      expect_derivatives([&](const Tensors& in) { return square(mean(in[0].permute({2, 0, 1}), dims, keepdim)); }, {x});
      expect_derivatives([&](const Tensors& in) { return square(max(in[0], dims, keepdim)); }, {apart});
      expect_derivatives([&](const Tensors& in) { return square(min(in[0], dims, keepdim)); }, {apart});
      expect_derivatives([&](const Tensors& in) { return square(var(in[0], dims, 0.5, keepdim)); }, {x});
      expect_derivatives([&](const Tensors& in) { return square(tern::std(in[0], dims, 0, keepdim)); }, {apart});
      expect_derivatives([&](const Tensors& in) { return square(logsumexp(in[0], dims, keepdim)); }, {x});
      for (const double order : {0.5, 1.0, 3.0, -2.0, double{INFINITY}, -double{INFINITY}})
        expect_derivatives([&](const Tensors& in) { return vector_norm(in[0], order, dims, keepdim); }, {apart});
      for (const int64_t zeros : {0, 1, 2, 9}) {  // of the 30 elements
        const Tensor with_zeros = normal({3, 2, 5});
        for (int64_t i = 0; i < zeros; ++i) with_zeros.data<double>()[i * 7 % 30] = 0;
        expect_derivatives([&](const Tensors& in) { return prod(in[0], dims, keepdim); }, {with_zeros});
      }
    }
  for (const double order : {1.0, 2.0, 3.5})
    expect_derivatives([&](const Tensors& in) { return normalize(in[0].t(), order); }, {between(-2, 2, {5, 3})});
  expect_derivatives([](const Tensors& in) { return cosine_similarity(in[0], in[1], 0); },
                     {normal({3, 2}), normal({3, 1})});
  expect_derivatives([](const Tensors& in) { return pairwise_distance(in[0], in[1], 1.5); },
                     {normal({3, 2}), normal({2})});
  expect_derivatives([](const Tensors& in) { return square(sum_to(in[0], {3, 1})); }, {normal({2, 3, 4})});
  // Equal extremes share the gradient.
  const Tensor ties = tensor({2, 1, 2}, {.requires_grad = true});
  max(ties).backward();
  EXPECT_EQ(ties.grad().to_vector<double>(), (std::vector<double>{0.5, 0, 0.5}));
}

TEST_F(OpsGradcheck, Views) {
  const auto check = [&](const TensorOp& op) {
    expect_derivatives([&](const Tensors& in) { return square(op(in)); }, {normal({3, 4, 2})});
  };
  check([](const Tensors& in) { return in[0].reshape({6, 4}); });
  check([](const Tensors& in) { return in[0].permute({2, 0, 1}).reshape({24}); });
  check([](const Tensors& in) { return in[0].transpose(0, 1).contiguous(); });
  check([](const Tensors& in) { return in[0].slice(1, 1, 4, 2); });
  check([](const Tensors& in) { return in[0][-1][2]; });
  check([](const Tensors& in) { return in[0].unsqueeze(1).expand({3, 2, 4, 2}); });
  check([](const Tensors& in) { return in[0].split({1, 3}, 1)[1] * in[0].chunk(2, 1)[0].slice(1, 0, 1); });
  check([](const Tensors& in) { return in[0].clone().to(float64).flatten(0, 1); });
  check([](const Tensors& in) { return roll(flip(in[0].t(), {0, 2}), {1, -3}, {0, 1}); });
  for (const PadMode mode : {PadMode::kConstant, PadMode::kReflect, PadMode::kReplicate, PadMode::kCircular})
    check([=](const Tensors& in) { return pad(in[0], {1, 0, 3, 2, 0, 2}, mode, 0.7); });
  check([](const Tensors& in) { return pad(in[0], {-1, 2, 1, -2}); });
  check([](const Tensors& in) { return tril(diag_embed(in[0], 1, 0, 2).diagonal(-1, 1, -1)); });
  check([](const Tensors& in) { return repeat_interleave(repeat(in[0], {2, 1, 1, 3}), 2, 1); });
}

/// Indices repeat, so that elements are written several times.
TEST_F(OpsGradcheck, ScattersAndIndices) {
  const Tensor index = from_vector<int64_t>({0, 2, 2, 1, 0, 0}, {2, 3}), rows = from_vector<int64_t>({2, 0, 2}, {3});
  for (const int dim : {0, 1}) {
    const Tensors inputs = {normal({3, 4}), normal({2, 3})};
    expect_derivatives([&](const Tensors& in) { return square(scatter(in[0], dim, index, in[1])); }, inputs);
    expect_derivatives([&](const Tensors& in) { return square(scatter_add(in[0], dim, index, in[1])); }, inputs);
    for (int kind = 0; kind < 5; ++kind)
      for (const bool self : {false, true})
        expect_derivatives(
            [&](const Tensors& in) {
              return square(scatter_reduce(in[0], dim, index, in[1], static_cast<ScatterReduction>(kind), self));
            },
            distinct_leaves({{3, 4}, {2, 3}}, generator_));
  }
  expect_derivatives([&](const Tensors& in) { return square(index_add(in[0], 1, rows, in[1].t(), -2)); },
                     {normal({2, 4}), normal({3, 2})});
  expect_derivatives([&](const Tensors& in) { return square(index_copy(in[0], 0, rows, in[1])); },
                     {normal({4, 2}), normal({3, 2})});
  const std::vector<TensorIndex> entries = {rows, Slice{1}, index};
  expect_derivatives([&](const Tensors& in) { return square(in[0].transpose(0, 1).index(entries)); },
                     {normal({2, 3, 3})});
  for (const bool accumulate : {false, true}) {
    expect_derivatives([&](const Tensors& in) { return square(index_put(in[0], entries, in[1], accumulate)); },
                       {normal({3, 2, 3}), normal({3, 1})});
    // In place, on a tensor with a history.
    expect_derivatives(
        [&](const Tensors& in) {
          Tensor x = square(in[0]);
          x.index_put_({index, 0}, in[1], accumulate).index_put_({Slice{0, 2}, -1}, in[1].select(1, 0), accumulate);
          return square(x);
        },
        {normal({3, 2}), normal({2, 3})});
  }
  expect_derivatives(
      [&](const Tensors& in) {
        Tensor x = square(in[0]);
        x.scatter_(1, index, in[1])
            .scatter_add_(1, index, in[1])
            .index_add_(1, rows, in[1], 3)
            .index_fill_(1, rows.slice(0, 1, 2), 1);
        return square(x.index_copy_(0, rows.slice(0, 1, 2), in[1].slice(0, 0, 1)).masked_fill_(gt(in[1], 0.0), 0.5));
      },
      {normal({2, 3}), between(-2, 2, {2, 3})});
  expect_derivatives([&](const Tensors& in) { return square(take(in[0], index)); }, {normal({2, 3})});
}

TEST_F(OpsGradcheck, OrdersAndProducts) {
  for (const Interpolation way : {Interpolation::kLinear, Interpolation::kHigher, Interpolation::kMidpoint})
    expect_derivatives(
        [&](const Tensors& in) {
          return square(quantile(in[0], tensor({0.2, 0.9}), 0, false, way));
        },
        {distinct({4, 2})});
  expect_derivatives([](const Tensors& in) { return square(median(in[0], 1).values); }, {distinct({2, 5})});
  expect_derivatives([](const Tensors& in) { return square(median(in[0])); }, {distinct({2, 3})});
  expect_derivatives([](const Tensors& in) { return square(kthvalue(in[0], 2, 0).values); }, {distinct({3, 2})});
  for (const char* equation : {"ij,kj->ik", "ij,ij", "iji,k->jk", "ij,j...->...i", "ij,kl->"}) {
    const Shape square_shape{3, 3};
    const bool cube = std::string(equation).starts_with("iji");
    expect_derivatives(
        [&](const Tensors& in) {
          return einsum(equation, {in[0], in[1]});
        },
        {normal(cube ? Shape{3, 2, 3} : square_shape), normal(cube ? Shape{2} : square_shape)});
  }
  expect_derivatives([](const Tensors& in) { return addmm(in[0], in[1], in[2], 0.5, -2); },
                     {normal({2}), normal({3, 4}), normal({4, 2})});
  expect_derivatives(
      [](const Tensors& in) {
        return cross(in[0], in[1], 0) + kron(in[0], tensor({2.0, 1.0})).slice(1, 2);
      },
      {normal({3, 2}), normal({3, 1})});
}

TEST_F(OpsGradcheck, Matmul) {
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{3, 5}, {5, 2}},
                                                                 {{1, 1}, {1, 1}},
                                                                 {{5}, {5}},
                                                                 {{5}, {5, 2}},
                                                                 {{3, 5}, {5}},
                                                                 {{2, 3, 4}, {4, 2}},
                                                                 {{2, 3, 4}, {2, 4, 2}},
                                                                 {{2, 1, 3, 2}, {3, 2, 2}},
                                                                 {{2, 3, 4}, {4}},
                                                                 {{2}, {3, 2, 2}},
                                                                 {{2, 0}, {0, 3}},
                                                                 {{0, 3}, {3, 2}}})
    expect_derivatives([](const Tensors& in) { return matmul(in[0], in[1]); }, {normal(a), normal(b)});
  const TensorOp strided = [](const Tensors& in) { return matmul(in[0].t(), in[1].slice(1, 0, 6, 2)); };
  expect_derivatives(strided, {normal({4, 3}), normal({4, 6})});
}

TEST_F(OpsGradcheck, LinearAndNorms) {
  for (const Activation activation : {Activation::kNone, Activation::kGelu, Activation::kRelu}) {
    const TensorOp op = [&](const Tensors& in) { return linear(in[0], in[1], in[2], activation); };
    const TensorOp pre = [](const Tensors& in) { return linear(in[0], in[1], in[2]); };
    const auto check = [&](const std::function<Tensors()>& draw) { expect_derivatives(op, away_from_zero(pre, draw)); };
    check([&] { return Tensors{normal({3, 5}), normal({4, 5}), normal({4})}; });
    check([&] { return Tensors{normal({2, 1, 3}), normal({1, 3}), normal({1})}; });
    check([&] { return Tensors{normal({5, 3}), normal({2, 3}), Tensor()}; });
    const auto turned = [](const Tensors& in) { return Tensors{in[0].t(), in[1].t(), in[2]}; };
    const auto draw = [&] { return Tensors{normal({3, 2}), normal({3, 4}), normal({4})}; };
    const Tensors strided = away_from_zero([&](const Tensors& in) { return pre(turned(in)); }, draw);
    expect_derivatives([&](const Tensors& in) { return op(turned(in)); }, strided);
  }
  for (const int64_t cut : {0, 1, 4}) {
    const auto pair = [cut](const Tensors& in) { return linear_pair(in[0], in[1], in[2], in[3], cut); };
    const Tensors inputs = {normal({2, 3}), normal({5, 3}), normal({4, 3}), normal({4})};
    expect_derivatives([&](const Tensors& in) { return sum(pair(in).first) + sum(pair(in).second * 2); }, inputs);
    expect_derivatives([&](const Tensors& in) { return pair(in).first; }, inputs);
    expect_derivatives([&](const Tensors& in) { return pair(in).second; }, inputs);
  }
  const TensorOp normalise = [](const Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-3); };
  expect_derivatives(normalise, {normal({3, 7}), normal({7}), normal({7})});
  expect_derivatives(normalise, {normal({2, 2, 5}), Tensor(), normal({5})});
  expect_derivatives(normalise, {normal({4}), normal({4}), Tensor()});
  expect_derivatives([](const Tensors& in) { return layer_norm(in[0].t(), {}, {}); }, {normal({5, 3})});
  const TensorOp rms = [](const Tensors& in) { return rms_norm(in[0], in[1], 1e-3); };
  for (const Tensor& weight : {normal({5}), Tensor()}) expect_derivatives(rms, {normal({2, 3, 5}), weight});
  expect_derivatives([](const Tensors& in) { return rms_norm(in[0].t()); }, {normal({5, 3})});
  const auto fused = [&](const auto& op) {
    return [&, op](const Tensors& in) {
      return op(in[0], in[1], in[2], in[3], 1e-3, DropoutOptions{.p = 0.4, .generator = same_draws()});
    };
  };
  const Tensors inputs = {normal({3, 9}), normal({3, 9}), normal({9}), normal({9})};
  expect_derivatives(fused(dropout_residual_layer_norm), inputs);
  const auto with_sum = fused(dropout_residual_sum_layer_norm);
  expect_derivatives([&](const Tensors& in) { return with_sum(in).sum * 2 + with_sum(in).norm; }, inputs);
  expect_derivatives([&](const Tensors& in) { return with_sum(in).sum; }, inputs);
  expect_derivatives([&](const Tensors& in) { return with_sum(in).norm; }, inputs);
}

TEST_F(OpsGradcheck, SoftmaxLossesDropout) {
  for (const int d : {0, 1, -1}) {
    expect_derivatives([&](const Tensors& in) { return softmax(in[0], d); }, {normal({3, 4, 5})});
    expect_derivatives([&](const Tensors& in) { return log_softmax(in[0], d); }, {normal({3, 4, 5})});
  }
  expect_derivatives([](const Tensors& in) { return softmax(in[0]); }, {normal({})});
  const Tensor targets = from_vector<int64_t>({1, 0, -100, 4, 2}, {5}), weights = tensor({1, 2, 3, 0, 0.5});
  for (const LossReduction reduction : {LossReduction::kMean, LossReduction::kSum, LossReduction::kNone})
    for (const double smoothing : {0.0, 0.3}) {
      CrossEntropyOptions options{.label_smoothing = smoothing, .reduction = reduction};
      const TensorOp loss = [&](const Tensors& in) { return cross_entropy(in[0], targets, options); };
      expect_derivatives(loss, {normal({5, 5})});
      options.row_weights = weights;
      expect_derivatives(loss, {normal({5, 5})});
    }
  expect_derivatives([](const Tensors& in) { return mse_loss(in[0], in[1]); }, {normal({3, 2}), normal({3, 2})});
  expect_derivatives([&](const Tensors& in) { return dropout(in[0].t(), {.p = 0.5, .generator = same_draws()}); },
                     {normal({5, 7})});
}

TEST_F(OpsGradcheck, Indexing) {
  const Tensor ids = from_vector<int64_t>({2, 0, 2, 3, 0, 0}, {2, 3});
  expect_derivatives([&](const Tensors& in) { return embedding(in[0], ids); }, {normal({4, 3})});
  expect_derivatives([&](const Tensors& in) { return embedding(in[0].t(), ids.to(int32).t()); }, {normal({3, 4})});
  // The second derivative by the gradient of the look-up, which the padding row does not have.
  const TensorOp padded = [&](const Tensors& in) {
    const Tensor y = embedding(in[0], ids, 2);
    const GradMode on(true);
    return grad({y}, {in[0]}, {.gradients = {square(in[1])}, .create_graph = true})[0];
  };
  expect_derivatives(padded, {normal({4, 3}), normal({2, 3, 3})});
  const Tensor index = from_vector<int64_t>({1, 1, 0}, {3});
  for (const int d : {0, 1, 2})
    expect_derivatives([&](const Tensors& in) { return index_select(in[0], d, index); }, {normal({2, 3, 2})});
  expect_derivatives([&](const Tensors& in) { return index_select(in[0], 0, index); }, {normal({4})});
  expect_derivatives([&](const Tensors& in) { return gather(in[0].t(), 1, ids); }, {normal({4, 3})});
  for (const int d : {0, -1}) {
    const TensorOp stacked = [&](const Tensors& in) { return square(stack({in[0], in[1], in[0]}, d)); };
    expect_derivatives(stacked, {normal({2, 3}), normal({2, 3})});
    const TensorOp joined = [&](const Tensors& in) { return square(cat({in[0], in[1].t(), in[0]}, d)); };
    expect_derivatives(joined, {normal({3, 3}), normal({3, 3})});
  }
}

TEST_F(OpsGradcheck, SortingAndRunningSums) {
  const auto check = [&](const TensorOp& op, const Shape& shape) {
    expect_derivatives([&](const Tensors& in) { return square(op(in)); }, {distinct(shape)});
  };
  for (const int d : {0, 1, -1})
    for (const bool flag : {false, true}) {
      check([&](const Tensors& in) { return sort(in[0], d, flag).values; }, {3, 4});
      check([&](const Tensors& in) { return topk(in[0].t(), 2, d, flag).values; }, {3, 4});
      check([&](const Tensors& in) { return topk(in[0], 3, d, true, flag).values; }, {4, 3});
      check([&](const Tensors& in) { return cumsum(flag ? in[0].t() : in[0], d); }, {3, 4});
    }
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 2}, Shape{2, 0}}) {
    check([](const Tensors& in) { return sort(in[0], 0).values; }, shape);
    check([](const Tensors& in) { return cumsum(in[0], 0); }, shape);
  }
  const Tensor mask = from_vector<bool>({true, false, true, true}, {4});
  check([&](const Tensors& in) { return masked_select(in[0], mask); }, {3, 4});
  check([&](const Tensors& in) { return masked_select(in[0].t(), mask); }, {4, 1});
  check([&](const Tensors& in) { return masked_select(in[0].slice(0, 1, 8, 2), mask); }, {8});
  check([&](const Tensors& in) { return masked_select(in[0], logical_not(mask)); }, {});
  check([&](const Tensors& in) { return masked_select(in[0], zeros({1}, {.dtype = boolean})); }, {2});
}

TEST_F(OpsGradcheck, Attention) {
  const SequenceLayout packed = packed_layout({3, 0, 4, 1}), keys = packed_layout({2, 1, 5, 3});
  for (const double p : {0.0, 0.3})
    for (const bool causal : {false, true}) {
      const auto options = [&] {
        return AttentionOptions{.causal = causal, .window = causal ? 2 : -1, .dropout = p, .generator = same_draws()};
      };
      expect_derivatives([&](const Tensors& in) { return self_attention(in[0], packed, options()); },
                         {normal({8, 3, 2, 4})});
      const TensorOp general = [&](const Tensors& in) {
        return attention(in[0], in[1], in[2].slice(1, 0, 1), packed, keys, options());
      };
      expect_derivatives(general, {normal({8, 2, 3}), normal({11, 1, 3}), normal({11, 2, 3})});
    }
  const Tensor mask = from_vector<uint8_t>({1, 1, 1, 1, 0, 0}, {2, 3});
  const SequenceLayout padded = padded_layout(2, 3, mask);
  expect_derivatives([&](const Tensors& in) { return self_attention(in[0], padded, {.scale = 0.7, .bias = in[1]}); },
                     {normal({6, 3, 2, 3}), normal({1, 2, 3, 3})});
}

/// The Euclidean norm, also where it is 0.
class VectorNorm : public DerivativeTest {
 protected:
  static Tensor wanted(Tensor x) { return x.set_requires_grad(true); }
};

TEST_F(VectorNorm, OverAllAndOverDimensions) {
  const Tensor x = normal({3, 5, 2}).detach();
  const std::vector<double> v = x.to_vector<double>();
  double all = 0;
  for (const double value : v) all += value * value;
  // Half the relative error of a sum of 30 squares, and the error of the root, on both sides.
  EXPECT_NEAR(norm(x).item<double>(), std::sqrt(all), 34 * 0x1p-53 * std::sqrt(all));
  const std::vector<double> rows = norm(x, {1}).to_vector<double>();
  ASSERT_EQ(norm(x, {1}).shape(), Shape({3, 2}));
  EXPECT_EQ(norm(x, {1, -1}, true).shape(), Shape({3, 1, 1}));
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 2; ++k) {
      double s = 0;
      for (size_t j = 0; j < 5; ++j) s += v[i * 10 + j * 2 + k] * v[i * 10 + j * 2 + k];
      EXPECT_NEAR(rows[i * 2 + k], std::sqrt(s), 9 * 0x1p-53 * std::sqrt(s));
    }
  EXPECT_THROW(norm(x, {0, -3}), Error);
  EXPECT_EQ(norm(zeros({0})).item<double>(), 0);
  EXPECT_NEAR(norm(arange(0, 4)).item<double>(), std::sqrt(14.0), 0x1p-22);  // integers, in fp32
  EXPECT_EQ(autocast(cpu, bfloat16, [&] { return norm(ones({7}, {.dtype = bfloat16})); }).dtype(), float32);
}

TEST_F(VectorNorm, DerivativesByFiniteDifferences) {
  for (const std::vector<int>& dims : {std::vector<int>{}, {0}, {-1}, {0, 1}})
    for (const bool keepdim : {false, true})
      expect_derivatives([&](const Tensors& in) { return norm(in[0], dims, keepdim); }, {normal({3, 4})});
}

TEST_F(VectorNorm, TheGradientAtZeroIsZero) {
  for (const DType dtype : {float64, float32, bfloat16, float16}) {
    const Tensor x = zeros({5}, {.dtype = dtype, .requires_grad = true});
    norm(x).backward();
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(5, 0)) << dtype;
  }
  const Tensor rows = wanted(from_vector<double>({3, 4, 0, 0, 0, -2}, {3, 2}));
  const Tensor dy = from_vector<double>({10, 20, 30}, {3});
  norm(rows, {1}).backward(dy);
  EXPECT_EQ(rows.grad().to_vector<double>(), (std::vector<double>{6, 8, 0, 0, 0, -30}));
  const Tensor kept = wanted(rows.detach().clone());
  norm(kept, {1}, true).backward(dy.reshape({3, 1}));
  EXPECT_EQ(kept.grad().to_vector<double>(), rows.grad().to_vector<double>());
}

TEST_F(VectorNorm, TheSecondDerivativeAtZeroIsFinite) {
  const Tensor rows = wanted(from_vector<double>({3, 4, 0, 0}, {2, 2}));
  const Tensor first = grad({sum(norm(rows, {1}))}, {rows}, {.create_graph = true})[0];
  expect_near(first[0], {0.6, 0.8}, 1e-15);
  expect_near(first[1], {0, 0}, 0);
  // d/dx of the sum of x / |x|, by hand at (3, 4): (y^2 - x y, x^2 - x y) / |x|^3.
  sum(first).backward();
  expect_near(rows.grad()[0], {(16 - 12) / 125.0, (9 - 12) / 125.0}, 1e-15);
  expect_near(rows.grad()[1], {0, 0}, 0);
  // The incoming gradient has a history too: of w, d/dw of the sum of w x / |x|.
  const Tensor w = wanted(from_vector<double>({2, 5}, {2}));
  sum(grad({sum(norm(rows, {1}) * w)}, {rows}, {.create_graph = true})[0]).backward();
  EXPECT_NEAR(w.grad().to_vector<double>()[0], 1.4, 1e-15);
  EXPECT_EQ(w.grad().to_vector<double>()[1], 0);
  // A gradient penalty with a zero gradient.
  const Tensor x = zeros({4}, {.dtype = float64, .requires_grad = true});
  const Tensor inner = grad({sum(square(x))}, {x}, {.create_graph = true})[0];
  square(norm(inner) - 1.0).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(4, 0));
}

TEST_F(VectorNorm, InfinityAndNaNStay) {
  const Tensor x = wanted(from_vector<double>({INFINITY, 1}, {2}));
  norm(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>()[1], 0);
  EXPECT_TRUE(std::isnan(x.grad().to_vector<double>()[0]));
  const Tensor y = wanted(from_vector<double>({NAN, 1}, {2}));
  norm(y).backward();
  for (const double g : y.grad().to_vector<double>()) EXPECT_TRUE(std::isnan(g));
}

}  // namespace
}  // namespace tern::test
