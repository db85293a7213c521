// Values and derivatives where a function has an edge: at bounds and kinks, at zeros that are divided by, at numbers
// whose exponential or square overflows, and at infinity. Expected are formulas in long double and PyTorch's numbers.

#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

constexpr double kInf = INFINITY;

Tensor leaf(const std::vector<double>& values, DType dtype = float32) {
  return from_vector(values, {static_cast<int64_t>(values.size())}, {.dtype = dtype}).set_requires_grad(true);
}

/// The gradient of the sum of fn(x) by x, and the one that can be differentiated.
struct Gradients {
  std::vector<double> plain, recorded;
};
Gradients gradients_of(const TensorOp& fn, const std::vector<double>& values, DType dtype = float32) {
  const Tensor x = leaf(values, dtype), z = leaf(values, dtype);
  return {grad({sum(fn({x}))}, {x})[0].to_vector<double>(),
          grad({sum(fn({z}))}, {z}, {.create_graph = true})[0].to_vector<double>()};
}
void expect_gradients(const char* name, const TensorOp& fn, const std::vector<double>& values,
                      const std::vector<double>& want, double tolerance = 1e-6) {
  SCOPED_TRACE(name);
  const Gradients got = gradients_of(fn, values);
  ASSERT_EQ(got.plain.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double limit = tolerance * std::max(1.0, std::abs(want[i]));
    EXPECT_TRUE(std::abs(got.plain[i] - want[i]) <= limit) << values[i] << ": " << got.plain[i];
    EXPECT_TRUE(std::abs(got.recorded[i] - want[i]) <= limit) << values[i] << " recorded: " << got.recorded[i];
  }
}

using Real = long double;
using Slope = std::function<Real(Real)>;
Real logistic(Real x) { return 1 / (1 + std::exp(-x)); }
Real silu_slope(Real x) { return logistic(x) * (1 + x * logistic(-x)); }
Real normal_density(Real x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Real(-1))); }
Real mish_slope(Real x) {
  if (x > 60) return 1;
  const Real e = std::exp(x), d = e * (e + 2) + 2;
  return e * (4 * (x + 1) + e * (4 * x + 6 + e * (4 + e))) / (d * d);
}
Real gelu_tanh_slope(Real x) {
  if (std::abs(x) > 40) return x > 0 ? 1 : 0;
  const Real scale = std::sqrt(2 / std::acos(Real(-1))), t = std::tanh(scale * (x + 0.044715L * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * scale * (1 + 3 * 0.044715L * x * x);
}

/// An op of one input, its derivative, and whether it has one at infinity.
struct Smooth {
  const char* name;
  TensorOp op;
  Slope slope;
  bool at_infinity = false;
};
std::vector<Smooth> smooth_ops() {
  const auto ones_of = [](const Tensor& x) { return ones(x.shape(), x.options()); };
  const BceWithLogitsOptions losses{.reduction = LossReduction::kNone};
  return {
      {"silu", [](const Tensors& in) { return silu(in[0]); }, silu_slope},
      {"swiglu", [=](const Tensors& in) { return swiglu(in[0], ones_of(in[0])); }, silu_slope},
      {"softplus", [](const Tensors& in) { return softplus(in[0]); }, logistic, true},
      {"logsigmoid", [](const Tensors& in) { return logsigmoid(in[0]); }, [](Real x) { return logistic(-x); }, true},
      {"sigmoid", [](const Tensors& in) { return sigmoid(in[0]); }, [](Real x) { return logistic(x) * logistic(-x); },
       true},
      {"tanh", [](const Tensors& in) { return tanh(in[0]); }, [](Real x) { return 1 - std::tanh(x) * std::tanh(x); },
       true},
      {"mish", [](const Tensors& in) { return mish(in[0]); }, mish_slope},
      {"gelu", [](const Tensors& in) { return gelu(in[0]); },
       [](Real x) { return std::erfc(-x / std::sqrt(Real(2))) / 2 + x * normal_density(x); }},
      {"gelu_tanh", [](const Tensors& in) { return gelu_tanh(in[0]); }, gelu_tanh_slope},
      {"elu", [](const Tensors& in) { return elu(in[0]); }, [](Real x) { return x > 0 ? 1 : std::exp(x); }},
      {"celu", [](const Tensors& in) { return celu(in[0], 2); }, [](Real x) { return x > 0 ? 1 : std::exp(x / 2); }},
      {"selu", [](const Tensors& in) { return selu(in[0]); },
       [](Real x) { return 1.0507009873554805L * (x > 0 ? 1 : 1.6732632423543773L * std::exp(x)); }, true},
      {"softsign", [](const Tensors& in) { return softsign(in[0]); },
       [](Real x) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); }},
      {"erf", [](const Tensors& in) { return erf(in[0]); },
       [](Real x) { return 2 * normal_density(x * std::sqrt(Real(2))) * std::sqrt(Real(2)); }},
      {"erfc", [](const Tensors& in) { return erfc(in[0]); },
       [](Real x) { return -2 * normal_density(x * std::sqrt(Real(2))) * std::sqrt(Real(2)); }},
      {"atan", [](const Tensors& in) { return atan(in[0]); }, [](Real x) { return 1 / (1 + x * x); }},
      {"asinh", [](const Tensors& in) { return asinh(in[0]); }, [](Real x) { return 1 / std::sqrt(1 + x * x); }},
      {"logaddexp", [](const Tensors& in) { return logaddexp(in[0], zeros({}, in[0].options())); }, logistic},
      {"logaddexp by b", [](const Tensors& in) { return logaddexp(zeros({}, in[0].options()), in[0]); }, logistic},
      {"soft_margin_loss",
       [=](const Tensors& in) { return soft_margin_loss(in[0], ones_of(in[0]), LossReduction::kNone); },
       [](Real x) { return -logistic(-x); }},
      {"bce_with_logits of 1",
       [=](const Tensors& in) { return binary_cross_entropy_with_logits(in[0], ones_of(in[0]), losses); },
       [](Real x) { return -logistic(-x); }},
      {"bce_with_logits of 0",
       [=](const Tensors& in) { return binary_cross_entropy_with_logits(in[0], in[0].detach() * 0.0, losses); },
       logistic},
      {"sigmoid_focal_loss",
       [=](const Tensors& in) { return sigmoid_focal_loss(in[0], ones_of(in[0]), {.alpha = -1, .gamma = 2}); },
       [](Real x) {
         const Real p = logistic(x), rest = logistic(-x),
                    log_p = x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
         return rest * rest * (2 * p * log_p - rest);
       }},
  };
}

