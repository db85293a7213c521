// Nodes of ONNX files that are computed together: what is found, and that the results are those of the nodes alone.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tern/core/autograd/autocast.h"
#include "tern/core/ops/ops.h"
#include "tern/core/profiler/profiler.h"
#include "tern/kernels/row_chain.h"
#include "tern/models/onnx/onnx.h"
#include "tern/tests/core/fresh.h"
#include "tern/tests/models/onnx_writer.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::test {
namespace {

using Floats = std::vector<float>;

/// A model with and without fused steps.
struct Both {
  TemporaryFolder folder;
  std::unique_ptr<onnx::Model> fused, separate;

  explicit Both(const Message& graph, int64_t opset = 20) {
    const std::string path = folder / "m.onnx";
    write_onnx(path, onnx_model(graph, opset));
    fused = onnx::load(path);
    separate = onnx::load(path, {.fuse = false});
  }
};

/// The ops that a model runs.
std::set<std::string> ops_of(const onnx::Model& model, const std::vector<Tensor>& inputs) {
  Profiler profiler;
  model.forward(inputs);
  std::set<std::string> names;
  for (const ProfileRow& row : profiler.stop().rows()) names.insert(row.name);
  return names;
}

void expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].dtype(), wanted[i].dtype());
    ASSERT_EQ(got[i].shape(), wanted[i].shape());
    EXPECT_TRUE(allclose(got[i], wanted[i], tolerance, tolerance))
        << "output " << i << ": " << max(abs(got[i] - wanted[i])).item<double>();
  }
}

/// The ops that a model runs, and that it gives the same with and without fused steps.
std::set<std::string> ops_of(const Message& graph, const std::vector<Tensor>& inputs) {
  const Both models(graph, 17);
  expect_close(models.fused->forward(inputs), models.separate->forward(inputs));
  return ops_of(*models.fused, inputs);
}

Message number_of(const std::string& name, float value) { return onnx_floats(name, {}, {value}); }

TEST(OnnxFusion, SpellingsOfGeluAreOneOp) {
  const Tensor x = fresh_normal({3, 5}, 4);
  const auto expect = [&](Message graph, const std::string& op) {
    for (const auto& [name, value] : std::map<std::string, float>{{"half", 0.5f},
                                                                  {"one", 1},
                                                                  {"three", 3},
                                                                  {"root", 1.4142135f},
                                                                  {"down", 0.70710677f},
                                                                  {"c", 0.044715f},
                                                                  {"s", 0.79788456f}})
      graph.message(5, number_of(name, value));
    graph.message(11, onnx_value("x", {-1, 5})).message(12, onnx_value("y", {-1, 5}));
    const std::set<std::string> ops = ops_of(graph, {x});
    EXPECT_TRUE(ops.contains(op) && !ops.contains("erf") && !ops.contains("tanh")) << testing::PrintToString(ops);
  };
  Message a;  // x (1 + erf(x / sqrt(2))) 0.5
  a.message(1, onnx_node("Div", {"x", "root"}, {"d"})).message(1, onnx_node("Erf", {"d"}, {"e"}));
  a.message(1, onnx_node("Add", {"e", "one"}, {"p"})).message(1, onnx_node("Mul", {"x", "p"}, {"m"}));
  expect(a.message(1, onnx_node("Mul", {"m", "half"}, {"y"})), "gelu");
  Message b;  // 0.5 x (1 + erf(x sqrt(0.5)))
  b.message(1, onnx_node("Mul", {"half", "x"}, {"h"})).message(1, onnx_node("Mul", {"x", "down"}, {"d"}));
  b.message(1, onnx_node("Erf", {"d"}, {"e"})).message(1, onnx_node("Add", {"one", "e"}, {"p"}));
  expect(b.message(1, onnx_node("Mul", {"h", "p"}, {"y"})), "gelu");
  Message t;
  t.message(1, onnx_node("Mul", {"x", "half"}, {"h"})).message(1, onnx_node("Pow", {"x", "three"}, {"q"}));
  t.message(1, onnx_node("Mul", {"q", "c"}, {"k"})).message(1, onnx_node("Add", {"x", "k"}, {"i"}));
  t.message(1, onnx_node("Mul", {"i", "s"}, {"z"})).message(1, onnx_node("Tanh", {"z"}, {"u"}));
  t.message(1, onnx_node("Add", {"u", "one"}, {"p"}));
  expect(t.message(1, onnx_node("Mul", {"h", "p"}, {"y"})), "gelu_tanh");
}

