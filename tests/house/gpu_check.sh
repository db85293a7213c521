#!/usr/bin/env bash
# gpu_check.sh CHECK CMAKE: bench/gpu/check.sh against stand-ins for the programs of a build and for NVIDIA's tools.
set -uo pipefail
check=$1 cmake=$2 here=$(cd "$(dirname "$0")" && pwd) failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bin="$scratch/a build/bin" tools=$scratch/tools
mkdir -p "$bin" "$tools"
unset TERN_DATA TERN_COMPARE_PYTHON

stand_in() {  # FILE, the script on stdin
  { echo '#!/usr/bin/env bash'; cat; } >"$1"
  chmod +x "$1"
}
expect() {  # WHAT CONDITION...
  local what=$1
  shift
  if ! "$@"; then
    printf 'FAILED: %s\n  status %s\n  said: %s\n  checked: %s\n' "$what" "$status" "$said" "$*"
    failed=1
  fi
}
has() { [[ $1 == *"$2"* ]]; }
equal() { [[ $1 == "$2" ]]; }
run() {  # ARGUMENTS...: sets $status and $said
  said=$(timeout 60 bash "$check" "$@" 2>&1)
  status=$?
}
member() {  # PATH...: of the JSON file, which must be valid
  local path
  path=$(printf ';%s' "$@")
  "$cmake" -DFILE="$scratch/out.json" "-DMEMBER=${path:1}" -P "$here/json_member.cmake" 2>&1
}

run --stages tests,unknown
expect "an unknown stage is wrong usage" equal "$status" 2
run --build
expect "a missing value is wrong usage" equal "$status" 2

stand_in "$tools/nvidia-smi" <<<'exit 9'
if [[ ! -e /dev/nvidia0 ]]; then
  PATH=$tools:$PATH run --build "$scratch/a build" --out "$scratch/none.json"
  expect "without a GPU the status is 1" equal "$status" 1
  expect "without a GPU it says so" has "$said" "no NVIDIA GPU on this machine"
  expect "without a GPU nothing is written" test ! -e "$scratch/none.json"
fi

stand_in "$tools/nvidia-smi" <<'END'
[[ $* == *gpu=name* ]] && echo 'A "quick" GPU\1'
[[ $* == *driver_version* ]] && echo 1.2.3
exit 0
END
stand_in "$tools/nsys" <<<'exit 1'
stand_in "$tools/compute-sanitizer" <<'END'
if [[ $* == *memcheck* && $* == *cuda_one_test* ]]; then
  echo '========= ERROR SUMMARY: 1 error'
  exit 99
fi
echo '========= ERROR SUMMARY: 0 errors'
END
stand_in "$bin/tern" <<'END'
[[ $1 == info ]] && { echo "device: cuda:0"; exit 0; }
while (($# > 1)); do
  [[ $1 == --out ]] && mkdir -p "$2" && echo '{"train_seconds":1.5,"tokens_per_second":1000}' >"$2/metrics.jsonl"
  shift
done
END
stand_in "$bin/cuda_one_test" <<<'echo "[  PASSED  ] 3 tests."'
stand_in "$bin/cuda_two_test" <<'END'
printf '%s\n' 'a "quoted" \ word },{' '[  FAILED  ] Two.Works (3 ms)' '[  PASSED  ] 4 tests.'
exit 1
END
stand_in "$bin/tern-bench-kernels" <<'END'
printf '%s\n' '{"name":"a","seconds":1e-6,"share":0.9,"met":true}' '{"name":"b","seconds":1e-6,"met":false}' \
  '{"name":"cut' >"$TERN_BENCH_LINES"
echo 'the "device" is lost\' >&2
exit 1
END
stand_in "$bin/tern-bench-train" <<<'exit 1'
stand_in "$tools/python3" <<<'echo "no module named torch" >&2; exit 1'
export PATH=$tools:$PATH

run --build "$scratch/a build" --quick --out "$scratch/out.json"
expect "a stage that fails gives status 1" equal "$status" 1
expect "the file is JSON and names the GPU" equal "$(member about gpu)" 'A "quick" GPU\1'
expect "the driver is there" equal "$(member about driver)" 1.2.3
expect "a failing test fails its stage" equal "$(member stages 0 status)" failed
expect "its note names the test" has "$(member stages 0 note)" "7 tests passed; cuda_two_test: status 1"
expect "each test program has its line" equal "$(member stages 0 results 1 failed)" 1
expect "an error fails the sanitizer's stage" has "$(member stages 1 note)" "memcheck: cuda_one_test"
expect "the kernels that were measured are kept" equal "$(member stages 2 results 1 name)" b
expect "a line cut short is left out" has "$(member stages 2 note)" "2 measured, 1 below their budget"
expect "the reason is kept" has "$(member stages 2 note)" 'status 1: the "device" is lost\'
expect "the job is still run" equal "$(member stages 3 results 0 train_seconds)" 1.5
expect "a missing package skips the comparison" equal "$(member stages 4 status)" skipped
expect "a failing profiler is reported" equal "$(member stages 5 status)" failed
expect "the table names every stage" has "$said" "sanitizer  failed"

run --build "$scratch/a build" --quick --stages job --out "$scratch/out.json"
expect "stages that are ok give status 0" equal "$status" 0
expect "only the stages asked for are run" equal "$(member stages 0 stage)" job

stand_in "$bin/tern" <<<'echo "tern: error: cuda:0: the driver is too old"; exit 1'
run --build "$scratch/a build" --out "$scratch/other.json"
expect "a device that does not work ends the check" equal "$status" 1
expect "the program's own words are shown" has "$said" "the driver is too old"

((failed)) || echo "the GPU check does what it says"
exit "$failed"
