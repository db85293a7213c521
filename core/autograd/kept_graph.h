#pragma once
// Whether the graph that a backward pass runs through may be run again, for ops whose kernels use up what forward
// saved.

namespace tern::detail {

/// True outside of backward passes, and in one that keeps its graph (retain_graph, create_graph).
bool graph_is_kept();

}  // namespace tern::detail