TEST(Edges, SecondDerivativesWhereExponentialsOverflow) {
  for (const DType dtype : {float32, float64})
    for (const Smooth& f : smooth_ops()) {
      std::vector<double> at = {1e-30, 0.5, 3, 17, 50, 86, 88, 88.5, 89, 90, 100, 104, 200, 750, 1e4, 1e15};
      if (f.at_infinity) at.push_back(kInf);
      for (size_t i = 0, n = at.size(); i < n; ++i) at.push_back(-at[i]);
      const Tensor x = leaf(at, dtype);
      const Tensor first = grad({sum(f.op({x}))}, {x}, {.create_graph = true})[0];
      const Tensor by_kernels = grad({sum(first)}, {x}, {.retain_graph = true})[0];
      const Tensor by_ops = grad({sum(first)}, {x}, {.create_graph = true})[0];
      const Tensor third = by_ops.requires_grad() ? grad({sum(by_ops)}, {x}, {.allow_unused = true})[0] : Tensor();
      for (size_t i = 0; i < at.size(); ++i) {
        SCOPED_TRACE(testing::Message() << f.name << " at " << at[i]);
        const auto value = [&](const Tensor& t) { return t.to_vector<double>()[i]; };
        const Real point = at[i], step = 1e-5L;
        const bool infinite = std::isinf(at[i]);
        const double slope = static_cast<double>(f.slope(point));
        // The kinks of elu, selu, celu and softsign are at 0.
        const Real low = std::abs(point) < step ? point : point - step,
                   high = std::abs(point) < step ? point : point + step;
        const double bend =
            infinite || low == high ? 0 : static_cast<double>((f.slope(high) - f.slope(low)) / (high - low));
        EXPECT_NEAR(value(first), slope, 3e-6 * std::max(1.0, std::abs(slope)));
        if (infinite || low < high) {
          EXPECT_NEAR(value(by_kernels), bend, 1e-5);
          EXPECT_NEAR(value(by_ops), bend, 1e-5);
        }
        EXPECT_TRUE(infinite || !third.defined() || std::isfinite(value(third)));
      }
    }
}

