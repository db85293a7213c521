#pragma once
// A workspace that detects writes after its end.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tern/core/memory/address_sanitizer.h"

namespace tern::kernels {

/// What memory holds before a kernel writes it: NaN, -1 as an index. A contract changes it from run to run, so that
/// whatever follows from an element that no kernel wrote differs between its runs.
inline constexpr unsigned char kGarbage = 0xff;
inline unsigned char garbage_byte = kGarbage;

/// `bytes` bytes of garbage, aligned to exactly 16, which leaves little space to a kernel that aligns further. The
/// destructor expects that nothing after them was written; with AddressSanitizer even reads there are errors.
class MarkedWorkspace {
 public:
  explicit MarkedWorkspace(int64_t bytes) : memory_(static_cast<size_t>(bytes) + 128, 0x5a) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() + (64 + 16 - address % 64) % 64;
    behind_ = data_ + bytes;
    std::fill_n(data_, bytes, garbage_byte);
    tern::detail::forbid_access(behind_, end() - behind_);
  }
  ~MarkedWorkspace() {
    tern::detail::allow_access(behind_, end() - behind_);
    EXPECT_TRUE(std::all_of(behind_, end(), [](unsigned char byte) { return byte == 0x5a; }))
        << "memory after a workspace was written";
  }
  MarkedWorkspace(const MarkedWorkspace&) = delete;
  MarkedWorkspace& operator=(const MarkedWorkspace&) = delete;

  void* data() { return data_; }

 private:
  const unsigned char* end() const { return memory_.data() + memory_.size(); }

  std::vector<unsigned char> memory_;
  unsigned char* data_;
  const unsigned char* behind_;
};

}  // namespace tern::kernels
