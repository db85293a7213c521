#pragma once
// Memory that is needed soon. Included only by kernels/cpu/*.cpp.

#include <cstdint>

namespace tern::kernels::TERN_CPU {
namespace {

/// Has the processor load n floats into the L2 cache, with kWrite = 1 to write them: on its own it stops at the end of
/// each page. Always inline, because g++ leaves out calls of a function that only does this.
template <int kWrite>
[[gnu::always_inline]] inline void prefetch(const float* from, int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(from + i, kWrite, 2);
}

}  // namespace
}  // namespace tern::kernels::TERN_CPU