/// PyTorch 2.15's.
TEST(Edges, GradientsAtBounds) {
  const std::vector<double> x = {-3, -1, 0, 1, 2, 3, 6, kInf, -kInf};
  const auto all = [&](const char* name, const std::function<Tensor(const Tensor&)>& op,
                       const std::vector<double>& want) {
    expect_gradients(
        name, [&](const Tensors& in) { return op(in[0]); }, x, want);
    // Of a tensor that is no leaf.
    expect_gradients(
        name, [&](const Tensors& in) { return op(in[0] * 1.0); }, x, want);
  };
  all("clamp", [](const Tensor& t) { return clamp(t, -1, 2); }, {0, 0, 1, 1, 0, 0, 0, 0, 0});
  all("clamp from below", [](const Tensor& t) { return clamp(t, -1, kInf); }, {0, 0, 1, 1, 1, 1, 1, 1, 0});
  all("clamp from above", [](const Tensor& t) { return clamp(t, -kInf, 2); }, {1, 1, 1, 1, 0, 0, 0, 0, 1});
  all("clamp to a number", [](const Tensor& t) { return clamp(t, 1, 1); }, {0, 0, 0, 0, 0, 0, 0, 0, 0});
  all("relu6", [](const Tensor& t) { return relu6(t); }, {0, 0, 0, 1, 1, 1, 0, 0, 0});
  all("hardtanh", [](const Tensor& t) { return hardtanh(t, -1, 2); }, {0, 0, 1, 1, 0, 0, 0, 0, 0});
  all("hardsigmoid", [](const Tensor& t) { return hardsigmoid(t); }, {0, 1. / 6, 1. / 6, 1. / 6, 1. / 6, 0, 0, 0, 0});
  all("hardswish", [](const Tensor& t) { return hardswish(t); }, {0, 1. / 6, 0.5, 5. / 6, 7. / 6, 1, 1, 1, 0});
  all("threshold", [](const Tensor& t) { return threshold(t, -1, 7); }, {0, 0, 1, 1, 1, 1, 1, 1, 0});
  all("softshrink", [](const Tensor& t) { return softshrink(t, 1); }, {1, 0, 0, 0, 1, 1, 1, 1, 1});
  all("hardshrink", [](const Tensor& t) { return hardshrink(t, 1); }, {1, 0, 0, 0, 1, 1, 1, 1, 1});
  all("relu", [](const Tensor& t) { return relu(t); }, {0, 0, 0, 1, 1, 1, 1, 1, 0});
  const Tensor low = full({}, -1), high = full({}, 2);
  all("clamp to tensors", [&](const Tensor& t) { return clamp(t, low, high); }, {0, 0.5, 1, 1, 0.5, 0, 0, 0, 0});
  all("logit", [](const Tensor& t) { return logit(t / 10.0 + 0.5, 0.4); }, {0, 1. / 2.4, 0.4, 1. / 2.4, 0, 0, 0, 0, 0});

  const std::vector<double> near = {-3, std::nextafter(-3.0F, 0.0F), 3, std::nextafter(3.0F, 4.0F), 2.5};
  for (const DType dtype : {float32, float64}) {
    const Tensor at = leaf(near, dtype).detach();
    EXPECT_EQ(hardsigmoid(at).to_vector<double>()[0], 0);
    EXPECT_EQ(hardswish(at).to_vector<double>()[0], 0);
    EXPECT_GE(min(hardsigmoid(at)).item<double>(), 0);
    EXPECT_LE(max(hardsigmoid(at)).item<double>(), 1);
  }
}

