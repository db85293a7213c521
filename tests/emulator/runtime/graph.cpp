// The graph functions of the runtime API. A launched graph is one operation of its stream; its nodes run one by one in
// any order that their dependencies allow.

#include "tern/tests/emulator/runtime/state.h"

using namespace tern::standin;

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return api("cudaGraphInstantiate", [&](State& s) {
    if (!executable || !s.graphs.contains(graph)) return cudaErrorInvalidValue;
    auto* made = new CUgraphExec_st;
    made->nodes = std::make_shared<const std::vector<Node>>(graph->nodes);
    s.executables.insert(made);
    *executable = made;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  return api("cudaGraphLaunch", [&](State& s) {
    CUstream_st* const stream = find_stream(s, handle);
    if (!s.executables.contains(executable)) return cudaErrorInvalidValue;
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {  // child graphs are not modelled
      stream->capture->invalidated = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    Operation operation;
    operation.work.name = "graph";
    operation.graph = std::make_unique<GraphRun>();
    operation.graph->nodes = executable->nodes;
    operation.graph->done.resize(executable->nodes->size());
    operation.graph->left = executable->nodes->size();
    if (executable->last && !executable->last->done) operation.after.push_back(executable->last);
    const Token done = operation.done;
    if (const cudaError_t error = submit(s, stream, std::move(operation))) return error;
    executable->last = done;
    ++s.counters.graph_launches;
    return cudaSuccess;
  });
}

// Returns only the number of nodes: node handles are not modelled.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return api("cudaGraphGetNodes", [&](State& s) {
    if (!count || !s.graphs.contains(graph)) return cudaErrorInvalidValue;
    if (nodes) return cudaErrorNotSupported;
    *count = graph->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", [&](State& s) {
    if (s.graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return api("cudaGraphExecDestroy", [&](State& s) {
    if (s.executables.erase(executable) == 0) return cudaErrorInvalidValue;
    delete executable;
    return cudaSuccess;
  });
}

}  // extern "C"
