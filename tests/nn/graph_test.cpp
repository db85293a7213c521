// Graphs: what trace() records, and what is done with it. The function itself is the reference.

#include "tern/core/graph/graph.h"

#include <sstream>

#include "tern/core/autograd/autocast.h"
#include "tern/core/autograd/engine.h"
#include "tern/core/autograd/grad_mode.h"
#include "tern/core/graph/symbolic_size.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/ops/ops.h"
#include "tern/core/tensor/tensor_impl.h"
#include "tern/nn/nn.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/errors.h"

namespace tern {
namespace {

using Tensors = std::vector<Tensor>;

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.to_vector<double>(), b.to_vector<double>());
}

std::vector<std::string> ops_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Graph::Node& node : graph.nodes()) names.push_back(node.op);
  return names;
}

class Mlp final : public nn::Module {
 public:
  Mlp(const nn::Scope& s, int64_t in, int64_t hidden, int64_t out)
      : Module(s), first_(sub("first"), in, hidden), norm_(sub("norm"), hidden), second_(sub("second"), hidden, out) {}
  Tensor forward(const Tensor& x) const { return second_.forward(norm_.forward(gelu(first_.forward(x)))); }

 private:
  nn::Linear first_;
  nn::LayerNorm norm_;
  nn::Linear second_;
};

TEST(Trace, AModelAtAnyBatch) {
  Generator generator = test::fresh_generator();
  const Mlp net(nn::Scope({.generator = generator}), 5, 7, 3);
  const Tensor x = randn({4, 5}, generator);
  const Graph graph = trace([&](const Tensors& in) { return Tensors{softmax(net.forward(in[0]), -1)}; }, {x},
                            {.names = net.parameters(),
                             .dynamic = {{.input = 0, .dim = 0, .name = "batch"}},
                             .input_names = {"x"},
                             .output_names = {"probabilities"}});
  EXPECT_EQ(ops_of(graph), (std::vector<std::string>{"linear", "gelu", "layer_norm", "linear", "softmax"}));
  EXPECT_EQ(graph.symbols(), std::vector<std::string>{"batch"});
  graph.check({3});
  for (const int64_t batch : {1, 2, 4, 19}) {
    const Tensor other = randn({batch, 5}, generator);
    expect_equal(graph.run({other})[0], softmax(net.forward(other), -1));
  }
  EXPECT_NE(graph.str().find("graph(%x: float32 [batch, 5])"), std::string::npos) << graph;
  EXPECT_NE(graph.str().find("= linear(%x, %first.weight, %first.bias, 0) : float32 [batch, 7]"), std::string::npos)
      << graph;
  EXPECT_NE(graph.str().find("return %probabilities"), std::string::npos) << graph;
}

TEST(Trace, GradientsReachTheParameters) {
  Generator generator = test::fresh_generator();
  const Mlp net(nn::Scope({.generator = generator}), 3, 4, 2);
  const Tensor x = randn({6, 3}, generator);
  const Graph graph = trace([&](const Tensors& in) { return Tensors{sum(square(net.forward(in[0])))}; }, {x});
  const std::vector<Tensor> leaves = tensors_of(net.parameters());
  const std::vector<Tensor> expected = grad({sum(square(net.forward(x)))}, leaves);
  const std::vector<Tensor> found = grad({graph.run({x})[0]}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) expect_equal(found[i], expected[i]);
}

