#include "tern/core/memory/stream.h"

#include <chrono>

#include "tern/core/device/backend.h"
#include "tern/core/device/capture_state.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/memory/index_check.h"
#include "tern/kernels/base/check.h"

namespace tern {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Stream::Stream(Device device) : device_(device) {
  require_available(device);
  if (device.is_cuda())
    handle_ = {cuda::create_stream(device.index), [index = device.index](void* stream) {
                 try {
                   allocator(Device{DeviceType::kCUDA, index}).forget_stream(stream);
                 } catch (const Error&) {
                   return;  // a step is being recorded, perhaps on this stream: do not destroy it
                 }
                 cuda::destroy_stream(index, stream);
               }};
}

kernels::Stream Stream::handle() const { return {device_.type, device_.index, handle_.get()}; }

void Stream::wait(const Event& event) const { event.make_wait(handle()); }

void Stream::synchronize() const {
  if (!handle_) return;
  detail::forbid_while_recording("synchronize");
  cuda::synchronize_stream(device_.index, handle_.get());
  check_index_faults(device_);
}

Event::Event(Device device, bool timing) : device_(device) {
  require_available(device);
  if (device.is_cuda()) handle_ = {cuda::create_event(device.index, timing), cuda::destroy_event};
}

void Event::record(kernels::Stream stream) {
  TERN_CHECK(stream.device == device_.type && stream.index == device_.index, "event: it belongs to ", device_,
             ", the stream to another device");
  recorded_ = true;
  host_seconds_ = now();
  if (handle_) cuda::record_event(handle_.get(), stream.handle);
}

void Event::make_wait(kernels::Stream stream) const {
  if (handle_ && recorded_ && stream.device == DeviceType::kCUDA) cuda::wait_event(stream.handle, handle_.get());
}

bool Event::done() const {
  if (!handle_ || !recorded_) return true;
  detail::forbid_while_recording("querying an event");
  return cuda::event_done(handle_.get());
}

void Event::synchronize() const {
  if (!handle_ || !recorded_) return;
  detail::forbid_while_recording("waiting for an event");
  cuda::synchronize_event(handle_.get());
}

double Event::seconds_since(const Event& start) const {
  TERN_CHECK(recorded_ && start.recorded_, "event: seconds_since needs two recorded events");
  if (handle_) return cuda::seconds_between(start.handle_.get(), handle_.get());
  return host_seconds_ - start.host_seconds_;
}

StreamGuard::StreamGuard(const Stream& stream) : stream_(stream), previous_(current_stream(stream.device())) {
  if (stream.device().is_cuda()) cuda::set_current_stream(stream.device().index, stream.handle().handle);
}

StreamGuard::~StreamGuard() {
  if (previous_.device == DeviceType::kCUDA) cuda::set_current_stream(previous_.index, previous_.handle);
}

void synchronize(Device device) {
  require_available(device);
  if (!device.is_cuda()) return;
  detail::forbid_while_recording("synchronize");
  cuda::synchronize_device(device.index);
  check_index_faults(device);
}

}  // namespace tern