/// ONNX's own definition: x (0.5 (1 + erf(sqrt(0.5) x))); Hugging Face's tanh forms, by products.
TEST(OnnxFusion, FurtherSpellingsOfGelu) {
  const Tensor x = fresh_normal({3, 5}, 13);
  const auto expect = [&](const std::vector<Message>& nodes, const std::string& op, bool is_one = true) {
    Message graph;
    for (const Message& node : nodes) graph.message(1, node);
    for (const auto& [name, value] : std::map<std::string, float>{
             {"half", 0.5f}, {"one", 1}, {"down", 0.70710677f}, {"c", 0.044715f}, {"s", 0.79788456f}})
      graph.message(5, number_of(name, value));
    graph.message(11, onnx_value("x", {-1, 5})).message(12, onnx_value("y", {-1, 5}));
    const std::set<std::string> ops = ops_of(graph, {x});
    EXPECT_EQ(ops.contains(op) && !ops.contains("erf") && !ops.contains("tanh"), is_one) << testing::PrintToString(ops);
  };
  const auto mul = [](const char* a, const char* b, const char* y) { return onnx_node("Mul", {a, b}, {y}); };
  const auto add = [](const char* a, const char* b, const char* y) { return onnx_node("Add", {a, b}, {y}); };
  for (const bool first : {true, false})
    expect({mul("down", "x", "d"), onnx_node("Erf", {"d"}, {"e"}), add("one", "e", "p"), mul("half", "p", "h"),
            first ? mul("x", "h", "y") : mul("h", "x", "y")},
           "gelu");
  const Message tanh = onnx_node("Tanh", {"z"}, {"u"});
  expect({mul("x", "x", "xx"), mul("xx", "x", "q"), mul("c", "q", "k"), add("x", "k", "i"), mul("s", "i", "z"), tanh,
          add("one", "u", "p"), mul("half", "x", "h"), mul("h", "p", "y")},
         "gelu_tanh");
  expect({mul("x", "s", "i"), mul("x", "c", "k"), mul("k", "x", "q"), add("q", "one", "a"), mul("i", "a", "z"), tanh,
          add("u", "one", "p"), mul("x", "half", "h"), mul("h", "p", "y")},
         "gelu_tanh");
  // x + 0.044715 x^4, the same with s x^2, and x (1 + 0.044715 x) are none.
  expect({mul("x", "s", "xs"), mul("xs", "x", "q"), mul("c", "q", "k"), add("x", "k", "i"), mul("s", "i", "z"), tanh,
          add("one", "u", "p"), mul("half", "x", "h"), mul("h", "p", "y")},
         "gelu_tanh", false);
  expect({mul("x", "x", "xx"), mul("xx", "xx", "q"), mul("c", "q", "k"), add("x", "k", "i"), mul("s", "i", "z"), tanh,
          add("one", "u", "p"), mul("half", "x", "h"), mul("h", "p", "y")},
         "gelu_tanh", false);
  expect({mul("x", "s", "i"), mul("x", "c", "k"), add("k", "one", "a"), mul("i", "a", "z"), tanh, add("u", "one", "p"),
          mul("x", "half", "h"), mul("h", "p", "y")},
         "gelu_tanh", false);
}

