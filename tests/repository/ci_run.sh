#!/usr/bin/env bash
# ci_run.sh RUN: tests .ci/run where checks cannot run, with stand-ins for all programs that it calls.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
tree="$scratch/a tree" bin=$scratch/bin
export calls=$scratch/calls
mkdir -p "$tree/.ci" "$tree/cmake" "$tree/build/ci-cuda/bin" "$scratch/shared/data" "$bin"
unset TERN_DATA CUDA_HOME
export TMPDIR=$scratch
# Pretends that CUDA is installed only where the test puts it.
sed "s|/usr/local/cuda|$scratch/cuda|g" "$1" >"$tree/.ci/run"

for file in "$tree/cmake/check_ptx.sh" "$tree/cmake/check_includes.sh" "$bin/xz" "$bin/readelf" "$bin/find" \
  "$bin/xargs" "$bin/ctest"; do
  stand_in "$file" </dev/null
done
stand_in "$tree/tern" <<'END'
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
  out=$(PATH=$bin bash "$tree/.ci/run" "$@" 2>&1)
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

# In a clone without changes the seed is the commit's, and what passed is remembered.
for tool in awk cat cp cut date git head sha256sum sort uname; do ln -sf "$(command -v "$tool")" "$bin/$tool"; done
export XDG_CACHE_HOME=$scratch/cache HOME=$scratch GIT_CONFIG_NOSYSTEM=1 TERN_DATA=/somewhere
unset TERN_TEST_SEED TERN_CI_CACHE
in_tree() { git -C "$tree" -c user.name=a -c user.email=a@b "$@"; }
commit() {  # FILE TEXT
  mkdir -p "$(dirname "$tree/$1")"
  echo "$2" >"$tree/$1"
  in_tree add . && in_tree commit -qm "$1"
}
printf '/build/\n' >"$tree/.gitignore"
mkdir -p "$tree/kernels" "$tree/docs"
in_tree init -q
commit kernels/gemm.cpp 1
commit docs/page.md 1
sed -i 's/data ${TERN_DATA:-none}"/data ${TERN_DATA:-none}, seed $TERN_TEST_SEED"/' "$tree/tern"
in_tree commit -qam tern
seed=$((16#$(in_tree rev-parse HEAD | cut -c 1-12)))
run
expect "a clean clone passes" ends 0
expect "the seed comes from the commit" has "$called" "ci: test --strict --without levels; data /somewhere, seed $seed"
expect "the seed is said" has "$out" "TERN_TEST_SEED=$seed TERN_PRESET=ci ./tern test"
expect "the emulator is left out under AddressSanitizer" has "$called" "ci-asan: test --sanitize --strict --without levels,options;"
run
expect "what passed is not run again" equal "$called" ""
expect "this is said for each phase" has "$out" "tests under ThreadSanitizer: passed before with the same inputs"
expect "a run without phases passes" ends 0
commit docs/page.md 2
run
expect "after an edit of documents their tests run" has "$called" "ci: test --strict --without levels -R ^(docs_|repository_"
expect "and nothing else" lacks "$called" "ci-asan"
commit kernels/gemm.cpp 2
TERN_FAILS=ci-tsan run
expect "after an edit of a kernel all tests run" has "$called" "ci: test --strict --without levels; data"
expect "with sanitizers too" has "$called" "ci-asan: test"
expect "and a phase fails" ends 1
run
expect "what failed runs again" has "$called" "ci-tsan: test"
expect "what passed beside it does not" lacks "$called" "ci-asan: test"
echo 3 >"$tree/kernels/gemm.cpp"
run
expect "a clone with changes runs everything" has "$called" "ci-asan: test"
run
expect "and remembers nothing" has "$called" "ci-asan: test"
in_tree commit -qam change
TERN_CI_CACHE="" run
TERN_CI_CACHE="" run
expect "without a folder everything runs" has "$called" "ci-tsan: test"
TERN_TEST_SEED=7 run
expect "a given seed is taken" has "$called" "seed 7"

((failed)) || echo ".ci/run does what it says"
exit "$failed"
