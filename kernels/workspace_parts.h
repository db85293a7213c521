#pragma once
// Dividing the workspace of a kernel.

#include <cstdint>

namespace tern::kernels {

/// Gives out parts of a workspace from its front, each from a multiple of `alignment` bytes (a power of two) behind
/// the first such address; without memory it only counts. bytes() is the same in both cases whatever the address.
class WorkspaceParts {
 public:
  WorkspaceParts(void* memory, int64_t alignment)
      : memory_(static_cast<char*>(memory)), alignment_(alignment), bytes_(alignment - 1) {
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory));
    if (memory_) memory_ += (alignment - address % alignment) % alignment;
  }
  template <class T>
  T* take(int64_t count) {
    char* const at = memory_ ? memory_ + bytes_ - (alignment_ - 1) : nullptr;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + alignment_ - 1) / alignment_ * alignment_;
    return reinterpret_cast<T*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* memory_;
  int64_t alignment_, bytes_;
};

}  // namespace tern::kernels