TEST(Trace, SizesOfReshapesAndFactories) {
  Generator generator = test::fresh_generator();
  const auto fn = [](const Tensors& in) {
    const int64_t batch = in[0].size(0), length = in[0].size(1);
    const Tensor positions = arange(0, static_cast<double>(length)).to(float32);
    const Tensor mask = tril(ones({length, length}));
    const Tensor flat = (in[0] + positions).reshape({batch * length});
    const Tensor padded = cat({flat, zeros({2 * length + 1})});
    return Tensors{padded, matmul(in[0], mask), in[0].slice(1, 1, length).expand({3, batch, length - 1})};
  };
  const Graph graph = trace(fn, {randn({2, 5}, generator)}, {.dynamic = {{0, 0, "batch"}, {0, 1, "length"}}});
  for (const auto& [batch, length] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 5}, {7, 3}, {3, 16}}) {
    const Tensor x = randn({batch, length}, generator);
    const Tensors found = graph.run({x}), expected = fn({x});
    for (size_t i = 0; i < 3; ++i) expect_equal(found[i], expected[i]);
  }
  EXPECT_NE(graph.str().find("[batch * length + 2 * length + 1]"), std::string::npos) << graph;
}

TEST(Trace, AttentionAndRecurrentLayers) {
  Generator generator = test::fresh_generator();
  const auto fn = [&](const Tensors& in) {
    const int64_t batch = in[0].size(0), length = in[0].size(1);
    const Tensor qkv = in[0].reshape({batch * length, 3, 2, 1}).contiguous();
    const Tensor mixed = self_attention(qkv, padded_layout(batch, length, in[1]));
    const RecurrentLayout layout = RecurrentLayout::padded(batch, length, true);
    const Tensor w = ones({8, 2}) * 0.3, u = ones({8, 2}) * -0.2;
    return Tensors{recurrent(RecurrentKind::kLstm, mixed, layout, {.input = w, .state = u}).output};
  };
  const Tensor mask = from_vector<int64_t>({1, 1, 1, 0, 1, 1}, {2, 3});
  const Graph graph = trace(fn, {randn({2, 3, 6}, generator), mask},
                            {.dynamic = {{0, 0, "batch"}, {0, 1, "length"}, {1, 0, "batch"}, {1, 1, "length"}}});
  const Tensor x = randn({3, 4, 6}, generator);
  const Tensor other = from_vector<int64_t>({1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0}, {3, 4});
  expect_equal(graph.run({x, other})[0], fn({x, other})[0]);
}

TEST(Trace, TheMaskOfAnInputIsNotAConstant) {
  const auto fn = [](const Tensors& in) { return Tensors{where(in[1] > 0, in[0], zeros_like(in[0]))}; };
  const Tensor x = tensor({1., 2., 3.}), mask = tensor({1., -1., 1.});
  const Graph graph = trace(fn, {x, mask});
  expect_equal(graph.run({x, -mask})[0], tensor({0., 2., 0.}));
}

TEST(Trace, InPlaceOpsBecomeFunctions) {
  const auto fn = [](const Tensors& in) {
    Tensor y = in[0] * 2;
    y.add_(in[0]);
    y.mul_(0.5);
    y.relu_();
    Tensor z = empty({3});
    z.copy_(y);
    z.fill_(7);
    y.masked_fill_(in[0] > 2, -1);
    return Tensors{y + z, y};
  };
  const Tensor x = tensor({-1., 2., 3.});
  const Graph graph = trace(fn, {x});
  for (const Tensor& input : {x, tensor({4., -5., 0.5})}) {
    const Tensors found = graph.run({input}), expected = fn({input});
    expect_equal(found[0], expected[0]);
    expect_equal(found[1], expected[1]);
  }
}

