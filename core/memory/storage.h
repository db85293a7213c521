#pragma once
// The memory of tensors. Views share a Storage and its version counter.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "tern/core/device/device.h"

namespace tern {

class Storage {
 public:
  /// Memory from the device's caching allocator, for work on the current stream. Throws OutOfMemoryError.
  Storage(int64_t bytes, Device device);
  /// Memory with another owner; `release` is called when the last tensor is destroyed (may be empty).
  Storage(void* data, int64_t bytes, Device device, std::function<void()> release);
  /// Host memory that devices copy from and to while the host continues. Ordinary memory in a build without CUDA.
  static std::shared_ptr<Storage> pinned(int64_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool is_pinned() const { return pinned_; }

  /// Work on this stream uses the memory too; it need not be the stream of construction. The allocator does not reuse
  /// the memory before that work is done. Memory with another owner must be kept alive by that owner. Throws Error when
  /// the stream is of another device, unless this is pinned memory.
  void record_stream(kernels::Stream stream) const;

  /// Counts in-place changes; a tensor saved for backward is checked against it.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_;
  std::function<void()> release_;
  bool owned_ = false;
  bool pinned_ = false;
  std::atomic<uint32_t> version_ = 0;
};

}  // namespace tern
