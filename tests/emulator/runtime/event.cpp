// The event functions of the runtime API.

#include <algorithm>

#include "tern/tests/emulator/runtime/state.h"

using namespace tern::standin;

namespace {

CUevent_st* find_event(State& s, cudaEvent_t handle) { return s.events.contains(handle) ? handle : nullptr; }

template <class Body>
cudaError_t on_event(const char* function, cudaEvent_t handle, Body&& body) {
  return api(function, [&](State& s) {
    CUevent_st* const event = find_event(s, handle);
    return event ? body(s, event) : cudaErrorInvalidResourceHandle;
  });
}

bool is_pending(const CUevent_st& event) { return event.record && !event.record->done->done; }

/// For functions that query whether the event has completed: a captured event never does.
cudaError_t forbid_captured(CUevent_st* event) {
  if (!event->capture) return cudaSuccess;
  if (!event->capture->ended) event->capture->invalidated = true;
  return cudaErrorCapturedEvent;
}

/// The stream joins the event's capture, or depends on more of its nodes.
cudaError_t wait_in_capture(State& s, CUstream_st* stream, CUevent_st* event) {
  Capture& capture = *event->capture;
  if (capture.ended) return cudaErrorCapturedEvent;
  if (stream->legacy) return forbid_implicit_capture(s, stream);
  if (stream->capture && stream->capture != event->capture) {
    stream->capture->invalidated = capture.invalidated = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  if (!stream->capture) {
    stream->capture = event->capture;
    stream->tail.clear();
    capture.streams.insert(stream);
  }
  for (int node : event->nodes)
    if (std::ranges::find(stream->tail, node) == stream->tail.end()) stream->tail.push_back(node);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return api("cudaEventCreateWithFlags", [&](State& s) {
    if (!handle || flags > (cudaEventBlockingSync | cudaEventDisableTiming)) return cudaErrorInvalidValue;
    auto event = std::make_unique<CUevent_st>();
    event->flags = flags;
    event->device = current_device();
    *handle = event.get();
    s.events.emplace(*handle, std::move(event));
    return cudaSuccess;
  });
}

// Queued waits for it remain valid.
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return on_event("cudaEventDestroy", handle, [](State& s, CUevent_st* event) {
    s.events.erase(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return on_event("cudaEventRecord", handle, [&](State& s, CUevent_st* event) {
    CUstream_st* const stream = find_stream(s, stream_handle);
    if (!stream || stream->device != event->device) return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
      if (stream->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
      event->capture = stream->capture;
      event->nodes = stream->tail;
      event->record.reset();
      return cudaSuccess;
    }
    auto made = std::make_shared<Record>();
    Operation operation;
    made->done = operation.done;
    operation.work = {"event record", [made] { made->time = std::chrono::steady_clock::now(); }, {}};
    if (const cudaError_t error = submit(s, stream, std::move(operation))) return error;
    event->record = made;
    event->capture.reset();
    event->nodes.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return on_event("cudaEventSynchronize", handle, [](State& s, CUevent_st* event) {
    if (const cudaError_t error = forbid_captured(event)) return error;
    if (const cudaError_t error = forbid_unsafe_during_capture(s)) return error;
    ++s.counters.host_synchronizations;
    if (event->record) wait_for(s, Token(event->record->done));
    return after_wait(s);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return on_event("cudaEventQuery", handle, [](State& s, CUevent_st* event) {
    if (const cudaError_t error = forbid_captured(event)) return error;
    if (const cudaError_t error = forbid_unsafe_during_capture(s)) return error;
    if (!is_pending(*event)) return cudaSuccess;
    step_towards(s, event->record->done->stream);
    return s.sticky != cudaSuccess ? s.sticky : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return on_event("cudaEventElapsedTime", start, [&](State& s, CUevent_st* first) {
    CUevent_st* const second = find_event(s, end);
    if (!second || !first->record || !second->record) return cudaErrorInvalidResourceHandle;
    if ((first->flags | second->flags) & cudaEventDisableTiming) return cudaErrorInvalidResourceHandle;
    if (is_pending(*first) || is_pending(*second)) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(second->record->time - first->record->time).count();
    return cudaSuccess;
  });
}

// Waits for the newest record of the event at the time of the call.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned flags) {
  return on_event("cudaStreamWaitEvent", handle, [&](State& s, CUevent_st* event) {
    CUstream_st* const stream = find_stream(s, stream_handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return cudaErrorNotSupported;
    if (event->capture) return wait_in_capture(s, stream, event);
    if (stream->capture) {
      stream->capture->invalidated = true;
      return cudaErrorStreamCaptureIsolation;
    }
    if (!is_pending(*event)) return cudaSuccess;
    Operation operation;
    operation.work.name = "event wait";
    operation.after.push_back(event->record->done);
    return submit(s, stream, std::move(operation));
  });
}

}  // extern "C"
