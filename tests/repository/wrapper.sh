#!/usr/bin/env bash
# wrapper.sh TERN: the wrapper script against stand-ins for cmake, ninja and the package manager, in a folder whose name
# has spaces. The stand-ins append their arguments to "$calls".
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
tree="$scratch/a tree" bin="$scratch/bin"
export calls="$scratch/calls"
unset TERN_BUILD_DIR TERN_PRESET TERN_JOBS
mkdir -p "$tree/core" "$tree/tests" "$bin"
cp "$1" "$tree/tern"
cp "$(dirname "$1")/tests/run.sh" "$tree/tests/run.sh"
echo 'int x;' >"$tree/core/x.cpp"

stand_in "$bin/cmake" <<'END'
echo "cmake $*" >>"$calls"
while (($# > 1)); do
  case $1 in -B) build=$2 ;; -S) root=$2 ;; -D*) settings+="${1#-D}"$'\n' ;; esac
  shift
done
[[ $1 != -D* ]] || settings+="${1#-D}"$'\n'
mkdir -p "$build"
touch "$build/build.ninja"
{ echo "CMAKE_HOME_DIRECTORY:INTERNAL=$root"; sed 's/=/:STRING=/' <<<"${settings:-}"; } >"$build/CMakeCache.txt"
END
stand_in "$bin/ninja" <<'END'
echo "ninja $*" >>"$calls"
[[ $* != *-t\ clean* ]] || exit 0
sleep "${NINJA_SECONDS:-0}"
for i in 1 2 3; do echo "[$i/3] Building x$i"; done
if [[ -n ${NINJA_FAILS:-} ]]; then
  printf '%s\n' 'FAILED: core/x.cpp.o' 'x.cpp:1: error: something is wrong'
  exit 1
fi
mkdir -p "$2/bin"
printf '%s\n' '#!/usr/bin/env bash' 'echo "program got $# arguments: $*"' 'exit ${PROGRAM_STATUS:-0}' >"$2/bin/tern"
chmod +x "$2/bin/tern"
END
stand_in "$bin/ctest" <<'END'
echo "ctest $*" >>"$calls"
if [[ $* == *-L\ slow* ]]; then
  echo "Total Tests: 3"
elif [[ $* == *\ -N* ]]; then
  printf '%s\n' '  Test  #4: one_test' 'Total Tests: 1'
else
  echo "1/1 Test  #4: one_test .........   ${CTEST_VERDICT:-Passed}    0.10 sec"
  [[ -z ${CTEST_VERDICT:-} ]]
fi
END
stand_in "$bin/apt-get" <<'END'
echo "apt-get $*" >>"$calls"
exit 100
END
stand_in "$bin/g++" <<'END'
if [[ $* == *-E* ]]; then
  if [[ -n ${NO_EIGEN:-} ]]; then echo "missing libeigen3-dev"; fi
else
  echo "${COMPILER_VERSION:-12.2.0}"
fi
END
stand_in "$bin/ccache" </dev/null
stand_in "$bin/ldd" </dev/null
export PATH="$bin:$PATH"

# tern ARGUMENTS: runs the wrapper; sets $status, $out, $err and $called
tern() {
  : >"$calls"
  "$tree/tern" "$@" >"$scratch/out" 2>"$scratch/err"
  status=$? out=$(<"$scratch/out") err=$(<"$scratch/err") called=$(<"$calls")
}

tern train "two words"
expect "the first start configures" has "$called" "cmake -S $tree --preset release -B $tree/build/release"
expect "the first start builds the program alone" has "$called" "tern_program"
expect "the first start builds no tests" lacks "$called" "tern_tests"
expect "arguments reach the program unchanged" equal "$out" "program got 2 arguments: train two words"
expect "the first start succeeds" equal "$status" 0

for word in --help -h help ""; do
  tern $word
  expect "'$word' names what the script takes" has "$out" "--cuda COMMAND"
  for name in test bench fuzz; do expect "'$word' names $name" has "$out" "  $name  "; done
  expect "'$word' runs the program first" has "$out" "program got"
done
PROGRAM_STATUS=2 tern
expect "help keeps the status of the program" equal "$status" 2
tern train --help
expect "the help of a command is the program's alone" equal "$out" "program got 2 arguments: train --help"

tern info
expect "a second start calls neither cmake nor ninja" equal "$called" ""
expect "a second start prints nothing" equal "$err" ""
PROGRAM_STATUS=75 tern info
expect "the program's exit status is the wrapper's" equal "$status" 75

