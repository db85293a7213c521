#include "tern/core/memory/storage.h"

#include "tern/core/memory/allocator.h"
#include "tern/core/memory/file_fault.h"
#include "tern/kernels/base/check.h"

namespace tern {

namespace {

/// Every operation creates a tensor, so this throws if an earlier one may have read zeros in place of a file's bytes.
int64_t checked(int64_t bytes) {
  check_lost_files();
  return bytes;
}

}  // namespace

Storage::Storage(int64_t bytes, Device device)
    : data_(allocator(device).allocate(checked(bytes), current_stream(device).handle)),
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

std::shared_ptr<Storage> Storage::pinned(int64_t bytes) {
  void* const data = pinned_allocator().allocate(bytes);
  auto storage = std::make_shared<Storage>(data, bytes, cpu, [data] { pinned_allocator().release(data); });
  storage->pinned_ = true;
  return storage;
}

void Storage::record_stream(kernels::Stream stream) const {
  if (pinned_) return pinned_allocator().record_stream(data_, stream.handle);
  const Device other{stream.device, stream.index};
  TERN_CHECK(other == device_, "record_stream: the memory is on ", device_, ", the stream on ", other);
  if (owned_) allocator(device_).record_stream(data_, stream.handle);
}

}  // namespace tern
