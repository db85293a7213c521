#!/usr/bin/env bash
# configurations.sh CMAKE ROOT COMPILER: CMake configures the project in each way that someone may choose: without
# tests, as on a machine that has no GoogleTest; without what can be left out; the benchmarks alone; for a debugger; with
# one CPU level. What cannot be configured is refused with a reason.
set -uo pipefail
cmake=$1 root=$2 compiler=$3 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export CCACHE_DISABLE=1


configures() {  # WHAT OPTION...
  local what=$1
  shift
  rm -rf "$scratch/build"
  if ! "$cmake" -S "$root" -B "$scratch/build" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" "$@" \
    >"$scratch/out" 2>&1; then
    echo "FAILED: $what:"
    grep -v '^--' "$scratch/out"
    failed=1
  fi
}

refuses() {  # WHAT REASON OPTION...
  local what=$1 reason=$2
  shift 2
  rm -rf "$scratch/build"
  if "$cmake" -S "$root" -B "$scratch/build" -G Ninja "-DCMAKE_CXX_COMPILER=$compiler" "$@" >"$scratch/out" 2>&1; then
    echo "FAILED: CMake configures $what"
    failed=1
  elif ! tr -s '\n ' ' ' <"$scratch/out" | grep -qF "$reason"; then
    echo "FAILED: CMake does not say of $what '$reason':"
    grep -v '^--' "$scratch/out"
    failed=1
  fi
}

configures "the program alone" -DTERN_BUILD_TESTS=OFF
configures "without any part that can be left out, and without its library" -DTERN_BUILD_TESTS=ON -DTERN_MPI=OFF \
  -DTERN_CURL=OFF -DTERN_ARCHIVES=OFF -DTERN_IMAGES=OFF -DTERN_ONNX=OFF -DTERN_EMBEDDED_DATA=OFF \
  -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DCMAKE_DISABLE_FIND_PACKAGE_Protobuf=ON \
  -DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON -DCMAKE_DISABLE_FIND_PACKAGE_LibArchive=ON -DCMAKE_DISABLE_FIND_PACKAGE_PNG=ON \
  -DCMAKE_DISABLE_FIND_PACKAGE_JPEG=ON
configures "the library alone, without the program's packages" -DTERN_BUILD_PROGRAM=OFF \
  -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON -DCMAKE_DISABLE_FIND_PACKAGE_tomlplusplus=ON
configures "the benchmarks where there is no GoogleTest" -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DTERN_BUILD_BENCH=ON
refuses "levels that do not exist" 'expected machine or a list of v2, v3 and v4, got "v5"' -DTERN_CPU_LEVELS=v5
refuses "tests without the program" "needs TERN_BUILD_PROGRAM=ON" -DTERN_BUILD_TESTS=ON -DTERN_BUILD_PROGRAM=OFF
configures "tests and benchmarks, one CPU level, for a debugger" -DTERN_BUILD_TESTS=ON -DTERN_BUILD_BENCH=ON \
  -DTERN_CPU_LEVELS=v3 -DCMAKE_BUILD_TYPE=Debug
exit $failed