/// The keys are transposed as matrices of all heads, and queries and keys are scaled, as PyTorch's exporter does.
TEST(OnnxFusion, AttentionAsPyTorchWritesIt) {
  Message graph;
  graph.message(1, onnx_node("Reshape", {"k", "joined"}, {"k3"}));
  graph.message(1, onnx_node("Transpose", {"k3"}, {"t3"}).message(5, onnx_list("perm", {0, 2, 1})));
  graph.message(1, onnx_node("Reshape", {"t3", "parted"}, {"t"}));
  graph.message(1, onnx_node("Mul", {"q", "root"}, {"q_scaled"}))
      .message(1, onnx_node("Mul", {"t", "root"}, {"t_scaled"}));
  graph.message(1, onnx_node("MatMul", {"q_scaled", "t_scaled"}, {"s"}));
  graph.message(1, onnx_node("Softmax", {"s"}, {"p"}).message(5, onnx_attribute("axis", -1)));
  graph.message(1, onnx_node("MatMul", {"p", "v"}, {"y"})).message(5, number_of("root", 0.7f));
  for (const char* name : {"joined", "parted"}) graph.message(11, onnx_value(name, {-1}, 7));
  for (const char* name : {"q", "k", "v"}) graph.message(11, onnx_value(name, {-1, -1, -1, -1}));
  graph.message(12, onnx_value("y", {-1, -1, -1, -1}));
  const auto shape = [](const std::vector<int64_t>& sizes) {
    return from_vector(sizes, {static_cast<int64_t>(sizes.size())});
  };
  const Tensor q = fresh_normal({2, 3, 5, 8}, 14), k = fresh_normal({2, 3, 7, 8}, 15),
               v = fresh_normal({2, 3, 7, 8}, 16);
  std::set<std::string> ops = ops_of(graph, {shape({-1, 7, 8}), shape({2, 3, 8, 7}), q, k, v});
  EXPECT_TRUE(ops.contains("attention") && !ops.contains("softmax") && !ops.contains("mul"))
      << testing::PrintToString(ops);
  // Other shapes that fit the products are no exchange of two dimensions.
  ops = ops_of(graph, {shape({6, 8, 7}), shape({2, 3, 8, 7}), q, k, v});
  ops = ops_of(graph, {shape({0, 21, 8}), shape({2, 3, 8, 7}), q, k, v});
  ops = ops_of(graph, {shape({1, 42, 8}), shape({2, 3, 8, 7}), q, k, v});
  ops = ops_of(graph, {shape({-1, 42, 8}), shape({2, 3, 8, 7}), q, k, v});
}

/// What another node reads stays.
TEST(OnnxFusion, PartsThatAreReadElsewhereAreNotFused) {
  Message graph;
  graph.message(1, onnx_node("Div", {"x", "root"}, {"d"})).message(1, onnx_node("Erf", {"d"}, {"e"}));
  graph.message(1, onnx_node("Add", {"e", "one"}, {"p"})).message(1, onnx_node("Mul", {"x", "p"}, {"m"}));
  graph.message(1, onnx_node("Mul", {"m", "half"}, {"g"})).message(1, onnx_node("Add", {"g", "e"}, {"y"}));
  graph.message(5, number_of("root", 1.4142135f)).message(5, number_of("one", 1)).message(5, number_of("half", 0.5f));
  graph.message(11, onnx_value("x", {-1, 5})).message(12, onnx_value("y", {-1, 5}));
  EXPECT_TRUE(ops_of(graph, {fresh_normal({3, 5}, 12)}).contains("erf"));
}

TEST(OnnxFusion, LayerNormAndAttentionAreOneOpEach) {
  Message norm;
  norm.message(1, onnx_node("ReduceMean", {"x"}, {"m"}).message(5, onnx_list("axes", {-1})));
  norm.message(1, onnx_node("Sub", {"x", "m"}, {"d"})).message(1, onnx_node("Pow", {"d", "two"}, {"q"}));
  norm.message(1, onnx_node("ReduceMean", {"q"}, {"v"}).message(5, onnx_list("axes", {-1})));
  norm.message(1, onnx_node("Add", {"v", "eps"}, {"e"})).message(1, onnx_node("Sqrt", {"e"}, {"r"}));
  norm.message(1, onnx_node("Div", {"d", "r"}, {"n"})).message(1, onnx_node("Mul", {"n", "w"}, {"s"}));
  norm.message(1, onnx_node("Add", {"s", "b"}, {"y"}));
  norm.message(5, number_of("two", 2)).message(5, number_of("eps", 1e-3f));
  norm.message(5, onnx_floats("w", {5}, {1, 2, -1, 0.5f, 3})).message(5, onnx_floats("b", {5}, {0, 1, 2, 3, 4}));
  norm.message(11, onnx_value("x", {-1, 5})).message(12, onnx_value("y", {-1, 5}));
  std::set<std::string> ops = ops_of(norm, {fresh_normal({3, 5}, 5)});
  EXPECT_TRUE(ops.contains("layer_norm") && !ops.contains("sqrt")) << testing::PrintToString(ops);
  Message attention;
  attention.message(1, onnx_node("MatMul", {"q", "k"}, {"s"})).message(1, onnx_node("Div", {"s", "two"}, {"d"}));
  attention.message(1, onnx_node("Add", {"d", "mask"}, {"a"}));
  attention.message(1, onnx_node("Softmax", {"a"}, {"p"}).message(5, onnx_attribute("axis", -1)));
  attention.message(1, onnx_node("MatMul", {"p", "v"}, {"y"})).message(5, number_of("two", 2));
  attention.message(11, onnx_value("q", {2, 3, 5, 8})).message(11, onnx_value("k", {2, 3, 8, 7}));
  attention.message(11, onnx_value("v", {2, 3, 7, 8})).message(11, onnx_value("mask", {2, 1, 5, 7}));
  attention.message(12, onnx_value("y", {2, 3, 5, 8}));
  ops = ops_of(attention, {fresh_normal({2, 3, 5, 8}, 6), fresh_normal({2, 3, 8, 7}, 7), fresh_normal({2, 3, 7, 8}, 8),
                           fresh_normal({2, 1, 5, 7}, 9)});
  EXPECT_TRUE(ops.contains("attention") && !ops.contains("softmax")) << testing::PrintToString(ops);
}

