#include <atomic>
#include <cstdlib>
#include <string>

#include "tern/kernels/base/check.h"
#include "tern/kernels/kernel.h"

namespace tern::kernels {
namespace {

constexpr bool kBuilt[] = {TERN_CPU_HAS_V2 != 0, TERN_CPU_HAS_V3 != 0, TERN_CPU_HAS_V4 != 0};
constexpr CpuLevel kHighestFirst[] = {CpuLevel::kV4, CpuLevel::kV3, CpuLevel::kV2};

bool cpu_supports(CpuLevel level) {
#if defined(__clang__) && __clang_major__ < 18  // does not know the levels by name
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return level == CpuLevel::kV2 ? v2 : level == CpuLevel::kV3 ? v3 : v4;
#else
  switch (level) {
    case CpuLevel::kV2:
      return __builtin_cpu_supports("x86-64-v2");
    case CpuLevel::kV3:
      return __builtin_cpu_supports("x86-64-v3");
    case CpuLevel::kV4:
      return __builtin_cpu_supports("x86-64-v4");
  }
  return false;
#endif
}

CpuLevel parse_level(const std::string& text) {
  for (CpuLevel level : {CpuLevel::kV2, CpuLevel::kV3, CpuLevel::kV4})
    if (text == name_of(level)) return level;
  fail("TERN_CPU_LEVEL: expected v2, v3 or v4, got '", text, "'");
}

void require(CpuLevel level) {
  TERN_CHECK(kBuilt[static_cast<int>(level)], "CPU level ", name_of(level),
             ": this build does not contain it; configure with -DTERN_CPU_LEVELS=\"v2;v3;v4\"");
  TERN_CHECK(cpu_supports(level), "CPU level ", name_of(level), ": this processor does not have x86-64-",
             name_of(level));
}

[[noreturn]] void fail_without_level() {
  std::string built;
  const char* here = nullptr;
  for (CpuLevel level : kHighestFirst) {
    if (kBuilt[static_cast<int>(level)]) built = std::string(name_of(level)) + (built.empty() ? "" : ", " + built);
    if (here == nullptr && cpu_supports(level)) here = name_of(level);
  }
  TERN_CHECK(here != nullptr, "this processor does not have x86-64-v2 (SSE4.2), the minimum for Tern");
  fail("this build of Tern has CPU kernels for x86-64-", built, " alone, and this processor has x86-64-", here,
       ": configure and build Tern again on this machine, or for all machines with -DTERN_CPU_LEVELS=\"v2;v3;v4\"");
}

CpuLevel initial_level() {
  if (const char* text = std::getenv("TERN_CPU_LEVEL")) {
    const CpuLevel level = parse_level(text);
    require(level);
    return level;
  }
  for (CpuLevel level : kHighestFirst)
    if (has_cpu_level(level)) return level;
  fail_without_level();
}

std::atomic<CpuLevel>& current() {
  static std::atomic<CpuLevel> level = initial_level();
  return level;
}

}  // namespace

CpuLevel cpu_level() { return current().load(std::memory_order_relaxed); }

void set_cpu_level(CpuLevel level) {
  require(level);
  current() = level;
}

bool has_cpu_level(CpuLevel level) { return kBuilt[static_cast<int>(level)] && cpu_supports(level); }

const char* name_of(CpuLevel level) {
  constexpr const char* names[] = {"v2", "v3", "v4"};
  return names[static_cast<int>(level)];
}

}  // namespace tern::kernels