TEST(Trace, ErrorsSayWhatCannotBeRecorded) {
  const Tensor x = tensor({1., 2., 3.}), outside = tensor({1., 2., 3.});
  const auto error = [&](const TracedFunction& fn) { return test::error_of([&] { trace(fn, {x}); }); };
  test::expect_contains(error([](const Tensors& in) { return sum(in[0]).item<double>() > 0 ? in : Tensors{-in[0]}; }),
                        {"item() reads float32 []", "depends on an input", "where"});
  test::expect_contains(error([](const Tensors& in) { return Tensors{in[0] * in[0].to_vector<double>()[0]}; }),
                        {"to_vector() reads"});
  // Another handle on the same elements, as autograd keeps one of what it saves.
  test::expect_contains(error([](const Tensors& in) {
                          const Tensor other = detail::alias(in[0]);
                          return Tensors{in[0] * other.to_vector<double>()[0]};
                        }),
                        {"to_vector() reads"});
  test::expect_contains(error([](const Tensors& in) { return Tensors{in[0] * in[0].data<float>()[0]}; }),
                        {"data() reads"});
  test::expect_contains(error([](const Tensors& in) { return Tensors{dropout(in[0], {.p = 0.5})}; }),
                        {"random numbers", "eval()"});
  test::expect_contains(error([&](const Tensors& in) {
                          Tensor(outside).add_(in[0]);
                          return in;
                        }),
                        {"from outside of the function, is changed in place"});
  test::expect_contains(error([&](const Tensors& in) {
                          Tensor(in[0]).add_(1);
                          return in;
                        }),
                        {"an input", "is changed in place"});
  test::expect_contains(error([&](const Tensors& in) {
                          const Tensor y = in[0] * 2;
                          y.slice(0, 0, 1).fill_(0);
                          return Tensors{y};
                        }),
                        {"a view", "is changed in place"});
  test::expect_contains(error([&](const Tensors& in) {
                          Tensor y = in[0] * 2;
                          const Tensor view = y.slice(0, 0, 2);
                          y.add_(1);
                          return Tensors{view * 2};
                        }),
                        {"changed in place through another tensor"});
  test::expect_contains(error([](const Tensors& in) { return Tensors{Tensor()}; }), {"output 0", "undefined"});
  test::expect_contains(test::error_of([&] {
                          autocast(cpu, bfloat16, [&] { return trace([](const Tensors& in) { return in; }, {x}); });
                        }),
                        {"autocast", "run the graph within"});
  // A constant may be read.
  EXPECT_EQ(error([&](const Tensors& in) { return Tensors{in[0] * outside.to_vector<double>()[1]}; }), "no error");
}

TEST(Trace, CallsMustNotDependOnSizes) {
  Generator generator = test::fresh_generator();
  const auto error = [&](const TracedFunction& fn) {
    return test::error_of([&] { trace(fn, {randn({4, 3}, generator)}, {.dynamic = {{0, 0, "batch"}}}); });
  };
  test::expect_contains(
      error([](const Tensors& in) { return Tensors{in[0].size(0) % 2 == 0 ? exp(in[0]) : in[0] * 2}; }),
      {"for another size of a dynamic dimension"});
  test::expect_contains(error([](const Tensors& in) {
                          Tensor y = in[0];
                          for (int64_t i = 0; i < in[0].size(0); ++i) y = y + 1;
                          return Tensors{y};
                        }),
                        {"calls, and", "for another size"});
  test::expect_contains(error([](const Tensors& in) {
                          return Tensors{in[0], ones({int64_t{1} << in[0].size(0)})};
                        }),
                        {"no polynomial"});
  test::expect_contains(error([](const Tensors& in) {
                          return Tensors{in[0] + from_vector(std::vector<float>(static_cast<size_t>(in[0].size(0)), 1),
                                                             {in[0].size(0), 1})};
                        }),
                        {"a constant", "arange and full take sizes"});
}

