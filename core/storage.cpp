#include "tern/core/storage.h"

#include "tern/core/allocator.h"
#include "tern/core/check.h"

namespace tern {

Storage::Storage(int64_t bytes, Device device)
    : data_(allocator(device).allocate(bytes, current_stream(device).handle)),
      bytes_(bytes),
      device_(device),
      owned_(true) {}

Storage::Storage(void* data, int64_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {}

Storage::~Storage() {
  if (owned_)
    allocator(device_).release(data_);
  else if (release_)
    release_();
}

void Storage::record_stream(kernels::Stream stream) const {
  const Device other{stream.device, stream.index};
  TERN_CHECK(other == device_, "record_stream: the memory is on ", device_, ", the stream on ", other);
  if (owned_) allocator(device_).record_stream(data_, stream.handle);
}

}  // namespace tern
