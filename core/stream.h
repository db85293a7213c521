#pragma once
// Streams and events. A device runs the work of one stream in order; different streams run side by side unless an event
// orders them. On the CPU every kernel is done on return: there these classes hold nothing and never wait.
//
// Every thread has a current stream for each device, at first one that all threads share. Ops queue their kernels
// there.

#include <memory>
#include <vector>

#include "tern/core/tensor.h"

namespace tern {

class Event;

/// A shared handle to a queue of its own. Memory that one stream allocated and another uses needs
/// Storage::record_stream.
class Stream {
 public:
  explicit Stream(Device device);
  // Moving copies: no handle is left without its queue.
  Stream(const Stream&) = default;
  Stream& operator=(const Stream&) = default;
  Device device() const { return device_; }
  kernels::Stream handle() const;
  /// What is queued here later runs after the event.
  void wait(const Event& event) const;
  /// Waits on the host for everything queued so far.
  void synchronize() const;

 private:
  Device device_;
  std::shared_ptr<void> handle_;
};

/// A mark in a stream.
class Event {
 public:
  /// `timing`: seconds_since() can be asked; costs a little.
  explicit Event(Device device, bool timing = false);
  Event(const Event&) = default;  // moving copies, as with Stream
  Event& operator=(const Event&) = default;
  /// Marks what is queued so far on the stream, or on this thread's current one.
  void record(kernels::Stream stream);
  void record() { record(current_stream(device_)); }
  /// What is queued on the stream later runs after the mark.
  void hold_back(kernels::Stream stream) const;
  /// True when never recorded or when the device has passed the mark.
  bool done() const;
  void synchronize() const;
  /// Seconds of device time between two marks that the device has passed.
  double seconds_since(const Event& start) const;

 private:
  Device device_;
  std::shared_ptr<void> handle_;
  bool recorded_ = false;
  double host_seconds_ = 0;  // CPU: when it was recorded
};

/// Makes a stream the current one of this thread.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream stream_;
  kernels::Stream previous_;
};

/// Waits for everything queued on the device, by any thread. Throws what kernels could not throw: DeviceError, and
/// Error for indices outside their range that they met.
void synchronize(Device device);

/// Values on their way to the host: the copy is queued at once and read when it has arrived, so that nothing waits.
class HostCopy {
 public:
  /// Contiguous copy of the tensor as it is at this point of the current stream.
  explicit HostCopy(const Tensor& tensor);
  bool ready() const { return event_.done(); }
  /// Waits if it must; throws like synchronize().
  void wait() const;
  /// The copy, on the CPU: its contents are there after wait().
  const Tensor& tensor() const { return host_; }
  /// The values converted to double, in row-major order, after wait().
  std::vector<double> values() const;

 private:
  Tensor host_;  // pinned memory when the tensor is on a GPU
  Device device_;
  Event event_;
};

}  // namespace tern
