#include "tern/core/ops/tensor/transfer.h"

#include "tern/core/device/backend.h"
#include "tern/core/device/capture_state.h"
#include "tern/core/memory/allocator.h"
#include "tern/core/memory/index_check.h"
#include "tern/core/profiler/profiler.h"

namespace tern {

HostCopy::HostCopy(const Tensor& tensor) : device_(tensor.device()), event_(tensor.device()) {
  const Tensor source = tensor.detach().contiguous();
  if (device_.is_cpu()) {
    host_ = source.clone();
    return;
  }
  detail::forbid_while_recording("a copy to the host");
  host_ = empty_pinned(source.shape(), source.dtype());
  const kernels::Stream stream = current_stream(device_);
  cuda::copy_async(device_.index, host_.raw_data(), source.raw_data(), source.nbytes(), stream.handle);
  host_.storage()->record_stream(stream);
  event_.record(stream);
}

void HostCopy::wait() const {
  if (!event_.done()) event_.synchronize();
  check_index_faults(device_);
}

std::vector<double> HostCopy::values() const {
  wait();
  return host_.to_vector<double>();
}

void detail::copy_between_devices(const Tensor& from, const Tensor& to) {
  const Device source = from.device(), target = to.device();
  const int64_t bytes = from.nbytes();
  if (source.is_cpu() || target.is_cpu()) detail::forbid_while_recording("a copy between host and device");
  if (bytes == 0) return;
  const ProfileRange range(source.is_cpu()   ? "copy host to device"
                           : target.is_cpu() ? "copy device to host"
                                             : "copy device to device");
  profile_bytes(static_cast<double>(bytes));
  if (source.is_cpu()) {
    const kernels::Stream stream = current_stream(target);
    if (from.storage()->is_pinned()) {
      cuda::copy_async(target.index, to.raw_data(), from.raw_data(), bytes, stream.handle);
      from.storage()->record_stream(stream);
    } else {
      cuda::copy_from_host(target.index, to.raw_data(), from.raw_data(), bytes, stream.handle);
    }
  } else if (target.is_cpu()) {
    const kernels::Stream stream = current_stream(source);
    cuda::copy_to_host(source.index, to.raw_data(), from.raw_data(), bytes, stream.handle);
    check_index_faults(source);
  } else {
    // Each stream waits for the other, so that the copy reads finished values and nothing overwrites them meanwhile.
    const kernels::Stream reader = current_stream(source), writer = current_stream(target);
    cuda::order_streams(source.index, reader.handle, target.index, writer.handle);
    cuda::copy_async(target.index, to.raw_data(), from.raw_data(), bytes, writer.handle);
    cuda::order_streams(target.index, writer.handle, source.index, reader.handle);
  }
}

}  // namespace tern
