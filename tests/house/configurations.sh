#!/usr/bin/env bash
# configurations.sh CMAKE ROOT COMPILER: CMake configures the project in each way that someone may choose: without
# tests, as on a machine that has no GoogleTest; the benchmarks alone; for a debugger; with one CPU level.
set -uo pipefail
cmake=$1 root=$2 compiler=$3 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export CCACHE_DISABLE=1

# In place of Google Benchmark, which the tests do not install.
mkdir "$scratch/benchmark"
echo 'add_library(benchmark::benchmark INTERFACE IMPORTED)' >"$scratch/benchmark/benchmarkConfig.cmake"

configures() {  # WHAT OPTION...
  local what=$1
  shift
  rm -rf "$scratch/build"
  if ! "$cmake" -S "$root" -B "$scratch/build" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" "-Dbenchmark_DIR=$scratch/benchmark" "$@" \
    >"$scratch/out" 2>&1; then
    echo "FAILED: $what:"
    grep -v '^--' "$scratch/out"
    failed=1
  fi
}

configures "the program alone" -DTERN_BUILD_TESTS=OFF
configures "the benchmarks where there is no GoogleTest" -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DTERN_BUILD_BENCH=ON
configures "tests and benchmarks, one CPU level, for a debugger" -DTERN_BUILD_TESTS=ON -DTERN_BUILD_BENCH=ON \
  -DTERN_CPU_LEVELS=v3 -DCMAKE_BUILD_TYPE=Debug
exit $failed
