#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "tern/core/cuda/current_device.h"
#include "tern/core/device/backend.h"
#include "tern/core/memory/allocator.h"
#include "tern/kernels/base/check.h"
#include "tern/kernels/cuda/support/check.h"

namespace tern::cuda {
namespace {

// Pageable memory is copied through pinned pieces of this size; a training batch fits one.
constexpr int64_t kPiece = int64_t{32} << 20;

/// Pinned memory that returns to its pool after the stream's work with it.
class Staging {
 public:
  explicit Staging(int64_t bytes) : data_(pinned_allocator().allocate(bytes)) {}
  ~Staging() { pinned_allocator().release(data_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  void* data() const { return data_; }
  void in_use_by(void* stream) const { pinned_allocator().record_stream(data_, stream); }

 private:
  void* data_;
};

}  // namespace

void copy_async(int index, void* to, const void* from, int64_t bytes, void* stream) {
  if (bytes == 0) return;
  TERN_CUDA_CHECK(set_device(index));
  TERN_CUDA_CHECK(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
}

void copy_from_host(int index, void* to, const void* from, int64_t bytes, void* stream) {
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t piece = std::min(kPiece, bytes - at);
    const Staging staging(piece);
    std::memcpy(staging.data(), static_cast<const char*>(from) + at, static_cast<size_t>(piece));
    copy_async(index, static_cast<char*>(to) + at, staging.data(), piece, stream);
    staging.in_use_by(stream);
    // Only a copy of several pieces (weights, not a batch) waits: otherwise all of it would be pinned at once.
    if (at > 0) synchronize_stream(index, stream);
  }
}

void copy_to_host(int index, void* to, const void* from, int64_t bytes, void* stream) {
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t piece = std::min(kPiece, bytes - at);
    const Staging staging(piece);
    copy_async(index, staging.data(), static_cast<const char*>(from) + at, piece, stream);
    synchronize_stream(index, stream);
    std::memcpy(static_cast<char*>(to) + at, staging.data(), static_cast<size_t>(piece));
  }
}

}  // namespace tern::cuda
