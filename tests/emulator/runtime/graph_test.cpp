// Stream capture and graphs of the stand-in CUDA runtime, and the effects of mistakes.

#include <future>
#include <source_location>

#include "tern/tests/emulator/runtime/standin_test.h"

namespace tern::standin {
namespace {

float* somewhere = nullptr;  // memory that captured kernels may write

class Graph : public StandIn {
 protected:
  void SetUp() override {
    StandIn::SetUp();
    somewhere = device_array(1);
    reset_counters();
  }
};

void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  ok(cudaStreamBeginCapture(stream, mode));
}
cudaGraph_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(stream, &graph));
  return graph;
}
cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t executable = nullptr;
  ok(cudaGraphInstantiate(&executable, graph, 0));
  return executable;
}
cudaError_t in_another_thread(const std::function<cudaError_t()>& call) {
  return std::async(std::launch::async, call).get();
}
size_t node_count(cudaGraph_t graph) {
  size_t count = 0;
  ok(cudaGraphGetNodes(graph, nullptr, &count));
  return count;
}
cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ok(cudaStreamIsCapturing(stream, &status));
  return status;
}

TEST_F(Graph, RunsWhatWasCapturedAsOftenAsLaunched) {
  EXPECT_TRUE(in_every_order([] {
    float* x = device_array(1);
    const cudaStream_t s = new_stream();
    set(s, x, 0);
    ok(cudaStreamSynchronize(s));
    begin(s);
    EXPECT_EQ(status_of(s), cudaStreamCaptureStatusActive);
    add(s, x, x, 1);
    add(s, x, x, 10);
    const cudaGraph_t graph = end(s);
    EXPECT_EQ(status_of(s), cudaStreamCaptureStatusNone);
    EXPECT_EQ(node_count(graph), 2u);
    EXPECT_EQ(read_one(x, s), 0);  // nothing runs during a capture
    const cudaGraphExec_t executable = instantiate(graph);
    ok(cudaGraphDestroy(graph));
    for (int i = 0; i < 3; ++i) ok(cudaGraphLaunch(executable, s));
    EXPECT_EQ(counters().graph_launches, 3u);
    EXPECT_EQ(counters().kernel_launches, 3u);
    const bool right = read_one(x, s) == 33;
    ok(cudaGraphExecDestroy(executable));
    return right;
  }));
}

