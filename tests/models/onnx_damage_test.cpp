// ONNX files whose nodes lack what they need: loading or running them is an error that names the node. Inputs that the
// fuzz target found.

#include <map>

#include "tern/core/ops/ops.h"
#include "tern/models/onnx/onnx.h"
#include "tern/tests/errors.h"
#include "tern/tests/models/onnx_writer.h"
#include "tern/tests/support/temporary_folder.h"

namespace tern::models {
namespace {

using test::Message;
using test::onnx_attribute;
using test::onnx_floats;
using test::onnx_list;
using test::onnx_model;
using test::onnx_node;
using test::onnx_value;

struct NodeText {
  std::string op;
  std::vector<std::string> inputs;
  std::string output;
};

class OnnxDamage : public testing::Test {
 protected:
  /// What loading the model, or running it on ones, says.
  std::string error_of(const Message& graph, const Shape& shape) const {
    const std::string path = folder_ / "m.onnx";
    test::write_onnx(path, onnx_model(graph));
    return test::error_of([&] { onnx::load(path)->forward(ones(shape)); });
  }
  static Message node_of(const NodeText& text) {
    Message node = onnx_node(text.op, text.inputs, {text.output}, "node " + text.output);
    if (text.op == "ReduceMean") node.message(5, onnx_list("axes", {-1}));
    return node;
  }
  /// Loses the inputs of each node in turn, from the last one on.
  void expect_errors(const std::vector<NodeText>& nodes) const {
    for (size_t changed = 0; changed <= nodes.size(); ++changed)
      for (size_t kept = 0; kept < (changed < nodes.size() ? nodes[changed].inputs.size() : 1); ++kept) {
        SCOPED_TRACE(std::to_string(changed) + " has " + std::to_string(kept));
        Message graph;
        for (size_t i = 0; i < nodes.size(); ++i) {
          NodeText text = nodes[i];
          if (i == changed) text.inputs.resize(kept);
          graph.message(1, node_of(text));
        }
        for (const auto& [name, value] : std::map<std::string, float>{{"half", 0.5f},
                                                                      {"one", 1},
                                                                      {"two", 2},
                                                                      {"three", 3},
                                                                      {"root", 1.4142135f},
                                                                      {"c", 0.044715f},
                                                                      {"s", 0.79788456f}})
          graph.message(5, onnx_floats(name, {}, {value}));
        graph.message(5, onnx_floats("w", {4}, {1, 2, 3, 4}));
        graph.message(11, onnx_value("x", {4, 4})).message(12, onnx_value("y", {4, 4}));
        const std::string error = error_of(graph, {4, 4});
        if (changed == nodes.size())
          EXPECT_EQ(error, "no error");
        else
          test::expect_contains(error, {"node 'node " + nodes[changed].output + "'"});
      }
  }

  test::TemporaryFolder folder_;
};

/// Without any graph among its attributes, a node has no body to run.
TEST_F(OnnxDamage, NodesWithoutTheirGraphs) {
  const std::pair<const char*, Message> nodes[] = {
      {"body", onnx_node("Scan", {"x"}, {"y"}).message(5, onnx_attribute("num_scan_inputs", 1))},
      {"body", onnx_node("Loop", {"", "", "x"}, {"y"})},
      {"then_branch", onnx_node("If", {"x"}, {"y"})}};
  for (const auto& [name, node] : nodes) {
    const std::vector<int64_t> shape(name[0] == 'b' ? 1 : 0, 3);
    const Message graph =
        Message().message(1, node).message(11, onnx_value("x", shape)).message(12, onnx_value("y", shape));
    test::expect_contains(error_of(graph, Shape(shape)),
                          {"node 'y'", std::string("the graph '") + name + "' is missing"});
  }
}

/// What is looked for to be one op: its nodes may have fewer inputs than they need.
TEST_F(OnnxDamage, PartsOfOpsWithoutInputs) {
  expect_errors({{"ReduceMean", {"x"}, "m"},
                 {"Sub", {"x", "m"}, "d"},
                 {"Pow", {"d", "two"}, "q"},
                 {"ReduceMean", {"q"}, "v"},
                 {"Add", {"v", "one"}, "e"},
                 {"Sqrt", {"e"}, "r"},
                 {"Div", {"d", "r"}, "n"},
                 {"Mul", {"n", "w"}, "t"},
                 {"Add", {"t", "w"}, "y"}});
  expect_errors({{"MatMul", {"x", "x"}, "a"},
                 {"Mul", {"a", "half"}, "b"},
                 {"Add", {"b", "x"}, "d"},
                 {"Softmax", {"d"}, "p"},
                 {"IsNaN", {"p"}, "n"},
                 {"Where", {"n", "one", "p"}, "u"},
                 {"MatMul", {"u", "x"}, "y"}});
  expect_errors({{"Div", {"x", "root"}, "d"},
                 {"Erf", {"d"}, "e"},
                 {"Add", {"e", "one"}, "p"},
                 {"Mul", {"x", "p"}, "m"},
                 {"Mul", {"m", "half"}, "y"}});
  expect_errors({{"Mul", {"x", "half"}, "h"},
                 {"Pow", {"x", "three"}, "q"},
                 {"Mul", {"q", "c"}, "k"},
                 {"Add", {"x", "k"}, "i"},
                 {"Mul", {"i", "s"}, "z"},
                 {"Tanh", {"z"}, "u"},
                 {"Add", {"u", "one"}, "p"},
                 {"Mul", {"h", "p"}, "y"}});
}

}  // namespace
}  // namespace tern::models