Floats random_floats(int64_t count, uint64_t salt, double scale = 1) {
  return (fresh_normal({count}, salt) * scale).to_vector<float>();
}
Message weight(const std::string& name, const std::vector<int64_t>& dims, uint64_t salt, double scale = 1) {
  int64_t count = 1;
  for (const int64_t size : dims) count *= size;
  return onnx_floats(name, dims, random_floats(count, salt, scale));
}

/// Whether one has the other's results without gradients, and the other's gradients: their bits where the nodes' ops
/// run then.
void expect_same_model(const Both& models, const std::vector<Tensor>& inputs, double tolerance = 1e-5,
                       bool same_bits = true) {
  {
    const NoGrad off;
    expect_close(models.fused->forward(inputs), models.separate->forward(inputs), tolerance);
  }
  std::vector<std::vector<Tensor>> gradients;
  for (const auto* model : {models.fused.get(), models.separate.get()}) {
    std::vector<Tensor> given;
    for (const Tensor& x : inputs) given.push_back(x.detach().clone().set_requires_grad(true));
    Tensor loss;
    for (const Tensor& y : model->forward(given)) loss = loss.defined() ? loss + sum(square(y)) : sum(square(y));
    loss.backward();
    std::vector<Tensor> found;
    for (const Tensor& x : given) found.push_back(x.grad());
    for (const NamedTensor& parameter : model->parameters()) found.push_back(parameter.tensor.grad());
    gradients.push_back(std::move(found));
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    ASSERT_TRUE(gradients[0][i].defined()) << i;
    EXPECT_TRUE(same_bits ? all(gradients[0][i] == gradients[1][i]).item<bool>()
                          : allclose(gradients[0][i], gradients[1][i], 1e-4, 1e-4))
        << "gradient " << i;
  }
}

/// A convolution of 5 channels to 6, and what follows it, which reads "c" and gives "y".
Message convolution(const std::vector<Message>& nodes, int64_t stride = 1) {
  Message graph;
  Message node = onnx_node("Conv", {"x", "w", "b"}, {"c"}).message(5, onnx_list("pads", {1, 1, 1, 1}));
  graph.message(1, node.message(5, onnx_list("strides", {stride, stride})));
  for (const Message& next : nodes) graph.message(1, next);
  graph.message(5, weight("w", {6, 5, 3, 3}, 21, 0.3)).message(5, weight("b", {6}, 22));
  graph.message(5, number_of("zero", 0)).message(5, number_of("six", 6)).message(5, number_of("two", 2));
  return graph.message(11, onnx_value("x", {-1, 5, 9, 7})).message(12, onnx_value("y", {-1, -1, -1, -1}));
}