TEST(Edges, LossesAtTheirKinks) {
  const Tensor one = ones({3}), minus = one * -1.0;
  const MarginOptions margin{.margin = 1, .reduction = LossReduction::kNone};
  expect_gradients("margin_ranking", [&](const Tensors& in) { return margin_ranking_loss(in[0], one, one, margin); },
                   {2, 1, 0}, {0, -1, -1});
  expect_gradients("hinge_embedding", [&](const Tensors& in) { return hinge_embedding_loss(in[0], minus, margin); },
                   {2, 1, 0}, {0, 0, -1});
  const auto row = [](const Tensor& x) { return x.reshape({1, 2}); };
  expect_gradients(
      "triplet",
      [&](const Tensors& in) {
        return triplet_margin_loss(row(in[0]), row(tensor({1, 0})), row(tensor({2, 0})), {.margin = 1, .eps = 0});
      },
      {0, 0}, {0, 0});
  expect_gradients("cosine_embedding",
                   [&](const Tensors& in) {
                     return cosine_embedding_loss(row(in[0]), row(tensor({0, 1})), minus.slice(0, 0, 1), {});
                   },
                   {1, 0}, {0, 0});
  const auto bend = [](const TensorOp& fn) {
    return [=](const Tensors& in) { return grad({sum(fn(in))}, {in[0]}, {.create_graph = true})[0]; };
  };
  const Tensor zero = zeros({5});
  for (const auto& loss :
       std::vector<TensorOp>{[&](const Tensors& in) { return huber_loss(in[0], zero, 1, LossReduction::kNone); },
                             [&](const Tensors& in) { return smooth_l1_loss(in[0], zero, 1, LossReduction::kNone); }}) {
    expect_gradients("huber", loss, {-1, 0, 1, 2, -2}, {-1, 0, 1, 1, -1});
    expect_gradients("its second", bend(loss), {-1, 0, 1, 2, -2}, {0, 1, 0, 0, 0});
  }
}

TEST(Edges, BinaryCrossEntropyAtZeroAndOne) {
  const std::vector<double> p = {0, 0, 0, 1, 1, 1, 1e-5, 1e-5, 0.25}, t = {0, 1, 0.5, 0, 1, 0.5, 0, 1, 0.75};
  const Tensor x = leaf(p), target = leaf(t);
  const auto loss_of = [](const Tensor& a, const Tensor& b) {
    return binary_cross_entropy(a, b, {.reduction = LossReduction::kNone});
  };
  const std::vector<double> losses = {0, 100, 50, 100, 0, 50, 1.000005e-5, 11.512925, 1.1116309},
                            slopes = {0, -1e12, -5e11, 1e12, 0, 5e11, 1.00001, -1e5, -8 / 3.},
                            bends = {0, 1e24, 5e23, 1e24, 0, 5e23, 1.00002, 1e10, 12.444445};
  const auto expect = [](const char* name, const Tensor& got, const std::vector<double>& want) {
    SCOPED_TRACE(name);
    const std::vector<double> values = got.to_vector<double>();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], 1e-5 * std::abs(want[i])) << i;
  };
  const Tensor losses_of_x = loss_of(x, target);
  expect("losses", losses_of_x, losses);
  const Tensors first = grad({sum(losses_of_x)}, {x, target}, {.create_graph = true});
  expect("slopes", first[0], slopes);
  EXPECT_TRUE(all_finite(first[1]));
  expect("by the target", first[1].slice(0, 8), {std::log(3.0)});
  const Tensors second = grad({sum(first[0])}, {x, target}, {.create_graph = true});
  expect("bends", second[0], bends);
  for (const Tensor& g : {second[1], grad({sum(first[1])}, {x})[0], grad({sum(second[1])}, {x})[0]})
    EXPECT_TRUE(all_finite(g));
  Generator generator = fresh_generator(3);
  const Tensor inside = rand({4, 3}, generator, {.dtype = float64}) * 0.8 + 0.1,
               weights = rand({4, 3}, generator, {.dtype = float64});
  expect_derivatives([&](const Tensors& in) { return loss_of(in[0], in[1]); },
                     {Tensor(inside).set_requires_grad(true), Tensor(weights).set_requires_grad(true)});
}

TEST(Edges, QuantilesOfInfiniteElements) {
  const Tensor q = tensor({0, 0.25, 0.3, 0.5, 0.7, 0.75, 1});
  const std::vector<double> data = {kInf, -kInf, 1, 2, -kInf, kInf};
  const auto expect = [](const Tensor& got, const std::vector<double>& want) {
    const std::vector<double> values = got.to_vector<double>();
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(values[i] == want[i] || std::abs(values[i] - want[i]) < 1e-6) << i << ": " << values[i];
  };
  const Tensor x = leaf(data);
  expect(quantile(x, q), {-kInf, -kInf, -kInf, 1.5, kInf, kInf, kInf});
  expect(quantile(x, q, {}, false, Interpolation::kMidpoint), {-kInf, -kInf, -kInf, 1.5, kInf, kInf, kInf});
  std::vector<double> with_nan = data;
  with_nan.insert(with_nan.begin() + 2, NAN);
  expect(nanquantile(leaf(with_nan), q), {-kInf, -kInf, -kInf, 1.5, kInf, kInf, kInf});
  EXPECT_EQ(quantile(leaf({1, kInf, kInf}), 0.5).item<double>(), kInf);
  EXPECT_EQ(quantile(leaf({1, 2, kInf}), 0.5).item<double>(), 2);
  EXPECT_EQ(quantile(leaf({-kInf, -kInf, 1, 2}), 0.25).item<double>(), -kInf);
  EXPECT_TRUE(std::isnan(quantile(leaf({-kInf, kInf}), 0.5).item<double>()));
  EXPECT_TRUE(std::isnan(quantile(leaf({1, NAN}), 0.5).item<double>()));
  expect(grad({sum(quantile(x, q))}, {x})[0], {1.25, 1, 1.25, 1.25, 1.25, 1});
  EXPECT_EQ(quantile(leaf({-3e38, 3e38}), 0.5).item<double>(), 0);  // their difference overflows
}