sleep 0.01
echo 'int y;' >"$tree/core/x.cpp"
tern info
expect "a changed file is built" has "$called" "tern_program"
expect "a changed file needs no new configuration" lacks "$called" "cmake"
sleep 0.01
rm "$tree/core/x.cpp"
tern info
expect "a removed file is noticed" has "$called" "tern_program"

tern test -R "one test"
expect "test turns the tests on" has "$called" "-DTERN_BUILD_TESTS=ON"
expect "test leaves slow tests out" has "$called" "-LE slow"
expect "test hands its arguments to ctest" has "$called" "-R one test"
expect "test ends with the counts" equal "${out##*$'\n'}" "1 passed, 0 failed, 0 skipped, 0 not built"
expect "test says that slow tests were left out" has "$out" "3 slow tests were left out: ./tern test --full"
expect "test that passes ends with 0" equal "$status" 0
CTEST_VERDICT='***Failed' tern test
expect "test that fails ends with 1" equal "$status" 1
expect "test that fails ends with the counts" equal "${out##*$'\n'}" "0 passed, 1 failed, 0 skipped, 0 not built"
expect "test needs no new configuration" lacks "$called" "cmake"
mkdir -p "$tree/build/release/tests"
printf 'a_test\t/nowhere\tmpi: there is none\n' >"$tree/build/release/tests/not_built"
tern test
expect "test looks again for what tests lacked" has "$called" "cmake -S $tree"
rm "$tree/build/release/tests/not_built"
tern test
tern test --full
expect "test --full builds the slow tests" has "$called" "tern_slow_tests"
expect "test --full runs the slow tests" lacks "$called" "-LE slow"
expect "test --full leaves no slow test out" lacks "$out" "slow tests were left out"
expect "test --full does not configure again" lacks "$called" "cmake"
tern info
expect "the program is still fresh after the tests" equal "$called" ""

tern test --sanitize -R "one test"
expect "test --sanitize builds with the first sanitizer" has "$called" "cmake -S $tree --preset asan -B $tree/build/asan"
expect "test --sanitize builds with the second" has "$called" "cmake -S $tree --preset tsan -B $tree/build/tsan"
expect "test --sanitize builds what CI runs" has "$called" "tern_sanitize_tests"
expect "test --sanitize runs what CI runs" has "$called" "-L sanitize"
expect "test --sanitize hands its arguments on" has "$called" "-R one test"
expect "test --sanitize says what each gave" has "$out" $'asan: 1 passed, 0 failed, 0 skipped, 0 not built\ntsan: 1 passed'
expect "test --sanitize ends with the sum" equal "${out##*$'\n'}" "2 passed, 0 failed, 0 skipped, 0 not built"
expect "test --sanitize that passes ends with 0" equal "$status" 0
CTEST_VERDICT='***Failed' tern test --sanitize
expect "test --sanitize that fails ends with 1" equal "$status" 1
expect "test --sanitize runs the second after a failure" equal "${out##*$'\n'}" "0 passed, 2 failed, 0 skipped, 0 not built"
tern test --sanitize --full
expect "test --sanitize --full builds the slow tests" has "$called" "tern_slow_tests"
expect "test --sanitize --full leaves none out" lacks "$called" "-L"
TERN_PRESET=asan tern test --sanitize
expect "TERN_PRESET chooses one sanitizer" lacks "$called" "build/tsan"
expect "one sanitizer ends with its counts" equal "${out##*$'\n'}" "1 passed, 0 failed, 0 skipped, 0 not built"
TERN_PRESET=release tern test --sanitize
expect "a preset without a sanitizer is an error" equal "$status" 1
expect "a preset without a sanitizer is named" has "$err" "the preset release has no sanitizer"
expect "a preset without a sanitizer builds nothing" equal "$called" ""
TERN_BUILD_DIR="$scratch/with sanitizers" tern test --sanitize
expect "each sanitizer has a folder in TERN_BUILD_DIR" has "$called" "-B $scratch/with sanitizers/tsan"
touch "$tree/core/y.h"
NINJA_FAILS=1 tern test --sanitize
expect "a build that fails with a sanitizer ends with 1" equal "$status" 1
expect "a build that fails has no counts" has "$out" $'asan: not run\ntsan: not run\n0 passed'