TEST(OnnxFusion, ConvolutionsTakeTheActivation) {
  const Tensor x = (fresh_normal({3, 5, 9, 7}, 20) * 2).channels_last();
  const std::map<std::string, std::vector<Message>> activations = {
      {"relu", {onnx_node("Relu", {"c"}, {"y"})}},
      {"hardswish", {onnx_node("HardSwish", {"c"}, {"y"})}},
      {"clamp", {onnx_node("Clip", {"c", "zero", "six"}, {"y"})}},
      {"gelu", {onnx_node("Gelu", {"c"}, {"y"})}},
      {"sigmoid", {onnx_node("Sigmoid", {"c"}, {"g"}), onnx_node("Mul", {"c", "g"}, {"y"})}},
      {"mul",
       {onnx_node("HardSigmoid", {"c"}, {"g"}).message(5, onnx_real("alpha", 1.0f / 6)),
        onnx_node("Mul", {"g", "c"}, {"y"})}}};
  for (const auto& [op, nodes] : activations) {
    SCOPED_TRACE(op);
    const Both models(convolution(nodes));
    expect_same_model(models, {x}, 1e-5, nodes.size() == 1);
    EXPECT_TRUE(ops_of(*models.separate, {x}).contains(op));
    const NoGrad off;
    EXPECT_EQ(ops_of(*models.fused, {x}), std::set<std::string>{"convolution"});
  }
}

TEST(OnnxFusion, OtherActivationsStay) {
  const Tensor x = fresh_normal({3, 5, 9, 7}, 23) * 4;
  const std::vector<std::vector<Message>> nodes = {
      {onnx_node("Clip", {"c", "zero"}, {"y"})},
      {onnx_node("Clip", {"c", "zero", "two"}, {"y"})},
      {onnx_node("Clip", {"c", "six", "zero"}, {"y"})},
      {onnx_node("Gelu", {"c"}, {"y"}).message(5, Message().text(1, "approximate").text(4, "tanh").number(20, 3))},
      {onnx_node("HardSigmoid", {"c"}, {"g"}), onnx_node("Mul", {"c", "g"}, {"y"})},
      {onnx_node("Sigmoid", {"c"}, {"g"}), onnx_node("Mul", {"g", "g"}, {"h"}), onnx_node("Mul", {"c", "h"}, {"y"})},
      {onnx_node("Relu", {"c"}, {"r"}), onnx_node("Sub", {"r", "c"}, {"y"})}};
  for (size_t i = 0; i < nodes.size(); ++i) {
    SCOPED_TRACE(i);
    const Both models(convolution(nodes[i]));
    expect_same_model(models, {x});
    const NoGrad off;
    EXPECT_GT(ops_of(*models.fused, {x}).size(), 1u);
  }
}

TEST(OnnxFusion, ConvolutionsTakeTheResidual) {
  for (const bool first : {true, false}) {
    const std::vector<std::string> inputs =
        first ? std::vector<std::string>{"c", "r"} : std::vector<std::string>{"r", "c"};
    Message graph = convolution({onnx_node("Add", inputs, {"s"}), onnx_node("Relu", {"s"}, {"y"})}, 2);
    graph.message(11, onnx_value("r", {-1, -1, -1, -1}));
    const Both models(graph);
    const Tensor x = fresh_normal({3, 5, 9, 7}, 24).channels_last();
    // One that broadcasts, and one that makes the result larger, are added by the op.
    for (const Shape& shape : {Shape{3, 6, 5, 4}, Shape{1, 6, 1, 1}, Shape{3, 6, 5, 4}}) {
      SCOPED_TRACE(testing::Message() << shape);
      expect_same_model(models, {x, fresh_normal(shape, 25)}, 1e-5, first);  // the first one's layout is the sum's
    }
    const NoGrad off;
    EXPECT_EQ(ops_of(*models.fused, {x, fresh_normal({3, 6, 5, 4}, 26).channels_last()}),
              std::set<std::string>{"convolution"});
    expect_close(models.fused->forward({x.slice(0, 0, 1), fresh_normal({3, 6, 5, 4}, 27)}),
                 models.separate->forward({x.slice(0, 0, 1), fresh_normal({3, 6, 5, 4}, 27)}));
  }
}

/// Packed copies of a weight are of its elements now, for any size of images.
TEST(OnnxFusion, ChangesOfWeightsAreSeen) {
  const Both models(convolution({onnx_node("Relu", {"c"}, {"y"})}));
  const NoGrad off;
  for (int round = 0; round < 3; ++round) {
    for (const int64_t batch : {3, 1})
      expect_close(models.fused->forward({fresh_normal({batch, 5, 9, 7}, 28)}),
                   models.separate->forward({fresh_normal({batch, 5, 9, 7}, 28)}));
    for (const auto* model : {models.fused.get(), models.separate.get()})
      for (NamedTensor parameter : model->parameters()) parameter.tensor.mul_(-0.5);
  }
}

