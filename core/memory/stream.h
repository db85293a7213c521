#pragma once
// Streams and events. A device runs the work of one stream in order; different streams run concurrently unless an event
// orders them. On the CPU every kernel is done on return, so these classes are empty there and never wait.
//
// Every thread has a current stream for each device, at first one that all threads share. Ops queue their kernels
// there.

#include <memory>

#include "tern/core/device/device.h"

namespace tern {

class Event;

/// A shared handle to a separate stream. Memory that one stream allocated and another uses needs
/// Storage::record_stream.
class Stream {
 public:
  explicit Stream(Device device);
  // A move copies, because a handle without a stream would be invalid.
  Stream(const Stream&) = default;
  Stream& operator=(const Stream&) = default;
  Device device() const { return device_; }
  kernels::Stream handle() const;
  /// Work queued here later runs after the event.
  void wait(const Event& event) const;
  /// The host waits for everything queued so far.
  void synchronize() const;

 private:
  Device device_;
  std::shared_ptr<void> handle_;
};

/// A mark in a stream.
class Event {
 public:
  /// `timing` enables seconds_since(), at a small cost.
  explicit Event(Device device, bool timing = false);
  Event(const Event&) = default;  // a move copies, as with Stream
  Event& operator=(const Event&) = default;
  /// Marks the work queued so far on the stream, or on this thread's current one.
  void record(kernels::Stream stream);
  void record() { record(current_stream(device_)); }
  /// Work queued on the stream later runs after the mark.
  void make_wait(kernels::Stream stream) const;
  /// True when never recorded or when the device has passed the mark.
  bool done() const;
  void synchronize() const;
  /// Seconds of device time between two marks that the device has passed.
  double seconds_since(const Event& start) const;

 private:
  Device device_;
  std::shared_ptr<void> handle_;
  bool recorded_ = false;
  double host_seconds_ = 0;  // CPU: the time of record()
};

/// Makes a stream the current one of this thread.
class StreamGuard {
 public:
  [[nodiscard]] explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream stream_;
  kernels::Stream previous_;
};

/// Waits for everything queued on the device by any thread. Throws errors that kernels could not throw: DeviceError,
/// and Error for indices out of range.
void synchronize(Device device);

}  // namespace tern
