#!/usr/bin/env bash
# run.sh [--seconds N] [--runs N] [TARGET...]: runs the fuzz targets one after another, each for N seconds (default 60)
# or N inputs, whichever ends first. Default: all targets. Prints one line per target: inputs, seconds, and findings.
# Exits with 1 if there are findings; their inputs are in BUILD/findings, and
#   BUILD/bin/fuzz_TARGET FILE
# repeats one. The corpus is kept in BUILD/corpus. `./tern fuzz` builds the targets and calls this script.
#
# TERN_BUILD_DIR   the build folder (default: build/fuzz)
set -uo pipefail

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${TERN_BUILD_DIR:-$root/build/fuzz}
seconds="" runs="" targets=()

die() {
  printf 'fuzz: error: %s\n' "$*" >&2
  exit 2
}

while (($#)); do
  case $1 in
    --seconds | --runs)
      [[ ${2:-} =~ ^[1-9][0-9]{0,8}$ ]] || die "$1: expected a whole number above 0, got '${2:-}'"
      if [[ $1 == --seconds ]]; then seconds=$2; else runs=$2; fi
      shift
      ;;
    -*) die "unknown option $1; known are --seconds N and --runs N" ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[[ -n $seconds || -n $runs ]] || seconds=60

known=()
for source in "$here"/*_fuzz.cpp; do
  source=${source##*/}
  known+=("${source%_fuzz.cpp}")
done
((${#targets[@]})) || targets=("${known[@]}")
for target in "${targets[@]}"; do
  [[ " ${known[*]} " == *" $target "* ]] || die "there is no target '$target'; there are ${known[*]}"
  [[ -x $build/bin/fuzz_$target ]] || die "$build/bin/fuzz_$target is not built: ./tern fuzz $target"
done

# Files of other tools that are also used as seeds.
golden_seeds() {  # TARGET: comma-separated names
  case $1 in
    torch_file | pickle | cifar) find "$root/tests/golden/torch" -maxdepth 1 -type f -size -16k ! -name '*.safetensors' ;;
    npy) find "$root/tests/golden/numpy" -name '*.npz' ;;
    vocab) echo "$root/tests/golden/train_curve/vocab.txt" ;;
    config) find "$root/tests/golden" -name config.json ;;
    index) echo "$root/tests/golden/torch/parts/pytorch_model.bin.index.json" ;;
  esac | LC_ALL=C sort | paste -sd,
}

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$root/tests/lsan.supp:print_suppressions=0}
export OMP_NUM_THREADS=1

run_target() {
  local target=$1 log=$build/fuzz-$1.log options found inputs spent
  mkdir -p "$build/corpus/$target" "$build/findings" "$here/seeds/$target"
  # An input of a few KB may use 256 MB per allocation, 2.5 GB in all, and 25 s.
  options=(-timeout=25 -rss_limit_mb=2560 -malloc_limit_mb=256 -max_len=16384 -print_final_stats=1
    "-artifact_prefix=$build/findings/$target-")
  [[ -z $seconds ]] || options+=("-max_total_time=$seconds")
  [[ -z $runs ]] || options+=("-runs=$runs")
  found=$(golden_seeds "$target")
  [[ -z $found ]] || options+=("-seed_inputs=$found")
  local started=$SECONDS
  if "$build/bin/fuzz_$target" "${options[@]}" "$build/corpus/$target" "$here/seeds/$target" >"$log" 2>&1; then
    found="nothing found"
  else
    found="FOUND: $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1), see $log"
    status=1
  fi
  spent=$((SECONDS - started))
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  printf '%-12s %10s inputs, %5d s: %s\n' "$target" "${inputs:-?}" "$spent" "$found"
}

status=0
for target in "${targets[@]}"; do run_target "$target"; done
exit $status