TEST(Graph, InputsAreChecked) {
  const Graph graph = trace([](const Tensors& in) { return Tensors{in[0] + in[1]}; }, {zeros({2, 3}), zeros({2, 1})},
                            {.dynamic = {{0, 0, "n"}, {1, 0, "n"}}, .input_names = {"a", "b"}});
  test::expect_contains(test::error_of([&] { graph.run({zeros({2, 3})}); }), {"expected 2 inputs, got 1"});
  test::expect_contains(test::error_of([&] {
                          graph.run({zeros({2, 4}), zeros({2, 1})});
                        }),
                        {"input 'a'", "[2, 4]", "expected float32 [n, 3]"});
  test::expect_contains(test::error_of([&] {
                          graph.run({zeros({2, 3}), zeros({5, 1})});
                        }),
                        {"'n' is 2 in one input and 5 in 'b'"});
  test::expect_contains(test::error_of([&] {
                          graph.run({zeros({2, 3}, {.dtype = float64}), zeros({2, 1})});
                        }),
                        {"input 'a'", "float64", "expected float32"});
  test::expect_contains(test::error_of([&] { graph.run({Tensor(), zeros({2, 1})}); }), {"undefined"});
  EXPECT_EQ(graph.run({zeros({0, 3}), zeros({0, 1})})[0].shape(), Shape({0, 3}));
  // Any strides.
  const Tensor x = arange(0, 6).to(float32).reshape({3, 2}).t();
  expect_equal(graph.run({x, ones({2, 1})})[0], x + 1);
}

TEST(Graph, ConstantsAreFolded) {
  const Tensor w = tensor({1., 2.}), p = tensor({3., 4.}, {.requires_grad = true});
  Graph graph =
      trace([&](const Tensors& in) { return Tensors{in[0] * (exp(w) + arange(0, 2).to(float32)) + square(p)}; },
            {zeros({2})});
  const Tensor x = tensor({0.5, -2.});
  const Tensor before = graph.run({x})[0];
  EXPECT_GT(graph.fold_constants(), 0);
  EXPECT_EQ(ops_of(graph), (std::vector<std::string>{"square", "mul", "add"}));  // p may change
  expect_equal(graph.run({x})[0], before);
  graph.check();
}

TEST(Graph, BatchNormsAreFolded) {
  Generator generator = test::fresh_generator();
  const nn::Scope scope({.generator = generator});
  nn::Conv2d conv(scope, 3, 4, 3);
  nn::BatchNorm2d norm(scope, 4);
  norm.train();
  norm.forward(randn({8, 4, 5, 5}, generator) * 3 + 1);
  norm.eval();
  const auto fn = [&](const Tensors& in) {
    const Tensor y = conv.forward(in[0]);
    return Tensors{relu(norm.forward(y)) + 1};
  };
  Graph graph = trace(fn, {randn({2, 3, 7, 6}, generator)}, {.dynamic = {{0, 0, "batch"}}});
  const size_t before = graph.nodes().size();
  graph.fold_batch_norms();
  EXPECT_LT(graph.nodes().size(), before);
  for (const Graph::Node& node : graph.nodes()) EXPECT_NE(node.op, "batch_norm");
  const Tensor x = randn({5, 3, 7, 6}, generator);
  const std::vector<double> found = graph.run({x})[0].to_vector<double>(), expected = fn({x})[0].to_vector<double>();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * (1 + std::abs(expected[i])));
}

