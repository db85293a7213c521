// Streams as lazy queues: their waiting work, the choice of the next operation, and errors of queued work.

#include <algorithm>
#include <ranges>

#include "tern/tests/emulator/runtime/memory.h"

namespace tern::standin {
namespace {

thread_local bool running_work = false;

bool finished(const std::vector<Token>& tokens) {
  return std::ranges::all_of(tokens, [](const Token& token) { return token->done; });
}

bool may_start(const Work& work) { return !work.ready || work.ready(); }

/// Runs one piece of work.
void run_work(State& s, const Work& work) {
  if (s.sticky != cudaSuccess || !work.run) return;
  running_work = true;
  cudaError_t error = cudaSuccess;
  std::string text;
  try {
    const OpenMemory open(s);
    work.run();
  } catch (const DeviceError& failure) {
    error = failure.code;
    text = failure.what();
  } catch (const std::exception& failure) {
    error = take_illegal_access() ? cudaErrorIllegalAddress : cudaErrorLaunchFailure;
    text = failure.what();
  }
  running_work = false;
  if (error != cudaSuccess) make_sticky(s, error, work.name + ": " + text);
}

/// A node that can run now, chosen by the order; -1 if there is none.
int ready_node(State& s, const GraphRun& graph) {
  std::vector<int> ready;
  for (size_t n = 0; n < graph.nodes->size(); ++n) {
    const Node& node = (*graph.nodes)[n];
    const bool free = !graph.done[n] && std::ranges::all_of(node.after, [&](int before) { return graph.done[before]; });
    if (free && may_start(node.work)) ready.push_back(static_cast<int>(n));
  }
  if (ready.empty()) return -1;
  if (s.order.kind == Order::kForward) return ready.front();
  if (s.order.kind == Order::kReverse) return ready.back();
  return ready[s.random() % ready.size()];
}

bool can_step(State& s, const CUstream_st& stream) {
  if (stream.queue.empty()) return false;
  if (s.sticky != cudaSuccess) return true;  // all work is dropped
  const Operation& front = stream.queue.front();
  if (!finished(front.after)) return false;
  return front.graph ? front.graph->left == 0 || ready_node(s, *front.graph) >= 0 : may_start(front.work);
}

/// Runs the front operation, or one of its nodes if it is a graph. Requires can_step().
void step(State& s, CUstream_st& stream) {
  Operation& front = stream.queue.front();
  if (front.graph && s.sticky == cudaSuccess && front.graph->left > 0) {
    const int node = ready_node(s, *front.graph);
    run_work(s, (*front.graph->nodes)[node].work);
    front.graph->done[node] = 1;
    if (--front.graph->left > 0) {
      s.changed.notify_all();
      return;
    }
  } else {
    run_work(s, front.work);
  }
  front.done->done = true;
  front.done->stream = nullptr;
  stream.queue.pop_front();
  s.changed.notify_all();
}

/// A stream that can step and is `stream` or one that it waits for; nullptr if there is none.
CUstream_st* needed_by(State& s, CUstream_st* stream, std::set<CUstream_st*>& seen) {
  if (!seen.insert(stream).second || stream->queue.empty()) return nullptr;
  if (can_step(s, *stream)) return stream;
  for (const Token& token : stream->queue.front().after) {
    if (token->done) continue;
    if (CUstream_st* found = needed_by(s, token->stream, seen)) return found;
  }
  return nullptr;
}

/// All streams of a device (-1: all), the legacy one first.
std::vector<CUstream_st*> streams_of(State& s, int device) {
  std::vector<CUstream_st*> found;
  for (const auto* streams : {&s.legacy, &s.streams})
    for (const auto& stream : *streams)
      if (device < 0 || stream->device == device) found.push_back(stream.get());
  return found;
}

CUstream_st* choose(State& s, CUstream_st* target) {
  if (s.order.kind != Order::kForward) {
    std::vector<CUstream_st*> ready;
    for (CUstream_st* stream : streams_of(s, -1))
      if (can_step(s, *stream)) ready.push_back(stream);
    if (s.order.kind == Order::kRandom) return ready.empty() ? nullptr : ready[s.random() % ready.size()];
    for (CUstream_st* stream : std::views::reverse(ready))
      if (stream != target) return stream;
  }
  std::set<CUstream_st*> seen;
  if (CUstream_st* const needed = needed_by(s, target, seen)) return needed;
  for (CUstream_st* stream : streams_of(s, -1))  // the needed work may wait for another device, by enqueue_when()
    if (can_step(s, *stream)) return stream;
  return nullptr;
}

}  // namespace

bool in_queued_work() { return running_work; }

CUstream_st* find_stream(State& s, cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return s.legacy[current_device()].get();
  const auto found = std::ranges::find(s.streams, handle, &std::unique_ptr<CUstream_st>::get);
  return found != s.streams.end() && !(*found)->destroyed ? handle : nullptr;
}

cudaError_t submit(State& s, CUstream_st* stream, Work work) {
  Operation operation;
  operation.work = std::move(work);
  return submit(s, stream, std::move(operation));
}

cudaError_t submit(State& s, CUstream_st* stream, Operation operation) {
  if (stream->legacy)
    if (const cudaError_t error = forbid_implicit_capture(s, stream)) return error;
  if (stream->capture) return capture_node(s, stream, std::move(operation.work));
  // The legacy stream and the blocking streams of a device wait for each other at every operation.
  const auto come_after = [&](const CUstream_st& other) {
    if (other.last && !other.last->done) operation.after.push_back(other.last);
  };
  if (stream->legacy) {
    for (const auto& other : s.streams)
      if (other->device == stream->device && other->blocking()) come_after(*other);
  } else if (stream->blocking()) {
    come_after(*s.legacy[stream->device]);
  }
  operation.done->stream = stream;
  stream->last = operation.done;
  stream->queue.push_back(std::move(operation));
  return cudaSuccess;
}

bool step_towards(State& s, CUstream_st* stream) {
  CUstream_st* const next = choose(s, stream);
  if (next) step(s, *next);
  return next != nullptr;
}

void wait_for(State& s, const Token& token) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::milliseconds patience(s.config.patience_ms);
  auto last_step = Clock::now();
  while (token && !token->done) {
    if (step_towards(s, token->stream))
      last_step = Clock::now();
    else if (Clock::now() < last_step + patience)  // until another host thread or process acts
      s.changed.wait_for(s.mutex, std::chrono::microseconds(200));
    else
      make_sticky(s, cudaErrorLaunchTimeout,
                  "queued work waited " + std::to_string(patience.count()) + " ms for an event that did not occur");
  }
  forget_finished_streams(s);
}

void wait_for_stream(State& s, CUstream_st* stream) { wait_for(s, Token(stream->last)); }

void wait_for_device(State& s, int device) {
  std::vector<Token> tokens;
  for (CUstream_st* stream : streams_of(s, device))
    if (stream->last) tokens.push_back(stream->last);
  if (s.order.kind == Order::kReverse) std::reverse(tokens.begin(), tokens.end());
  for (const Token& token : tokens) wait_for(s, token);
}

void forget_finished_streams(State& s) {
  std::erase_if(s.streams, [](const auto& stream) { return stream->destroyed && stream->queue.empty(); });
}

cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work, bool counts_as_kernel) {
  return enqueue_when(stream, name, nullptr, std::move(work), counts_as_kernel);
}

cudaError_t enqueue_when(cudaStream_t handle, const char* name, std::function<bool()> ready, std::function<void()> work,
                         bool counts_as_kernel) {
  return on_stream("enqueue", handle, [&](State& s, CUstream_st* stream) {
    if (counts_as_kernel) {
      ++s.counters.kernel_launches;
      ++s.counters.kernels_by_name[name];
    }
    return submit(s, stream, Work{name, std::move(work), std::move(ready)});
  });
}

}  // namespace tern::standin
