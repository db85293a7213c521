#pragma once
// The calls of ops behind a function of tensors: recorded by trace(), then looked at, changed, run and differentiated.
//
//   const Graph graph = trace([&](const std::vector<Tensor>& in) { return std::vector{net.forward(in[0])}; }, {images},
//                             {.names = net.parameters(), .dynamic = {{.input = 0, .dim = 0, .name = "batch"}}});
//   std::cout << graph;
//   const std::vector<Tensor> logits = graph.run({more_images});
//
// A node is one call of an op's function with its arguments; running the graph calls it again, so that autograd,
// autocast, recomputation and both devices work as in the function itself. Parameters are the function's own tensors,
// not copies. models/onnx saves a graph as an ONNX file, and loads such files.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "tern/core/graph/symbolic_size.h"
#include "tern/core/tensor.h"

namespace tern {

namespace detail {
class OpCall;
}

/// One argument of a node's call: of a list or a struct its elements, in their order.
struct GraphArgument {
  enum class Kind : uint8_t { kTensor, kInteger, kNumber, kChoice, kText, kDType, kDevice, kList };
  Kind kind = Kind::kTensor;
  int value = -1;          // kTensor: the index of a Graph::Value; -1: no tensor was given
  SymbolicSize size = {};  // kInteger, kChoice (a flag or an enumeration's value)
  double number = 0;       // with symbols: that of the first recording; text then has the expression       // kNumber
  std::string text = {};   // kText
  DType dtype = DType::kFloat32;
  Device device = {};
  std::vector<GraphArgument> list = {};
};

/// What Graph::plan() finds for one run without gradients. Bytes of results, each rounded up to 64; inputs, constants
/// and the workspaces of ops are not counted.
struct MemoryPlan {
  struct Buffer {
    int value = 0;            // views of it share it
    int first = 0, last = 0;  // the nodes that need it
    int64_t bytes = 0;
    int64_t offset = 0;  // where it lies in one block of arena_bytes
  };
  std::vector<Buffer> buffers;
  int64_t total_bytes = 0;  // of all buffers
  int64_t peak_bytes = 0;   // the most that is needed at a time: what run() allocates
  int64_t arena_bytes = 0;
};

struct TraceOptions;

class Graph {
 public:
  struct Value {
    std::string name;
    DType dtype = DType::kFloat32;
    Device device = {};
    std::vector<SymbolicSize> shape = {};
    Tensor constant =
        {};            // a parameter or another tensor that is the same in each run; undefined for inputs and results
    int view_of = -1;  // the value whose memory it shares
  };
  struct Node {
    std::string op;            // the name in the profile: "linear", "softmax"
    std::vector<int> inputs;   // values, in the order of the tensors among the arguments; -1: none was given
    std::vector<int> outputs;  // values
    std::vector<SymbolicSize> sizes = {};      // the integers among the arguments; empty where none depends on a symbol
    std::vector<SymbolicNumber> numbers = {};  // the other numbers; empty likewise
    std::shared_ptr<const detail::OpCall> call = {};
  };

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int>& inputs() const { return inputs_; }
  const std::vector<int>& outputs() const { return outputs_; }
  /// The names of sizes that may differ from run to run.
  const std::vector<std::string>& symbols() const { return symbols_; }
  std::vector<GraphArgument> arguments(const Node& node) const;

  /// The outputs for these inputs, recorded where they require gradients. Throws Error on inputs that do not fit.
  /// Results that no later node needs are freed on the way. Any number of threads may run one graph.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const;

  /// One line for each node: %name = op(arguments) : dtype [shape].
  std::string str() const;
  /// In the DOT language; `dot -Tsvg` draws it.
  std::string dot() const;
  /// A drawing: nodes below what they read, in SVG.
  std::string svg() const;

  /// Throws Error when a node reads a value that is made later or not at all, a value is made twice, or shapes and
  /// dtypes are not those that running the graph on zeros of these sizes of the symbols gives.
  void check(const std::vector<int64_t>& symbols = {}) const;

  // Changes; each returns the number of nodes that it removed.
  /// Nodes that no output depends on.
  int64_t remove_unused();
  /// Computes what depends on constants alone. Tensors that require a gradient are no constants.
  int64_t fold_constants();
  /// Makes a batch norm with running statistics, behind a convolution or linear layer that nothing else reads, a part
  /// of its weight and bias. The graph then holds copies of these.
  int64_t fold_batch_norms();

  /// Memory of one run with these sizes of the symbols.
  MemoryPlan plan(const std::vector<int64_t>& symbols = {}) const;

 private:
  friend class GraphBuilder;
  friend class GraphRewriter;
  friend Graph trace(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>&, const std::vector<Tensor>&,
                     const TraceOptions&);
  /// What is not the same in `direct`, a graph for these sizes of the symbols; "" if nothing.
  std::string difference(const Graph& direct, const std::vector<int64_t>& symbols) const;
  std::vector<int64_t> bind(const std::vector<Tensor>& inputs) const;
  std::vector<Tensor> run_node(const Node& node, const std::vector<Tensor>& values,
                               const std::vector<int64_t>& symbols) const;
  void set_sizes(detail::OpCall& call, const Node& node, const std::vector<int64_t>& symbols) const;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<int> inputs_, outputs_;
  std::vector<std::string> symbols_;
};

std::ostream& operator<<(std::ostream& out, const Graph& graph);

using TracedFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

struct TraceOptions {
  /// Names for tensors that the function uses: module.parameters() and buffers.
  StateView names = {};
  /// A dimension of an input whose size may differ from run to run. Dimensions of one name have one size.
  struct Dynamic {
    int input = 0, dim = 0;
    std::string name;
  };
  std::vector<Dynamic> dynamic = {};
  std::vector<std::string> input_names = {}, output_names = {};
};

/// Records what fn calls, on inputs of these dtypes and shapes. With dynamic dimensions it is called for several sizes
/// of them (elements of the inputs are repeated), and sizes among the arguments become functions of the symbols, which
/// one more call confirms. Throws Error when fn
///   * reads a value that depends on an input (item(), to_vector(), data()), naming the place: what it then does could
///     differ from run to run;
///   * draws random numbers (call eval() first), or is in an autocast region (run the graph in one instead);
///   * calls other ops, or other numbers of them, for other sizes;
///   * changes an input, a parameter or a view in place.
/// One thread: what fn does on other threads is not seen.
Graph trace(const TracedFunction& fn, const std::vector<Tensor>& inputs, const TraceOptions& options = {});

/// A graph with the same inputs whose outputs are those of `graph`, and then the gradients of the sum of its first
/// output's elements by these values, inputs or constants, found by their names.
Graph differentiate(const Graph& graph, const std::vector<std::string>& by);

}  // namespace tern
