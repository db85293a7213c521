#include "tern/core/autograd/graph_dot.h"

#include <map>
#include <sstream>
#include <unordered_map>

#include "tern/core/autograd/node.h"

namespace tern {
namespace {

std::string dot_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? "\\n" : std::string(1, c);
  }
  return result + '"';
}

class DotWriter {
 public:
  explicit DotWriter(const StateView& names) {
    for (const NamedTensor& named : names) {
      if (named.tensor.requires_grad() && named.tensor.is_leaf())
        leaves_.try_emplace(detail::gradient_edge(named.tensor).node.get(), named.name);
    }
  }

  /// The newest nodes first, so that the order depends on the graph alone.
  std::string write(const Tensor& output) {
    text_ << "digraph tern {\n  rankdir = BT;\n  node [fontname = \"sans-serif\"];\n";
    if (output.requires_grad())
      number_of(detail::gradient_edge(output).node);
    else
      text_ << "  n0 [label = " << dot_string(output.describe()) << ", shape = box];\n";
    while (!open_.empty()) {
      const std::shared_ptr<detail::Node> node = open_.rbegin()->second;
      open_.erase(std::prev(open_.end()));
      write_node(*node);
    }
    text_ << "}\n";
    return text_.str();
  }

 private:
  int number_of(const std::shared_ptr<detail::Node>& node) {
    const auto [found, is_new] = numbers_.try_emplace(node.get(), static_cast<int>(numbers_.size()));
    if (is_new) open_.emplace(std::pair(node->sequence(), found->second), node);
    return found->second;
  }

  void write_node(const detail::Node& node) {
    const int number = numbers_.at(&node);
    std::string label = node.is_accumulator() ? "leaf" : node.name();
    if (const auto leaf = leaves_.find(&node); leaf != leaves_.end()) label = leaf->second;
    for (const detail::Node::Meta& meta : node.output_meta())
      label += detail::concatenate("\n", meta.shape, " ", meta.dtype);
    text_ << "  n" << number << " [label = " << dot_string(label) << (node.is_accumulator() ? ", shape = box" : "")
          << "];\n";
    for (const detail::Edge& edge : node.edges())
      if (edge.node) text_ << "  n" << number_of(edge.node) << " -> n" << number << ";\n";
  }

  std::unordered_map<const detail::Node*, std::string> leaves_;
  std::unordered_map<const detail::Node*, int> numbers_;
  std::map<std::pair<uint64_t, int>, std::shared_ptr<detail::Node>> open_;
  std::ostringstream text_;
};

}  // namespace

std::string graph_dot(const Tensor& output, const StateView& names) { return DotWriter(names).write(output); }

}  // namespace tern
