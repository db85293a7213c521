#pragma once
// Declarations shared by the functions of the stand-in runtime: the devices' state under one lock, the queues, and the
// common part of all API functions.

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tern/tests/emulator/runtime/queue.h"
#include "tern/tests/emulator/runtime/standin.h"

namespace tern::standin {

struct Capture;

/// The completion of one queued operation, for those that wait for it.
struct Completion {
  bool done = false;
  CUstream_st* stream = nullptr;  // the operation's stream, until it is done
};
using Token = std::shared_ptr<Completion>;

/// The work of an operation. Also a node of a graph, so `run` may be called several times.
struct Work {
  std::string name;
  std::function<void()> run;
  std::function<bool()> ready;  // empty: ready immediately
};

struct Node {
  Work work;
  std::vector<int> after;  // earlier nodes
};

/// A graph being run on a stream, and which of its nodes are done.
struct GraphRun {
  std::shared_ptr<const std::vector<Node>> nodes;
  std::vector<char> done;
  size_t left = 0;
};

struct Operation {
  Work work;
  std::vector<Token> after;
  Token done = std::make_shared<Completion>();
  std::unique_ptr<GraphRun> graph;
};

/// One recording of an event.
struct Record {
  Token done;
  std::chrono::steady_clock::time_point time;
};

}  // namespace tern::standin

struct CUstream_st {
  int device = 0;
  unsigned flags = cudaStreamDefault;
  bool legacy = false;
  bool destroyed = false;  // removed when its queue is empty
  std::deque<tern::standin::Operation> queue;
  tern::standin::Token last;  // the newest operation; null if there is none
  std::shared_ptr<tern::standin::Capture> capture;
  std::vector<int> tail;  // nodes that the next captured node depends on

  bool blocking() const { return !legacy && !(flags & cudaStreamNonBlocking); }
};

struct CUevent_st {
  unsigned flags = cudaEventDefault;
  int device = 0;
  std::shared_ptr<tern::standin::Record> record;  // the newest; null: never recorded
  std::shared_ptr<tern::standin::Capture> capture;
  std::vector<int> nodes;  // recorded in `capture`
};

struct CUgraph_st {
  std::vector<tern::standin::Node> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<tern::standin::Node>> nodes;
  tern::standin::Token last;  // launches of one graph do not overlap
};

namespace tern::standin {

struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  CUstream_st* origin = nullptr;
  std::set<CUstream_st*> streams;
  bool invalidated = false;
  bool ended = false;
  std::unique_ptr<CUgraph_st> graph;
};

struct Fault {
  int calls_left;
  int error;
};

struct State {
  std::recursive_mutex mutex;
  std::condition_variable_any changed;  // notified when an operation has run

  DeviceConfig config;
  bool protection = false;
  Order order;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<CUstream_st>> legacy;   // one for each device
  std::vector<std::unique_ptr<CUstream_st>> streams;  // created ones, oldest first
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> executables;
  std::set<std::shared_ptr<Capture>> captures;

  cudaError_t sticky = cudaSuccess;
  std::string sticky_text;
  std::map<std::string, std::vector<Fault>> faults;
  Counters counters;
  std::set<int> contexts;  // devices that have one
};

State& state();
/// body(state) under the lock.
template <class Body>
auto locked(Body&& body) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return body(s);
}

// --- faults.cpp ---
/// The error from injected faults and the state of driver and device. `needs_device`: the function fails without one.
cudaError_t refusal(State& s, const char* function, bool needs_device);
/// Creates the context of the thread's device for a call that needs one.
void note_context(State& s, std::string_view function);
/// Stores the error for cudaGetLastError() and returns it.
cudaError_t remember(cudaError_t error);
/// Whether the error destroys a GPU's context.
bool is_sticky(cudaError_t error);
void make_sticky(State& s, cudaError_t error, const std::string& text);
/// Removes queues, memory, handles and sticky errors.
void clear_devices(State& s);

/// The common part of all API functions: takes the lock, counts the call, refuses it if necessary, runs body(State&)
/// and stores its error.
template <class Body>
cudaError_t api(const char* function, bool needs_device, Body&& body) {
  return locked([&](State& s) {
    cudaError_t error = refusal(s, function, needs_device);
    if (error == cudaSuccess && needs_device) note_context(s, function);
    if (error == cudaSuccess) error = body(s);
    return remember(error);
  });
}
template <class Body>
cudaError_t api(const char* function, Body&& body) {
  return api(function, true, body);
}

/// For functions that wait: work that ran during the wait may have failed.
inline cudaError_t after_wait(State& s) { return s.sticky; }

// --- queue.cpp ---
/// The stream of a handle (0, cudaStreamLegacy: the current device's legacy default stream), or nullptr.
CUstream_st* find_stream(State& s, cudaStream_t handle);
/// api() for a function of one stream.
template <class Body>
cudaError_t on_stream(const char* function, cudaStream_t handle, Body&& body) {
  return api(function, [&](State& s) {
    CUstream_st* const stream = find_stream(s, handle);
    return stream ? body(s, stream) : cudaErrorInvalidResourceHandle;
  });
}
/// Queues or captures an operation. The stream must be valid.
cudaError_t submit(State& s, CUstream_st* stream, Operation operation);
cudaError_t submit(State& s, CUstream_st* stream, Work work);
/// Runs operations, chosen by the order, until this one is done.
void wait_for(State& s, const Token& token);
void wait_for_stream(State& s, CUstream_st* stream);
/// Waits for all work on one device, or on all devices (-1).
void wait_for_device(State& s, int device);
/// Runs at most one operation that `stream` needs. Returns false when none could run.
bool step_towards(State& s, CUstream_st* stream);
void forget_finished_streams(State& s);
/// True in a host thread that runs queued work, which may not call CUDA.
bool in_queued_work();

// --- device.cpp ---
/// Sets the calling thread's device without checks.
void set_current_device(int device);

// --- capture.cpp ---
cudaError_t capture_node(State& s, CUstream_st* stream, Work work);
/// For functions that wait for the stream or query its state: if it is being captured, invalidates the capture and
/// returns an error.
cudaError_t forbid_capture_of(State& s, CUstream_st* stream);
/// For functions that CUDA calls unsafe during a capture (allocations, waits): depends on the modes of the captures.
cudaError_t forbid_unsafe_during_capture(State& s);
/// For functions that wait for a whole device.
cudaError_t forbid_any_capture(State& s);
/// For an operation on the legacy stream while a blocking stream is being captured.
cudaError_t forbid_implicit_capture(State& s, CUstream_st* legacy);

/// Removes a destroyed stream from its capture, or ends the capture if it is the origin.
void leave_capture(State& s, CUstream_st* stream);

// --- device_memory.cpp ---
void forget_memory(State& s);
/// While an object exists, the host can access device memory.
class OpenMemory {
 public:
  explicit OpenMemory(State& s);
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;

 private:
  State& state_;
};

}  // namespace tern::standin