/// Deviations whose squares leave the range of fp32, along every layout of the kernel.
TEST(Edges, DeviationsOfHugeAndTinyNumbers) {
  for (const double scale : {1e19, 3e37, 1e-30}) {
    const std::vector<double> data = {scale, -scale, 3 * scale};
    for (const bool columns : {false, true}) {
      Tensor x = leaf(data).detach().reshape({1, 3}).expand({40, 3}).contiguous();
      x = columns ? x.t().contiguous().set_requires_grad(true) : x.set_requires_grad(true);
      const Tensor y = tern::std(x, {columns ? 0 : 1});
      for (const double value : y.to_vector<double>()) EXPECT_NEAR(value, 2 * scale, 1e-6 * scale);
      const std::vector<double> slope = grad({sum(y)}, {x})[0].to_vector<double>();
      const std::vector<double> of_row = columns ? std::vector<double>{slope[0], slope[40], slope[80]}
                                                 : std::vector<double>{slope[0], slope[1], slope[2]};
      for (const auto& [got, want] : {std::pair(of_row[0], 0.0), {of_row[1], -0.5}, {of_row[2], 0.5}})
        EXPECT_NEAR(got, want, 1e-6);
    }
  }
  EXPECT_EQ(var(leaf({1e19, -1e19, 3e19})).item<double>(), kInf);  // 4e38 is beyond fp32
  EXPECT_EQ(tern::std(full({7}, 3)).item<double>(), 0);
  EXPECT_EQ(tern::std(zeros({7})).item<double>(), 0);
  EXPECT_TRUE(std::isnan(tern::std(leaf({1, kInf})).item<double>()));
}

/// Variances of the columns of values whose mean is far larger than their deviation.
TEST(Edges, VariancesFarFromZero) {
  Generator generator = fresh_generator(9);
  for (const double ratio : {100.0, 1e3, 1e4, -1e4})
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{8192, 3}, {5000, 7}, {300, 130}, {9, 2}}) {
      SCOPED_TRACE(testing::Message() << ratio << " of " << rows << " x " << columns);
      const Tensor x = randn({rows, columns}, generator) + ratio, mean = zeros({columns}), variance = zeros({columns});
      const std::vector<double> values = x.to_vector<double>();
      batch_norm(x, mean, variance, {}, {}, {.training = true, .momentum = 1});
      const std::vector<std::pair<const char*, Tensor>> others = {{"var", var(x, {0})},
                                                                  {"var of rows", var(x.t().contiguous(), {1})},
                                                                  {"std", square(tern::std(x, {0}).to(float64))},
                                                                  {"batch_norm", variance}};
      const Tensor normal = layer_norm(x.t().contiguous(), {}, {}, 0),
                   grouped = group_norm(x.t().contiguous().unsqueeze(0), columns, {}, {}, 0);
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0, squares = 0;
        for (int64_t r = 0; r < rows; ++r) sum += values[static_cast<size_t>(r * columns + c)];
        const double n = static_cast<double>(rows), center = sum / n;
        for (int64_t r = 0; r < rows; ++r)
          squares += std::pow(values[static_cast<size_t>(r * columns + c)] - center, 2);
        const auto column = static_cast<size_t>(c);
        for (const auto& [name, got] : others)
          EXPECT_NEAR(got.to_vector<double>()[column] / (squares / (n - 1)), 1, 4e-6) << name << " of " << c;
        EXPECT_NEAR(mean.to_vector<double>()[column], center, 1e-7 * std::abs(ratio));
        // What is normalised by the right variance has the variance 1, whatever the error of its mean.
        for (const Tensor& y : {normal.select(0, c), grouped.select(0, 0).select(0, c)})
          EXPECT_NEAR(var(y.to(float64), {}, 0).item<double>(), 1, 8e-6) << c;
      }
    }
}

