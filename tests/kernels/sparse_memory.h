#pragma once
// Memory for tensors of more than 2^31 elements.

#include <sys/mman.h>

#include "tern/tests/kernels/kernel_test.h"

namespace tern::kernels {

/// Zeros, of which only what is touched takes memory.
class SparseMemory {
 public:
  explicit SparseMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseMemory() {
    if (*this) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  explicit operator bool() const { return data_ != MAP_FAILED; }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  View view(DType dtype, const Shape& shape, const Shape& strides) const {
    return View(data_, dtype, static_cast<int>(shape.size()), shape.data(), strides.data());
  }

 private:
  void* data_;
  size_t bytes_;
};

}  // namespace tern::kernels