struct LinearCase {
  int64_t in = 33, hidden = 70, out = 33;
  bool biases = true, sum_is_read = false, gemm = false;
};

/// norm(r + (gelu(x A + a)) B + b): a feed-forward layer, of [n, length, in] or, for Gemm, [n, in].
Message feed_forward(const LinearCase& t) {
  Message graph;
  const std::vector<int64_t> dims = t.gemm ? std::vector<int64_t>{-1, -1} : std::vector<int64_t>{-1, -1, -1};
  const auto layer = [&](const std::string& x, const std::string& w, const std::string& b, const std::string& y) {
    if (t.gemm) {
      Message node = onnx_node("Gemm", {x, w, b}, {y});
      graph.message(1, w == "A" ? node : node.message(5, onnx_attribute("transB", 1)));
      return;
    }
    graph.message(1, onnx_node("MatMul", {x, w}, {t.biases ? y + "_product" : y}));
    if (t.biases)
      graph.message(1, onnx_node("Add",
                                 w == "A" ? std::vector<std::string>{b, y + "_product"}
                                          : std::vector<std::string>{y + "_product", b},
                                 {y}));
  };
  layer("x", "A", "a", "h");
  graph.message(1, onnx_node("Gelu", {"h"}, {"g"}));
  layer("g", "B", "b", "p");
  graph.message(1, onnx_node("Add", {"p", "r"}, {"s"}));
  graph.message(1, onnx_node("LayerNormalization", {"s", "gamma", "beta"}, {"n"}));
  graph.message(1,
                onnx_node(t.sum_is_read ? "Sub" : "Neg",
                          t.sum_is_read ? std::vector<std::string>{"n", "s"} : std::vector<std::string>{"n"}, {"y"}));
  const std::vector<int64_t> second =
      t.gemm ? std::vector<int64_t>{t.out, t.hidden} : std::vector<int64_t>{t.hidden, t.out};
  graph.message(5, weight("A", {t.in, t.hidden}, 31, 0.2)).message(5, weight("B", second, 32, 0.2));
  graph.message(5, weight("a", {t.hidden}, 33)).message(5, weight("b", {t.out}, 34));
  graph.message(5, weight("gamma", {t.out}, 35)).message(5, weight("beta", {t.out}, 36));
  graph.message(11, onnx_value("x", dims)).message(11, onnx_value("r", dims));
  return graph.message(12, onnx_value("y", dims));
}

TEST(OnnxFusion, LinearLayersAreOnePass) {
  for (const LinearCase& t : {LinearCase{}, LinearCase{.biases = false}, LinearCase{.sum_is_read = true},
                              LinearCase{.gemm = true}, LinearCase{.in = 5, .hidden = 3, .out = 7}}) {
    const Both models(feed_forward(t));
    for (const int64_t n : {1, 4, 11}) {  // 31, 124 and 341 rows: few, and enough for blocks
      const auto shape = [&](int64_t width) { return t.gemm ? Shape{n * 31, width} : Shape{n, 31, width}; };
      SCOPED_TRACE(testing::Message() << shape(t.in) << (t.gemm ? " Gemm" : " MatMul") << ", " << t.biases);
      const std::vector<Tensor> inputs = {fresh_normal(shape(t.in), 37), fresh_normal(shape(t.out), 38)};
      if (t.biases) expect_same_model(models, inputs, 1e-4);
      const NoGrad off;
      expect_close(models.fused->forward(inputs), models.separate->forward(inputs), 1e-4);
      const std::set<std::string> ops = ops_of(*models.fused, inputs);
      const bool packs = kernels::linear_packing({}, float32, n * 31, t.hidden, t.in) != 0;
      // A weight [out, in] need not be packed.
      EXPECT_EQ(ops.contains("row_chain"), packs || t.gemm) << testing::PrintToString(ops);
      EXPECT_EQ(ops.contains("matmul"), !packs) << testing::PrintToString(ops);
    }
  }
}

}  // namespace
}  // namespace tern::test