TEST(Edges, ProductsWithLogarithmsAtZero) {
  const Tensor a = leaf({0, 0, 0, 2, -0.0}), b = leaf({-1, 1, -2, 0.5, 0});
  const Tensor y = xlog1py(a, b);
  expect_near(y, {0, 0, 0, 2 * std::log(1.5), 0}, 1e-6);
  const Tensors by = grad({sum(y)}, {a, b});
  expect_near(by[0], {0, std::log(2.0), 0, std::log(1.5), 0}, 1e-6);
  const Tensor c = leaf({0, 0, 0, 2}), d = leaf({0, 2, -1, 0.5});
  const Tensor z = xlogy(c, d);
  expect_near(z, {0, 0, 0, 2 * std::log(0.5)}, 1e-6);
  expect_near(grad({sum(z)}, {c})[0], {0, std::log(2.0), 0, std::log(0.5)}, 1e-6);

  const Tensors sides = {leaf({0, 0, 3}), leaf({0, 2, 4})};
  for (const bool of_ops : {false, true}) {
    const Tensors angle = grad({sum(atan2(sides[0], sides[1]))}, sides, {.create_graph = true});
    expect_near(angle[0], {0, 0.5, 0.16}, 1e-6);
    expect_near(angle[1], {0, 0, -0.12}, 1e-6);
    const Tensors second = grad({sum(angle[0])}, sides, {.create_graph = of_ops});
    expect_near(second[0], {0, 0, -2 * 3 * 4 / 625.}, 1e-6);
    expect_near(second[1], {0, -0.25, (9 - 16) / 625.}, 1e-6);
  }
  // The second derivative of a power by both, which PyTorch has NaN for at the base 0.
  const Tensor base = leaf({0, 2}), exponent = leaf({3, 3});
  const Tensor by_base = grad({sum(pow(base, exponent))}, {base}, {.create_graph = true})[0];
  expect_near(grad({sum(by_base)}, {exponent})[0], {0, 4 + 12 * std::log(2.0)}, 1e-5);
  EXPECT_EQ(square(tensor({1, 0, 1}).to(boolean)).dtype(), int64);
}

/// sin(a) / a and its derivatives by their power series, a = pi x.
TEST(Edges, SincNearZero) {
  const double pi = std::acos(-1.0);
  const auto series = [](double a, int derivative) {
    Real sum = 0, factorial = 1;
    for (int k = 0; k < 20; ++k) {
      if (k > 0) factorial *= Real(2 * k) * (2 * k + 1);
      Real term = (k % 2 == 1 ? -1 : 1) / factorial;
      for (int d = 0; d < derivative; ++d) term *= 2 * k - d;
      if (2 * k >= derivative) sum += term * std::pow(Real(a), 2 * k - derivative);
    }
    return static_cast<double>(sum);
  };
  const std::vector<double> at = {0,    1e-40, 1e-20, -1e-10, 1e-5, -1e-4, 1e-3, -0.01, 0.03,
                                  -0.1, 0.2,   0.3,   0.318,  0.32, -0.33, 0.5,  -0.7,  1};
  for (const DType dtype : {float32, float64}) {
    const double tolerance = dtype == float32 ? 1e-5 : 1e-13;
    const Tensor x = leaf(at, dtype), y = sinc(x);
    const Tensor first = grad({sum(y)}, {x}, {.create_graph = true})[0];
    const Tensor second = grad({sum(first)}, {x}, {.create_graph = true})[0];
    const Tensor third = grad({sum(second)}, {x})[0];
    for (size_t i = 0; i < at.size(); ++i) {
      SCOPED_TRACE(at[i]);
      const double a = pi * x.to_vector<double>()[i];
      EXPECT_NEAR(y.to_vector<double>()[i], series(a, 0), tolerance);
      EXPECT_NEAR(first.to_vector<double>()[i], pi * series(a, 1), 3 * tolerance);
      EXPECT_NEAR(second.to_vector<double>()[i], pi * pi * series(a, 2), 10 * tolerance);
      EXPECT_NEAR(third.to_vector<double>()[i], pi * pi * pi * series(a, 3), 50 * tolerance);
    }
  }
}

