#pragma once
// Memory that is needed soon. Included only by kernels/cpu.

#include <algorithm>
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

/// n floats that are needed soon, a part of them with each of `steps` calls of load().
class Ahead {
 public:
  Ahead(const float* from, int64_t n, int64_t steps)
      : from_(from), left_(n), step_((n / std::max<int64_t>(steps, 1) + 16) / 16 * 16) {}

  [[gnu::always_inline]] void load() {
    const int64_t n = std::min(step_, left_);
    prefetch<0>(from_, n);
    from_ += n;
    left_ -= n;
  }

 private:
  const float* from_;
  int64_t left_;
  const int64_t step_;
};

}  // namespace
}  // namespace tern::kernels::TERN_CPU
