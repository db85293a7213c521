#pragma once
// Workspace behind which a kernel's writes are seen.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tern::kernels {

/// `bytes` bytes of garbage, aligned to 8, with a mark behind the last.
class MarkedWorkspace {
 public:
  explicit MarkedWorkspace(int64_t bytes) : bytes_(bytes), memory_(bytes / 8 + 3, 0x5a5a5a5a5a5a5a5a) {}
  void* data() { return memory_.data(); }
  bool mark_is_there() const {
    const auto* const begin = reinterpret_cast<const unsigned char*>(memory_.data());
    const auto* const end = reinterpret_cast<const unsigned char*>(memory_.data() + memory_.size());
    return std::all_of(begin + bytes_, end, [](unsigned char byte) { return byte == 0x5a; });
  }

 private:
  int64_t bytes_;
  std::vector<uint64_t> memory_;
};

}  // namespace tern::kernels