TEST(Edges, VectorNormsOfOrderZeroAndInfinity) {
  const std::vector<double> data = {4, 4, -4, 0};
  const auto of_order = [](double p) { return [=](const Tensors& in) { return vector_norm(in[0], p); }; };
  expect_gradients("0", of_order(0), data, {0, 0, 0, 0});
  expect_gradients("infinity", of_order(kInf), data, {1. / 3, 1. / 3, -1. / 3, 0});
  expect_gradients("-infinity", of_order(-kInf), data, {0, 0, 0, 0});
  expect_gradients("1", of_order(1), data, {1, 1, -1, 0});
  for (const double p : {0.0, 1.0, 1.5, 2.0, 3.0, kInf}) {
    const Tensor x = zeros({2, 3}).set_requires_grad(true);
    sum(vector_norm(x, p, {1}, true)).backward();
    expect_near(x.grad(), std::vector<double>(6, 0), 0);
  }
  EXPECT_EQ(vector_norm(leaf(data), 0).item<double>(), 3);
}

/// One row of four pixels, sampled far outside.
TEST(Edges, GridSampleOfHugeCoordinates) {
  const Tensor image = from_vector<float>({5, 6, 7, 8}, {1, 1, 1, 4});
  for (const GridSampleMode mode : {GridSampleMode::kNearest, GridSampleMode::kLinear, GridSampleMode::kCubic})
    for (const bool corners : {false, true})
      for (const double far : {1e6, 0x1p29, 0x1p30, 0x1p31, 1e10, 0x1p62, 0x1p63, 1e20, 1e30, 3e38, kInf})
        for (const double sign : {1.0, -1.0}) {
          SCOPED_TRACE(testing::Message() << far * sign << " mode " << static_cast<int>(mode));
          const auto sampled = [&](GridPadding padding) {
            const Tensor grid = from_vector<double>({far * sign, 0}, {1, 1, 1, 2}).to(float32).set_requires_grad(true);
            const Tensor y = grid_sample(image, grid, {.mode = mode, .padding = padding, .align_corners = corners});
            const Tensor slope = y.requires_grad() ? grad({sum(y)}, {grid})[0] : Tensor();  // not of the nearest pixel
            const double along_row = slope.defined() ? slope.to_vector<double>()[0] : 0;
            EXPECT_TRUE(std::abs(along_row) < (padding == GridPadding::kReflection ? 10 : 1e-4)) << along_row;
            return y.item<double>();
          };
          EXPECT_NEAR(sampled(GridPadding::kBorder), sign > 0 ? 8 : 5, 1e-5);
          EXPECT_EQ(sampled(GridPadding::kZeros), 0);
          const double reflected = sampled(GridPadding::kReflection);
          EXPECT_TRUE(far < 0x1p29 ? reflected > 4 && reflected < 9 : std::abs(reflected - 5) < 1e-5) << reflected;
        }
}

TEST(Edges, InterpolateOfAnUnchangedSize) {
  Generator generator = fresh_generator(5);
  const Tensor x = randn({2, 3, 5, 7}, generator), row = randn({1, 2, 9}, generator),
               deep = randn({1, 2, 4, 5, 6}, generator);
  const auto factors = [](InterpolateMode mode, const std::vector<double>& by, bool antialias = false) {
    return InterpolateOptions{.scale_factor = by, .mode = mode, .antialias = antialias};
  };
  using Mode = InterpolateMode;
  for (const Tensor& images : {x, x.channels_last()}) {
    expect_equal(interpolate(images, factors(Mode::kNearest, {1.15, 1.1})), images);
    expect_equal(interpolate(images, factors(Mode::kLinear, {1.15, 1.1})), images);
    expect_equal(interpolate(images, factors(Mode::kLinear, {1.15, 1.1}, true)), images);
    expect_equal(interpolate(images, factors(Mode::kCubic, {1.15, 1.1}, true)), images);
    // Where one dimension changes, only this one is resized.
    expect_equal(interpolate(images, factors(Mode::kLinear, {1.15, 2})),
                 interpolate(images, {.size = std::vector<int64_t>{5, 14}, .mode = Mode::kLinear}));
  }
  expect_equal(interpolate(row, factors(Mode::kLinear, {1.05})), row);
  expect_equal(interpolate(deep, factors(Mode::kLinear, {1.1})), deep);
  // The others apply the factor: element i is that at the place i / factor.
  const std::vector<double> from = row.select(1, 0).to_vector<double>();
  const std::vector<double> to = interpolate(row, factors(Mode::kNearest, {1.05})).select(1, 0).to_vector<double>();
  for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], from[static_cast<size_t>(static_cast<double>(i) / 1.05)]);
}

