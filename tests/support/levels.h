#pragma once
// For tests that run at every CPU level.

#include <string>

#include "tern/kernels/kernel.h"
#include "tern/tests/support/results.h"

namespace tern {

/// True when this build and this processor have the level; otherwise reports the case as partly left out.
inline bool can_test_level(kernels::CpuLevel level) {
  if (kernels::has_cpu_level(level)) return true;
  constexpr bool kBuilt[] = {TERN_CPU_HAS_V2 != 0, TERN_CPU_HAS_V3 != 0, TERN_CPU_HAS_V4 != 0};
  left_out(kBuilt[static_cast<int>(level)]
               ? std::string("cpu: this processor has no CPU level ") + kernels::name_of(level)
               : std::string("levels: this build leaves CPU level ") + kernels::name_of(level) + " out");
  return false;
}

}  // namespace tern
