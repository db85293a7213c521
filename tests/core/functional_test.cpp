// vjp, jvp, jacobian and hessian against closed forms and finite differences, and the text of a graph.

#include "tern/core/ops/functional.h"
#include "tern/core/autograd/graph_dot.h"
#include "tern/tests/core/core_test.h"

namespace tern::test {
namespace {

Tensor normals(const Shape& shape, Generator& g) { return randn(shape, g, {.dtype = float64}); }

/// The function of [3, 2] and [2, 4] gives [3, 4].
Tensor product(const std::vector<Tensor>& in) { return tanh(matmul(in[0], in[1])) * exp(in[0].slice(1, 0, 1)); }

TEST(Functional, ProductsWithTheJacobian) {
  Generator g = fresh_generator();
  const std::vector<Tensor> x = {normals({3, 2}, g), normals({2, 4}, g)};
  const std::vector<Tensor> j = jacobian(product, x);
  ASSERT_EQ(j[0].shape(), (Shape{3, 4, 3, 2}));
  ASSERT_EQ(j[1].shape(), (Shape{3, 4, 2, 4}));
  const Tensor v = normals({3, 4}, g), a = normals({3, 2}, g), b = normals({2, 4}, g);
  const Vjp back = vjp(product, x, v);
  expect_near(back.gradients[0], sum(j[0] * v.reshape({3, 4, 1, 1}), {0, 1}), 1e-12);
  expect_near(back.gradients[1], sum(j[1] * v.reshape({3, 4, 1, 1}), {0, 1}), 1e-12);
  expect_near(back.output, product(x), 1e-14);
  EXPECT_FALSE(back.output.requires_grad() || back.gradients[0].requires_grad());
  const Jvp forward = jvp(product, x, {a, b});
  expect_near(forward.tangent, sum(j[0] * a, {2, 3}) + sum(j[1] * b, {2, 3}), 1e-12);
  const double step = 1e-6;
  const Tensor difference =
      (product({x[0] + a * step, x[1] + b * step}) - product({x[0] - a * step, x[1] - b * step})) / (2 * step);
  expect_near(forward.tangent, difference, 1e-7);
}

TEST(Functional, HessianAndDerivativesOfDerivatives) {
  Generator g = fresh_generator();
  const Tensor x = normals({3}, g), y = normals({}, g);
  const auto cubic = [](const std::vector<Tensor>& in) { return sum(in[0] * in[0] * in[0]) * in[1]; };
  const auto h = hessian(cubic, {x, y});  // by x twice: 6 x y; by x and y: 3 x^2; by y twice: 0
  for (int64_t i = 0; i < 3; ++i) {
    const double value = x[i].item<double>();
    for (int64_t k = 0; k < 3; ++k)
      EXPECT_NEAR(h[0][0][i][k].item<double>(), i == k ? 6 * value * y.item<double>() : 0, 1e-12);
    EXPECT_NEAR(h[0][1][i].item<double>(), 3 * value * value, 1e-12);
    EXPECT_NEAR(h[1][0][i].item<double>(), 3 * value * value, 1e-12);
  }
  EXPECT_EQ(h[1][1].item<double>(), 0);

  const Tensor leaf = x.clone().set_requires_grad(true);
  sum(square(vjp([](const std::vector<Tensor>& in) { return sum(square(in[0])); }, {leaf}, {}, {.create_graph = true})
                 .gradients[0]))
      .backward();
  expect_near(leaf.grad(), 8.0 * x, 1e-12);
}

TEST(Functional, InputsWithoutInfluenceAndErrors) {
  const Tensor x = ones({2}), y = ones({3});
  const auto first = [](const std::vector<Tensor>& in) { return in[0] * 2.0; };
  expect_equal(jacobian(first, {x, y})[1], zeros({2, 3}));
  expect_equal(vjp([](const std::vector<Tensor>&) { return ones({1}); }, {x}).gradients[0], zeros({2}));
  expect_equal(jvp(first, {x, y}, {y.slice(0, 0, 2), y}).tangent, full({2}, 2));
  EXPECT_EQ(jacobian(first, {ones({0, 2})})[0].shape(), (Shape{0, 2, 0, 2}));
  expect_error([&] { vjp(first, {x}); }, {"vjp: v must have the output's shape [2]"});
  expect_error([&] { vjp(first, {}); }, {"vjp: there are no inputs"});
  expect_error([&] { jvp(first, {x}, {y}); }, {"direction 0 must have its input's shape [2]"});
  expect_error([&] { jvp(first, {x}, {}); }, {"0 directions for 1 inputs"});
  expect_error([&] { hessian(first, {x}); }, {"one element"});
  expect_error([&] { jacobian(first, {x.to(int64)}); }, {"floating"});
}

TEST(GraphDot, HasEveryOpAndLeafOnce) {
  const Tensor w = ones({2, 3}).set_requires_grad(true), b = ones({3}).set_requires_grad(true);
  const Tensor h = w + b, loss = sum(h * h);
  EXPECT_EQ(graph_dot(loss, {{"layer.\"w\"", w}, {"unused", ones({1})}}), R"(digraph tern {
  rankdir = BT;
  node [fontname = "sans-serif"];
  n0 [label = "sum\n[] float32"];
  n1 -> n0;
  n1 [label = "mul\n[2, 3] float32"];
  n2 -> n1;
  n2 -> n1;
  n2 [label = "add\n[2, 3] float32"];
  n3 -> n2;
  n4 -> n2;
  n4 [label = "leaf\n[3] float32", shape = box];
  n3 [label = "layer.\"w\"\n[2, 3] float32", shape = box];
}
)");
  EXPECT_NE(graph_dot(ones({4})).find("shape = box"), std::string::npos);
}

}  // namespace
}  // namespace tern::test