/// Places are rounded to fp32 before their whole part is taken, also of fp64: 100 elements to 99 by PyTorch 2.15.
TEST(Edges, NearestPlacesOfDouble) {
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{{100, 99}, {49, 48}, {1000, 333}, {7, 300}})
    for (const InterpolateMode mode : {InterpolateMode::kNearest, InterpolateMode::kNearestExact}) {
      const Tensor x = arange(0, static_cast<double>(in), 1, {.dtype = float64}).reshape({1, 1, in});
      const std::vector<double> got =
          interpolate(x, {.size = std::vector<int64_t>{out}, .mode = mode}).to_vector<double>();
      const double scale = static_cast<double>(in) / static_cast<double>(out);
      for (size_t i = 0; i < got.size(); ++i) {
        const double place = scale * (static_cast<double>(i) + (mode == InterpolateMode::kNearest ? 0 : 0.5));
        EXPECT_EQ(got[i],
                  std::min(static_cast<double>(in - 1), std::floor(static_cast<double>(static_cast<float>(place)))))
            << in << " to " << out << " at " << i;
      }
    }
}

/// PyTorch's numbers of 1, 2, ..., n.
TEST(Edges, PoolsWithAWindowLargerThanTheImage) {
  const auto row = [](int64_t n) {
    return arange(1, static_cast<double>(n) + 1, 1, {.dtype = float32}).reshape({1, 1, n});
  };
  const MaxPoolOptions ceil{.stride = 2, .padding = 1, .ceil_mode = true};
  expect_near(max_pool1d(row(2), 5, ceil), {2}, 0);
  expect_near(avg_pool1d(row(2), 5, {.stride = 2, .padding = 1, .ceil_mode = true}), {0.75}, 1e-6);
  expect_near(avg_pool1d(row(2), 5, {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false}), {1.5},
              1e-6);
  expect_near(max_pool1d(row(2), 7, {.stride = 2, .padding = 3, .ceil_mode = true}), {2, 2}, 0);
  expect_near(lp_pool1d(row(3), 2, 5, {.stride = 3, .ceil_mode = true}), {4.830458641}, 1e-5);
  EXPECT_THROW(max_pool1d(row(2), 5, {.stride = 2, .padding = 1}), Error);
  EXPECT_THROW(max_pool1d(row(2), 6, {.stride = 2, .padding = 1, .ceil_mode = true}), Error);
}

/// The gradients are PyTorch's: those of a window of zeros are 0, not 0 times the infinite slope of the root.
TEST(Edges, GradientsOfPowerPoolsOfZeros) {
  for (const double power : {2.0, 3.0}) {
    const Tensor x = tensor({0, 0, 1, 0}, {.dtype = float64}).reshape({1, 1, 4}).set_requires_grad(true);
    sum(lp_pool1d(x, power, 2)).backward();
    expect_near(x.grad(), {0, 0, 1, 0}, 1e-12);
  }
}

/// A tensor without dimensions counts as one of one element, in its own dtype.
TEST(Edges, ScalarsAlongADimension) {
  const Tensor x = full({}, 3);
  for (const int dim : {0, -1}) {
    for (const bool keepdim : {false, true}) {
      for (const Tensor& y :
           {sum(x, {dim}, keepdim), mean(x, {dim}, keepdim), prod(x, {dim}, keepdim), max(x, {dim}, keepdim),
            aminmax(x, {dim}, keepdim).min, norm(x, {dim}, keepdim), logsumexp(x, {dim}, keepdim)}) {
        EXPECT_EQ(y.shape(), Shape{});
        EXPECT_EQ(y.item<double>(), 3);
      }
      EXPECT_EQ(argmax(x, dim, keepdim).shape(), Shape{});
      EXPECT_EQ(argmin(x, dim, keepdim).item<int64_t>(), 0);
    }
  }
  EXPECT_THROW(sum(x, {1}), Error);
  EXPECT_THROW(argmax(x, -2), Error);
  for (const DType dtype : {int64, int32, uint8}) {
    const Tensor y = bitwise_not(full({}, 3, {.dtype = dtype}));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.item<int64_t>(), dtype == uint8 ? 252 : -4);
  }
}

}  // namespace
}  // namespace tern::test
