// The error of a program that is built for other processors: kernels/base/cpu_level.cpp, compiled for v3 and v4 alone,
// with a simulated processor.

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "tern/kernels/kernel.h"
#include "tern/tests/errors.h"

namespace {
std::set<std::string> processor_has;  // names of levels, and the flags that stand for them where clang is the compiler
}
#undef TERN_CPU_HAS_V2
#undef TERN_CPU_HAS_V3
#undef TERN_CPU_HAS_V4
#define TERN_CPU_HAS_V2 0
#define TERN_CPU_HAS_V3 1
#define TERN_CPU_HAS_V4 1
#define __builtin_cpu_supports(name) processor_has.count(name) > 0
#include "tern/kernels/base/cpu_level.cpp"

namespace tern::kernels {
namespace {

const std::set<std::string> kV2 = {"x86-64-v2", "sse4.2", "popcnt"};
std::set<std::string> v3() {
  std::set<std::string> names = kV2;
  names.insert({"x86-64-v3", "avx2", "fma", "bmi", "bmi2"});
  return names;
}

// One test, because cpu_level() keeps its first result.
TEST(LevelMessage, SaysWhatTheBuildAndTheProcessorHave) {
  unsetenv("TERN_CPU_LEVEL");
  processor_has = {};
  EXPECT_EQ(test::error_of(cpu_level), "this processor does not have x86-64-v2 (SSE4.2), the minimum for Tern");
  processor_has = kV2;
  EXPECT_EQ(
      test::error_of(cpu_level),
      "this build of Tern has CPU kernels for x86-64-v3, v4 alone, and this processor has x86-64-v2: configure and "
      "build Tern again on this machine, or for all machines with -DTERN_CPU_LEVELS=\"v2;v3;v4\"");
  setenv("TERN_CPU_LEVEL", "v2", 1);
  EXPECT_EQ(test::error_of(cpu_level),
            "CPU level v2: this build does not contain it; configure with -DTERN_CPU_LEVELS=\"v2;v3;v4\"");
  setenv("TERN_CPU_LEVEL", "v3", 1);
  EXPECT_EQ(test::error_of(cpu_level), "CPU level v3: this processor does not have x86-64-v3");
  unsetenv("TERN_CPU_LEVEL");
  processor_has = v3();
  EXPECT_EQ(cpu_level(), CpuLevel::kV3);
  EXPECT_FALSE(has_cpu_level(CpuLevel::kV4));
}

}  // namespace
}  // namespace tern::kernels