sleep 0.01
touch "$tree/core/z.h"
NINJA_FAILS=1 tern info
expect "a failed build ends with 1" equal "$status" 1
expect "a failed build shows the compiler's words" has "$err" "x.cpp:1: error: something is wrong"
expect "a failed build says so in one line" has "$err" "tern: error: the build failed"
expect "a failed build runs nothing" equal "$out" ""
tern info
expect "a failed build is tried again" has "$called" "tern_program"

echo "1 2" >"$tree/build/release/.tern-processor"
tern info
expect "a build folder of another processor is configured again" has "$called" "cmake -S $tree"
expect "a build folder of another processor keeps its objects" lacks "$called" "-t clean"
tern info
expect "the same processor does not configure again" equal "$called" ""

COMPILER_VERSION=13.1.0 NINJA_SECONDS=0 tern info
expect "another compiler alone does not slow a fresh start" equal "$called" ""
touch "$tree/core/z.h"
COMPILER_VERSION=13.1.0 tern info
expect "a build folder of another system is configured afresh" has "$called" "--fresh"
expect "a build folder of another system is cleaned" has "$called" "-t clean"

mv "$tree" "$scratch/moved tree"
tree="$scratch/moved tree"
touch "$tree/core/z.h"
tern info
expect "a moved repository is configured afresh" has "$called" "--fresh"

touch "$tree/core/z.h"
: >"$calls"
NINJA_SECONDS=1 "$tree/tern" info >/dev/null 2>&1 &
sleep 0.3
"$tree/tern" info >"$scratch/out" 2>"$scratch/err"
wait $!
expect "two starts at a time build once" equal "$(grep -c tern_program "$calls")" 1
expect "the second says that it waits" grep -q "waiting for another" "$scratch/err"
expect "the second runs after the wait" grep -q "program got 1 arguments: info" "$scratch/out"

(cd "$scratch" && TERN_BUILD_DIR="other build" "$tree/tern" info >/dev/null 2>&1)
expect "TERN_BUILD_DIR is used" test -x "$scratch/other build/bin/tern"

# As if CUDA were not installed.
sed -i "s|/usr/local/cuda/bin|$scratch/no-cuda|" "$tree/tern"
unset CUDA_HOME CUDACXX
without_nvcc=""
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
  [[ -x $folder/nvcc ]] || without_nvcc+="${without_nvcc:+:}$folder"
done
PATH=$without_nvcc
tern --cuda train
expect "--cuda without nvcc ends with 1" equal "$status" 1
expect "--cuda without nvcc says what to install" has "$err" "package cuda-toolkit"
expect "--cuda without nvcc installs nothing" lacks "$called" "apt-get"
mkdir -p "$scratch/cuda home/bin"
cp "$bin/ccache" "$scratch/cuda home/bin/nvcc"
export CUDA_HOME="$scratch/cuda home"
stand_in "$bin/ldconfig" </dev/null
tern info
expect "nvcc without a driver does not build CUDA" lacks "$called" "--preset cuda"
tern --cuda train here
expect "--cuda has its own preset and build folder" has "$called" "--preset cuda -B $tree/build/cuda"
expect "--cuda does not reach the program" equal "$out" "program got 2 arguments: train here"
stand_in "$bin/nvidia-smi" </dev/null
touch "$tree/core/z.h"
tern info
expect "nvcc and a driver build CUDA without the word" has "$called" "ninja -C $tree/build/cuda"
TERN_PRESET=release tern info
expect "TERN_PRESET decides against it" has "$called" "ninja -C $tree/build/release"
unset CUDA_HOME
rm "$bin/nvidia-smi"

touch "$tree/core/z.h"
NO_EIGEN=1 tern info
expect "missing packages end with 1" equal "$status" 1
expect "the command to install is printed" has "$err" "apt-get install -y --no-install-recommends libeigen3-dev"
if ((EUID == 0)); then
  expect "as root the package manager is asked" has "$called" "install -y --no-install-recommends libeigen3-dev"
  expect "as root, fresh package lists are tried" has "$called" "update"
  chmod -R a+rwX "$scratch"
  : >"$calls"
  chmod a+rw "$calls"
  NO_EIGEN=1 setpriv --reuid 65534 --clear-groups "$tree/tern" info >"$scratch/out" 2>"$scratch/err"
  status=$? err=$(<"$scratch/err") called=$(<"$calls")
fi
expect "another user is given the one command" has "$err" "run: sudo apt-get install -y --no-install-recommends libeigen3-dev"
expect "another user's start ends with 1" equal "$status" 1
expect "another user's start installs nothing" lacks "$called" "apt-get"

((failed)) || echo "the wrapper does what it says"
exit "$failed"