TEST(Graph, MemoryIsKnownBeforeItRuns) {
  const auto fn = [](const Tensors& in) {
    Tensor y = in[0];
    for (int i = 0; i < 10; ++i) y = exp(y.reshape({-1})).reshape({256, 64});
    return Tensors{y, sum(y)};
  };
  const Graph graph = trace(fn, {zeros({256, 64})});
  const MemoryPlan plan = graph.plan();
  constexpr int64_t kBytes = 256 * 64 * 4;
  EXPECT_EQ(plan.peak_bytes, 2 * kBytes);
  EXPECT_EQ(plan.total_bytes, 10 * kBytes + 64);
  EXPECT_LE(plan.arena_bytes, 2 * kBytes + 64);
  for (const MemoryPlan::Buffer& a : plan.buffers)
    for (const MemoryPlan::Buffer& b : plan.buffers) {
      const bool meet = &a != &b && a.first <= b.last && b.first <= a.last;
      EXPECT_TRUE(!meet || a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
    }
  const NoGrad off;
  const Tensor x = zeros({256, 64});
  const int64_t live = allocator(cpu).statistics().live_bytes;
  allocator(cpu).reset_peak();
  const Tensors results = graph.run({x});
  EXPECT_LE(allocator(cpu).statistics().peak_live_bytes - live, plan.peak_bytes + 4096);
}

TEST(Graph, Derivatives) {
  Generator generator = test::fresh_generator();
  const Tensor w = randn({3, 3}, generator).set_requires_grad(true);
  const auto energy = [&](const Tensors& in) { return Tensors{mean(tanh(matmul(in[0], w))), in[0] * 2}; };
  const Graph graph = trace(energy, {randn({4, 3}, generator)},
                            {.names = {{"w", w}}, .dynamic = {{0, 0, "atoms"}}, .input_names = {"x"}});
  const Graph with_forces = differentiate(graph, {"x", "w"});
  EXPECT_EQ(with_forces.outputs().size(), 4u);
  Tensor x = randn({5, 3}, generator);
  x.set_requires_grad(true);
  const Tensors found = with_forces.run({x});
  const std::vector<Tensor> expected = grad({energy({x})[0]}, {x, w});
  expect_equal(found[0], energy({x})[0]);
  for (size_t i = 0; i < 2; ++i) {
    const auto a = found[2 + i].to_vector<double>(), b = expected[i].to_vector<double>();
    for (size_t j = 0; j < a.size(); ++j) EXPECT_NEAR(a[j], b[j], 1e-5);
  }
  // Once more: the gradients of forces by the weight.
  const Tensor second = grad({sum(square(found[2]))}, {w})[0];
  const Tensor first = grad({energy({x})[0]}, {x}, {.create_graph = true})[0];
  const auto a = second.to_vector<double>(), b = grad({sum(square(first))}, {w})[0].to_vector<double>();
  for (size_t j = 0; j < a.size(); ++j) EXPECT_NEAR(a[j], b[j], 1e-4 * (1 + std::abs(b[j])));
  test::expect_contains(test::error_of([&] { differentiate(graph, {"v"}); }), {"no input or constant 'v'"});
}

TEST(Graph, Drawings) {
  const Graph graph =
      trace([](const Tensors& in) { return Tensors{exp(in[0]) + in[0]}; }, {zeros({2})}, {.input_names = {"a<\"&"}});
  EXPECT_EQ(graph.dot(),
            "digraph tern {\n  node [fontname = \"sans-serif\", shape = box];\n"
            "  n0 [label = \"a<\\\"&\\nfloat32 [2]\", shape = ellipse];\n"
            "  n1 [label = \"exp\\nfloat32 [2]\"];\n  n0 -> n1;\n"
            "  n2 [label = \"add\\nfloat32 [2]\", penwidth = 2];\n  n1 -> n2;\n  n0 -> n2;\n}\n");
  const std::string svg = graph.svg();
  EXPECT_NE(svg.find("a&lt;&quot;&amp;"), std::string::npos);
  EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

TEST(SymbolicSize, PolynomialsAreFound) {
  const SymbolicFit fit({{2, 5, 9}, {3, 6, 10}});
  std::vector<int64_t> values;
  for (const std::vector<int64_t>& p : fit.points()) values.push_back(p[0] * p[1] * p[1] - 4 * p[0] + 7);
  const SymbolicSize size = fit.fit(values);
  EXPECT_EQ(size.at({11, 13}), 11 * 169 - 44 + 7);
  EXPECT_EQ(size.str({"a", "b"}), "a * b * b - 4 * a + 7");
  EXPECT_EQ(SymbolicSize::symbol(1, 2).symbol_index(), 1);
  EXPECT_EQ(SymbolicSize(5).constant(), 5);
  test::expect_contains(test::error_of([&] { size.constant(); }), {"depends on a symbol"});
  const SymbolicFit halves({{2, 4}});
  const SymbolicSize half = halves.fit({1, 2});
  EXPECT_EQ(half.str({"n"}), "n / 2");
  test::expect_contains(test::error_of([&] { half.at({3}); }), {"no whole number"});
}

}  // namespace
}  // namespace tern
