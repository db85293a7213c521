#!/usr/bin/env bash
# ci_run.sh RUN: tests .ci/run where checks cannot run, with stand-ins for all programs that it calls.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
house="$scratch/a house" bin=$scratch/bin
export calls=$scratch/calls
mkdir -p "$house/.ci" "$house/cmake" "$house/build/ci-cuda/bin" "$scratch/shared/data" "$bin"
unset TERN_DATA CUDA_HOME
export TMPDIR=$scratch
# Pretends that CUDA is installed only where the test puts it.
sed "s|/usr/local/cuda|$scratch/cuda|g" "$1" >"$house/.ci/run"

for file in "$house/cmake/check_ptx.sh" "$house/cmake/check_includes.sh" "$bin/xz" "$bin/readelf" "$bin/find" \
  "$bin/xargs" "$bin/ctest"; do
  stand_in "$file" </dev/null
done
stand_in "$house/tern" <<'END'
echo "$TERN_PRESET: $*; data ${TERN_DATA:-none}" >>"$calls"
[[ $1 != --cuda ]] || echo "CUDA: runtime 13, kernels for 90a"
[[ -z ${TERN_FAILS:-} || $TERN_PRESET != "$TERN_FAILS" ]]
END
stand_in "$scratch/shared/data/unpack.sh" <<<'mkdir -p "$1"'
stand_in "$bin/apt-get" <<<'exit 100'
stand_in "$scratch/cuda-nvcc" </dev/null
stand_in "$scratch/format" <<<'echo "clang-format version 14.0.6"'
for tool in bash sed grep readlink dirname mkdir touch mktemp nproc env cat; do ln -s "$(command -v "$tool")" "$bin/$tool"; done
install() { mkdir -p "$scratch/cuda/bin" && cp "$scratch/cuda-nvcc" "$scratch/cuda/bin/nvcc" && cp "$scratch/format" "$bin/clang-format-14"; }
run() {  # ARGUMENTS...: sets $out, $status and $called
  : >"$calls"
  out=$(PATH=$bin bash "$house/.ci/run" "$@" 2>&1)
  status=$? called=$(<"$calls")
}

install
run
expect "with everything all passes" ends 0
expect "with everything it says so" has "$out" "all passed"
expect "tests are strict" has "$called" "ci: test --strict --without levels; data $scratch/tern-data"
expect "tests with sanitizers are strict" has "$called" "ci-tsan: test --sanitize --strict --without levels; data"
TERN_FAILS=ci-asan run
expect "tests that fail are a failure" ends 1
expect "which failed is said" has "$out" "FAILED: tests under AddressSanitizer"

rm "$scratch/cuda/bin/nvcc"
run
expect "without nvcc it fails" ends 1
expect "without nvcc it says what leaves the check out" has "$out" "--without cuda"
expect "without nvcc it does not say that all passed" lacks "$out" "all passed"
run --without cuda
expect "what is named may be missing" ends 0
expect "what was left out is said" has "$out" "all passed, without cuda"
expect "the tests know of it" has "$called" "ci: test --strict --without levels,cuda;"
install

rm "$bin/clang-format-14"
run
expect "without clang-format it fails" ends 1
expect "without clang-format it says what leaves the check out" has "$out" "--without layout"
run --without layout
expect "the layout may be left out by name" ends 0
expect "the tests do not know the layout" has "$called" "ci: test --strict --without levels;"
install

rm -r "$scratch/shared"
run
expect "without data it fails" ends 1
expect "without data it says what leaves it out" has "$out" "--without data"
run --without data,mpi
expect "data may be left out by name" ends 0
expect "the tests know of both" has "$called" "ci: test --strict --without levels,mpi,data; data none"
TERN_DATA=/somewhere run
expect "data may lie elsewhere" has "$called" "data /somewhere"
for wrong in "--without cudnn" "--without" "cuda" "--without cuda layout"; do
  # shellcheck disable=SC2086
  run $wrong
  expect "'$wrong' is wrong usage" ends 2
  expect "'$wrong' checks nothing" lacks "$out" "==="
done

((failed)) || echo ".ci/run does what it says"
exit "$failed"
