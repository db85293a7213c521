#pragma once
// For tests that run at every CPU level.

#include <string>
#include <vector>

#include "tern/kernels/kernel.h"
#include "tern/tests/support/results.h"

namespace tern {

inline bool is_built(kernels::CpuLevel level) {
  constexpr bool kBuilt[] = {TERN_CPU_HAS_V2 != 0, TERN_CPU_HAS_V3 != 0, TERN_CPU_HAS_V4 != 0};
  return kBuilt[static_cast<int>(level)];
}

/// Why the level cannot be tested, as GTEST_SKIP() wants it: the build or this processor lacks it. "": it can.
inline std::string missing_level(kernels::CpuLevel level) {
  if (kernels::has_cpu_level(level)) return "";
  return is_built(level) ? std::string("cpu: this processor has no CPU level ") + kernels::name_of(level)
                         : std::string("levels: this build leaves CPU level ") + kernels::name_of(level) + " out";
}

/// True when the level can be tested; otherwise reports the case as partly left out.
inline bool can_test_level(kernels::CpuLevel level) {
  const std::string reason = missing_level(level);
  if (!reason.empty()) left_out(reason);
  return reason.empty();
}

/// The levels that can be tested; the case reports each of the others as left out.
inline std::vector<kernels::CpuLevel> testable_levels() {
  std::vector<kernels::CpuLevel> levels = {kernels::CpuLevel::kV2, kernels::CpuLevel::kV3, kernels::CpuLevel::kV4};
  std::erase_if(levels, [](kernels::CpuLevel level) { return !can_test_level(level); });
  return levels;
}

}  // namespace tern
