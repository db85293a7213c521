#include "tern/core/storage.h"

#include "tern/core/allocator.h"

namespace tern {

Storage::Storage(int64_t bytes, Device device)
    : data_(allocator(device).allocate(bytes)), bytes_(bytes), device_(device), owned_(true) {}

Storage::Storage(void* data, int64_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {}

Storage::~Storage() {
  if (owned_)
    allocator(device_).release(data_);
  else if (release_)
    release_();
}

}  // namespace tern