TEST_F(Graph, AGraphRunsLateAndOutlivesItsHandle) {
  float* x = device_array(1);
  const cudaStream_t s = new_stream();
  const cudaGraphExec_t executable = captured(s, [&] { set(s, x, 1); });
  ok(cudaGraphLaunch(executable, s));
  ok(cudaGraphExecDestroy(executable));
  EXPECT_EQ(cudaGraphLaunch(executable, s), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_EQ(read_one(x, s), 1);
}

TEST_F(Graph, LaunchesOfOneGraphDoNotOverlap) {
  EXPECT_TRUE(in_every_order([] {  // in two streams without a dependency
    float* x = device_array(1);
    const cudaStream_t s = new_stream(), t = new_stream();
    ok(cudaMemsetAsync(x, 0, 4, s));
    ok(cudaStreamSynchronize(s));
    const cudaGraphExec_t executable = captured(s, [&] { add(s, x, x, 1); });
    ok(cudaGraphLaunch(executable, s));
    ok(cudaGraphLaunch(executable, t));
    return read_one(x, t) == 2;
  }));
}

TEST_F(Graph, EmptyGraphsRun) {
  const cudaStream_t s = new_stream();
  begin(s);
  const cudaGraph_t graph = end(s);
  EXPECT_EQ(node_count(graph), 0u);
  ok(cudaGraphLaunch(instantiate(graph), s));
  ok(cudaStreamSynchronize(s));
}

/// z = (x + 1) + (x + 2) by two branches in two streams. Waits can be omitted.
bool branches(bool fork, bool join_again) {
  float *x = device_array(1), *a = device_array(1), *z = device_array(1);
  const cudaStream_t s = new_stream(), t = new_stream();
  begin(s);
  const cudaEvent_t start = new_event();
  if (!fork) ok(cudaEventRecord(start, s));  // too early
  set(s, x, 10);
  if (fork) ok(cudaEventRecord(start, s));
  ok(cudaStreamWaitEvent(t, start, 0));
  EXPECT_EQ(status_of(t), cudaStreamCaptureStatusActive);
  add(t, a, x, 1);
  const cudaEvent_t done = new_event();
  if (join_again) ok(cudaEventRecord(done, t));
  if (!join_again) {  // the other branch is joined, but only after the reader
    add(s, z, a, 2);
    join(t, s);
  } else {
    ok(cudaStreamWaitEvent(s, done, 0));
    add(s, z, a, 2);
  }
  const cudaGraph_t graph = end(s);
  EXPECT_EQ(node_count(graph), 3u);
  EXPECT_EQ(status_of(t), cudaStreamCaptureStatusNone);
  ok(cudaGraphLaunch(instantiate(graph), s));
  return read_one(z, s) == 13;
}

TEST_F(Graph, CaptureSpreadsByEvents) {
  EXPECT_TRUE(in_every_order([] { return branches(true, true); }));
}

TEST_F(Graph, MissingDependenciesInAGraphShow) {
  EXPECT_FALSE(in_every_order([] { return branches(false, true); }));
  EXPECT_FALSE(in_every_order([] { return branches(true, false); }));
}

TEST_F(Graph, CapturesCopiesAndFills) {
  float *x = device_array(2), *from = pinned_array(2), *to = pinned_array(2);
  const cudaStream_t s = new_stream();
  const cudaGraphExec_t executable = captured(s, [&] {
    ok(cudaMemsetAsync(x, 0, 8, s));
    ok(cudaMemcpyAsync(x, from, 4, cudaMemcpyHostToDevice, s));
    ok(cudaMemcpyAsync(to, x, 8, cudaMemcpyDeviceToHost, s));
    ok(enqueue(s, "library", [to] { to[1] += 1; }));
  });
  for (float value : {3.0f, 4.0f}) {  // addresses are captured, not values
    from[0] = value;
    ok(cudaGraphLaunch(executable, s));
    ok(cudaStreamSynchronize(s));
    EXPECT_EQ(to[0], value);
    EXPECT_EQ(to[1], 1);
  }
}

TEST_F(Graph, ReplayKeepsTheArgumentsOfTheCapture) {
  float *x = device_array(1), *y = device_array(1);
  const cudaStream_t s = new_stream();
  float value = 1;
  const cudaGraphExec_t executable = captured(s, [&] { set(s, x, value); });
  value = 2;  // stale capture: the kernel does not get the new value
  set(s, y, value);
  ok(cudaGraphLaunch(executable, s));
  EXPECT_EQ(read_one(x, s), 1);
  EXPECT_EQ(read_one(y, s), 2);
}

TEST_F(Graph, FreedMemoryInAReplayFails) {
  for (const bool by_copy : {false, true}) {
    SCOPED_TRACE(by_copy ? "of a copy" : "of a kernel");
    reset();
    float *x = device_array(1), *to = pinned_array(1);
    const cudaStream_t s = new_stream();
    const cudaGraphExec_t executable =
        captured(s, [&] { by_copy ? ok(cudaMemcpyAsync(to, x, 4, cudaMemcpyDeviceToHost, s)) : set(s, x, 1); });
    ok(cudaGraphLaunch(executable, s));
    ok(cudaStreamSynchronize(s));
    ok(cudaFree(x));
    ok(cudaGraphLaunch(executable, s));
    EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
    EXPECT_TRUE(has(device_error(), "freed allocation"));
  }
}

// --- calls that are not allowed during a capture ---

/// The error of `call` during a capture of the stream; expects that it invalidates the capture.
cudaError_t error_in_capture(cudaStream_t s, const std::function<cudaError_t()>& call,
                             cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  begin(s, mode);
  set(s, somewhere, 1);
  const cudaError_t error = call();
  EXPECT_EQ(cudaGetLastError(), error);
  EXPECT_EQ(status_of(s), cudaStreamCaptureStatusInvalidated);
  EXPECT_EQ(cudaMemsetAsync(somewhere, 0, 4, s), cudaErrorStreamCaptureInvalidated);
  cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(1);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(status_of(s), cudaStreamCaptureStatusNone);
  cudaGetLastError();
  return error;
}

void expect_unsupported(cudaStream_t s, const std::function<cudaError_t()>& call,
                        cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal,
                        const std::source_location& where = std::source_location::current()) {
  const testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), mode);
  EXPECT_EQ(error_in_capture(s, call, mode), cudaErrorStreamCaptureUnsupported);
}

TEST_F(Graph, WaitsAreNotAllowedDuringCapture) {
  const cudaStream_t s = new_stream(), other = new_stream();
  const cudaEvent_t event = new_event();
  expect_unsupported(s, [&] { return cudaStreamSynchronize(s); });
  expect_unsupported(s, [&] { return cudaStreamQuery(s); });
  for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed})
    expect_unsupported(s, cudaDeviceSynchronize, mode);
  const auto record_and = [&](cudaError_t (*wait)(cudaEvent_t)) {
    return [=] {
      ok(cudaEventRecord(event, s));
      return wait(event);
    };
  };
  EXPECT_EQ(error_in_capture(s, record_and(cudaEventSynchronize)), cudaErrorCapturedEvent);
  EXPECT_EQ(error_in_capture(s, record_and(cudaEventQuery), cudaStreamCaptureModeRelaxed), cudaErrorCapturedEvent);
  const cudaEvent_t elsewhere = new_event();
  ok(cudaEventRecord(elsewhere, other));
  expect_unsupported(s, [&] { return cudaEventQuery(elsewhere); });
}

