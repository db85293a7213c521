#pragma once
// Whether a thread's arithmetic takes and gives 0 in place of denormal numbers, which are below the smallest normal
// one.

namespace tern::kernels {

inline constexpr unsigned kFlushDenormals = 0x8040;  // bits of the control register MXCSR: of results and of inputs

/// Those of these bits that are set for the calling thread.
inline unsigned denormal_bits() { return __builtin_ia32_stmxcsr() & kFlushDenormals; }
inline void set_denormal_bits(unsigned bits) {
  const unsigned all = __builtin_ia32_stmxcsr();
  if ((all & kFlushDenormals) != bits) __builtin_ia32_ldmxcsr((all & ~kFlushDenormals) | bits);
}

}  // namespace tern::kernels
