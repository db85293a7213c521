#pragma once
// What a recording and a graph do alike: calls that no output depends on go, and the values are numbered again.

#include <algorithm>
#include <utility>
#include <vector>

namespace tern::detail {

/// Drops the nodes of which no output is needed, and the values that then belong to no node, input or output. The
/// lists of a node and view_of of a value are numbers of values, -1 for none; inputs stay.
template <class Value, class Node>
void drop_unused(std::vector<Value>& values, std::vector<Node>& nodes, std::vector<int>& inputs,
                 std::vector<int>& outputs) {
  std::vector<bool> needed(values.size(), false);
  const auto need = [&](const std::vector<int>& list) {
    for (const int v : list)
      if (v >= 0) needed[static_cast<size_t>(v)] = true;
  };
  need(outputs);
  std::vector<Node> kept;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const auto is_needed = [&](int v) { return v >= 0 && needed[static_cast<size_t>(v)]; };
    if (std::none_of(node->outputs.begin(), node->outputs.end(), is_needed)) continue;
    need(node->inputs);
    kept.push_back(std::move(*node));
  }
  std::reverse(kept.begin(), kept.end());
  nodes = std::move(kept);
  need(inputs);
  for (const Node& node : nodes) need(node.outputs);
  for (size_t v = values.size(); v-- > 0;)  // what a view is a view of comes before it
    if (needed[v] && values[v].view_of >= 0) needed[static_cast<size_t>(values[v].view_of)] = true;
  std::vector<int> moved(values.size(), -1);
  std::vector<Value> left;
  for (size_t v = 0; v < values.size(); ++v)
    if (needed[v]) {
      moved[v] = static_cast<int>(left.size());
      left.push_back(std::move(values[v]));
    }
  const auto renumber = [&](std::vector<int>& list) {
    for (int& v : list)
      if (v >= 0) v = moved[static_cast<size_t>(v)];
  };
  renumber(inputs);
  renumber(outputs);
  for (Node& node : nodes) {
    renumber(node.inputs);
    renumber(node.outputs);
  }
  for (Value& value : left)
    if (value.view_of >= 0) value.view_of = moved[static_cast<size_t>(value.view_of)];
  values = std::move(left);
}

}  // namespace tern::detail