TEST_F(Graph, AllocationsAreNotAllowedDuringCapture) {
  const cudaStream_t s = new_stream();
  void* x = nullptr;
  float* y = device_array(1);
  for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal})
    expect_unsupported(
        s, [&] { return cudaMalloc(&x, 4); }, mode);
  expect_unsupported(s, [&] { return cudaFree(y); });
  expect_unsupported(s, [&] { return cudaHostAlloc(&x, 4, cudaHostAllocDefault); });
  begin(s, cudaStreamCaptureModeRelaxed);
  ok(cudaMalloc(&x, 4));
  end(s);
}

TEST_F(Graph, OtherThreadsAreForbiddenByGlobalCaptures) {
  const cudaStream_t s = new_stream();
  void* x = nullptr;
  const auto allocate = [&] { return cudaMalloc(&x, 4); };
  begin(s, cudaStreamCaptureModeThreadLocal);
  ok(in_another_thread(allocate));
  end(s);
  begin(s);
  EXPECT_EQ(in_another_thread(allocate), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(s, nullptr), cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graph, TheLegacyStreamIsNotAllowedDuringABlockingCapture) {
  float* x = device_array(1);
  const cudaStream_t s = new_stream(cudaStreamDefault), free = new_stream();
  float host = 0;
  EXPECT_EQ(error_in_capture(s, [&] { return cudaMemset(x, 0, 4); }), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(error_in_capture(s, [&] { return cudaMemcpy(x, &host, 4, cudaMemcpyHostToDevice); }),
            cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(error_in_capture(s, [&] { return cudaStreamSynchronize(nullptr); }), cudaErrorStreamCaptureImplicit);
  expect_unsupported(free, [&] { return cudaMemcpy(x, &host, 4, cudaMemcpyHostToDevice); });
  begin(free);
  ok(cudaMemset(x, 0, 4));
  end(free);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
}

TEST_F(Graph, PageableCopiesAreNotAllowedDuringCapture) {
  float *x = device_array(1), host = 0;
  const cudaStream_t s = new_stream();
  expect_unsupported(s, [&] { return cudaMemcpyAsync(x, &host, 4, cudaMemcpyHostToDevice, s); });
  expect_unsupported(s, [&] { return cudaMemcpyAsync(&host, x, 4, cudaMemcpyDeviceToHost, s); });
}

TEST_F(Graph, DependenciesDoNotCrossTheBoundary) {
  const cudaStream_t s = new_stream(), other = new_stream();
  const cudaEvent_t outside = new_event();
  set(other, device_array(1), 1);
  ok(cudaEventRecord(outside, other));
  EXPECT_EQ(error_in_capture(s, [&] { return cudaStreamWaitEvent(s, outside, 0); }), cudaErrorStreamCaptureIsolation);

  begin(s);
  begin(other);
  const cudaEvent_t inside = new_event();
  ok(cudaEventRecord(inside, s));
  EXPECT_EQ(cudaStreamWaitEvent(other, inside, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(cudaStreamEndCapture(s, nullptr), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(other, nullptr), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventSynchronize(inside), cudaErrorCapturedEvent);  // it never completed
  ok(cudaEventRecord(inside, s));
  ok(cudaEventSynchronize(inside));
}

TEST_F(Graph, CapturesMustBeJoinedAndEndedWhereTheyBegan) {
  float* x = device_array(1);
  const cudaStream_t s = new_stream(), t = new_stream();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorIllegalState);
  begin(s);
  EXPECT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  join(s, t);
  set(t, x, 1);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(status_of(t), cudaStreamCaptureStatusNone);

  begin(s);
  join(s, t);
  EXPECT_EQ(cudaStreamEndCapture(t, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);

  const auto end_capture = [&] { return cudaStreamEndCapture(s, &graph); };
  begin(s, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(in_another_thread(end_capture), cudaErrorStreamCaptureWrongThread);
  ok(end_capture());
  begin(s, cudaStreamCaptureModeRelaxed);
  ok(in_another_thread(end_capture));
}

TEST_F(Graph, ADestroyedStreamEndsItsCapture) {
  const cudaStream_t s = new_stream(), t = new_stream();
  begin(s);
  join(s, t);
  ok(cudaStreamDestroy(s));
  EXPECT_EQ(status_of(t), cudaStreamCaptureStatusNone);
  ok(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace tern::standin
