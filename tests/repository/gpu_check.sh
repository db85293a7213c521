#!/usr/bin/env bash
# gpu_check.sh CHECK CMAKE: tests bench/gpu/check.sh with stand-ins for a build's programs and for NVIDIA's tools.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
check=$1 cmake=$2 here=$(cd "$(dirname "$0")" && pwd)
bin="$scratch/a build/bin" tools=$scratch/tools
mkdir -p "$bin" "$tools"
unset TERN_DATA TERN_COMPARE_PYTHON LD_LIBRARY_PATH
export CUDA_HOME=$scratch/no_toolkit

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
for arguments in "--build x --bundle" "--build x --budget 0" "--build x --budget 1m" "--build x --stages ,"; do
  run $arguments
  expect "'$arguments' is wrong usage" equal "$status" 2
done

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
export LIBRARY_PATHS=$scratch/library_paths  # the LD_LIBRARY_PATH given to each program
note_path='echo "${0##*/}=${LD_LIBRARY_PATH:-}" >>"$LIBRARY_PATHS"'
stand_in "$tools/nsys" <<END
$note_path
exit 1
END
stand_in "$tools/compute-sanitizer" <<END
$note_path
[[ \$* == *cuda_slow_test* ]] && exec sleep 1000
if [[ \$* == *memcheck* && \$* == *cuda_one_test* ]]; then
  echo '========= ERROR SUMMARY: 1 error'
  exit 99
fi
echo "\$*" >>"$scratch/sanitized"
echo '========= ERROR SUMMARY: 0 errors'
END
stand_in "$bin/tern" <<END
$note_path
[[ \$1 == info ]] && { echo "device: cuda:0"; exit 0; }
while ((\$# > 1)); do
  [[ \$1 == --out ]] && mkdir -p "\$2" &&
    echo '{"train_seconds":1.5,"tokens_per_second":1000,"images_per_second":50}' >"\$2/metrics.jsonl"
  shift
done
[[ \$1 != --profile=* ]] || echo "no table"
END
stand_in "$bin/cuda_large_parity_test" <<<'echo "[  PASSED  ] 9 tests."'
stand_in "$bin/cuda_one_test" <<<'echo "[  PASSED  ] 3 tests."'
stand_in "$bin/cuda_two_test" <<'END'
printf '%s\n' 'a "quoted" \ word },{' '[  FAILED  ] Two.Works (3 ms)' '[  PASSED  ] 4 tests.'
exit 1
END
stand_in "$bin/core_one_test" <<<'echo "[  PASSED  ] 20 tests."'
stand_in "$bin/tern-bench-kernels" <<'END'
while [[ $1 != --json ]]; do shift; done
printf '%s\n' '{"name":"a","seconds":1e-6,"share":0.9,"met":true}' '{"name":"b","seconds":1e-6,"met":false}' \
  '{"name":"cut' >"$2"
echo 'the "device" is lost\' >&2
exit 1
END
stand_in "$bin/tern-bench-train" <<<'exit 1'
stand_in "$tools/python3" <<END
$note_path
echo "no module named torch" >&2
exit 1
END
export PATH=$tools:$PATH

run --build "$scratch/a build" --quick --out "$scratch/out.json"
expect "a stage that fails gives status 1" equal "$status" 1
expect "the file is JSON and names the GPU" equal "$(member about gpu)" 'A "quick" GPU\1'
expect "the driver is there" equal "$(member about driver)" 1.2.3
expect "a failing test fails its stage" equal "$(member stages 0 status)" failed
expect "its note names the test" has "$(member stages 0 note)" "7 tests passed; cuda_two_test: status 1"
expect "each test program has its line" equal "$(member stages 0 results 1 failed)" 1
expect "large shapes are a stage of their own" equal "$(member stages 1 note)" "9 tests passed"
expect "the kernels that were measured are kept" equal "$(member stages 2 results 1 name)" b
expect "a line cut short is left out" has "$(member stages 2 note)" "2 measured, 1 below their budget"
expect "the reason is kept" has "$(member stages 2 note)" 'status 1: the "device" is lost\'
expect "an error fails the sanitizer's stage" has "$(member stages 3 note)" "memcheck: cuda_one_test"
expect "attention is raced at large shapes" has "$(<"$scratch/sanitized")" "racecheck --error-exitcode 99 --print-limit 20 $bin/cuda_large_parity_test --gtest_filter=*Attention*"
expect "both jobs are still run" equal "$(member stages 4 results 0 train_seconds)" 1.5
expect "both jobs have their rate" has "$(member stages 4 note)" "vit --data digits --dtype bf16 --epochs 3 --max-steps 100: 1.5 s, 50 images/s"
expect "a missing package skips the comparison" equal "$(member stages 5 status)" skipped
expect "a profile without a table is reported" equal "$(member stages 6 status)" failed
expect "the table names every stage" has "$said" "sanitizer  failed"
expect "Tern's programs get the build's libraries" has "$(<"$LIBRARY_PATHS")" "tern=$scratch/a build/lib"
expect "other programs do not" test -z "$(grep -v '^tern=' "$LIBRARY_PATHS" | grep -v '=$')"
for tool in nsys compute-sanitizer python3; do
  expect "$tool was run" has "$(<"$LIBRARY_PATHS")" "$tool="
done

run --build "$scratch/a build" --quick --stages job --out "$scratch/out.json"
expect "stages that are ok give status 0" equal "$status" 0
expect "only the stages asked for are run" equal "$(member stages 0 stage)" job

# Without nsys the program's own profiler is used.
mv "$tools/nsys" "$scratch/nsys"
stand_in "$bin/tern" <<'END'
[[ $1 == info ]] && { echo "device: cuda:0"; exit 0; }
for word; do [[ $word != --profile=* ]] || printf 'op  calls\nlinear 7\n' >"${word#--profile=}.profile.txt"; done
END
run --build "$scratch/a build" --stages profile --out "$scratch/out.json"
expect "tern's profile takes the place of nsys" equal "$(member stages 0 results 1)" "linear 7"
expect "it says why" has "$(member stages 0 note)" "nsys is not installed"

# --- out of time --------------------------------------------------------------------------------------------------------

rm "$bin/cuda_two_test"
stand_in "$bin/cuda_a_slow_test" <<'END'
printf '%s\n' '[ RUN      ] A.First' '[       OK ] A.First (1 ms)' '[ RUN      ] A.Hangs'
exec sleep 1000
END
run --build "$scratch/a build" --stages tests --budget 8 --out "$scratch/out.json"
expect "out of time is not failed" equal "$(member stages 0 status)" incomplete
expect "it has a status of its own" equal "$status" 3
expect "the others are still run, and what passed counts" has "$(member stages 0 note)" "4 tests passed; out of time: cuda_a_slow_test (in A.Hangs)"
expect "the budget is kept" test "$(member stages 0 seconds)" -le 18
stand_in "$bin/cuda_b_test" <<<'echo "[  FAILED  ] B.Works (3 ms)"; exec sleep 1000'
rm "$bin/cuda_a_slow_test"
run --build "$scratch/a build" --stages tests --budget 6 --out "$scratch/out.json"
expect "what failed before the time was over has failed" equal "$(member stages 0 status)" failed
rm "$bin/cuda_b_test"

stand_in "$bin/cuda_slow_test" <<<'exit 0'
rm "$bin/cuda_one_test" "$bin/tern-bench-kernels"
mv "$bin/cuda_large_parity_test" "$scratch"
run --build "$scratch/a build" --stages sanitizer --budget 3 --out "$scratch/out.json"
expect "the sanitizer runs out of time as well" equal "$(member stages 0 status)" incomplete
expect "and names what is missing" has "$(member stages 0 note)" "out of time: memcheck: cuda_slow_test"
rm "$bin/cuda_slow_test"
mv "$scratch/cuda_large_parity_test" "$bin"

stand_in "$bin/tern-bench-kernels" <<'END'
echo $$ >"$KERNELS_PID"
while [[ $1 != --json ]]; do shift; done
echo '{"name":"a","seconds":1e-6}' >"$2"
exec sleep 1000
END
export KERNELS_PID=$scratch/kernels_pid
run --build "$scratch/a build" --stages kernels --budget 4 --out "$scratch/out.json"
expect "kernels measured before the time was over are kept" equal "$(member stages 0 results 0 name)" a
expect "their stage is incomplete" equal "$(member stages 0 status)" incomplete

# A program killed before the time limit has failed, for instance for lack of memory.
stand_in "$bin/cuda_one_test" <<<'echo "[ RUN      ] A.Eats"; kill -KILL $$'
run --build "$scratch/a build" --stages tests --budget 500 --out "$scratch/out.json"
expect "a program that was killed has failed" equal "$(member stages 0 status)" failed
expect "its status is shown" has "$(member stages 0 note)" "cuda_one_test: status 137"
rm "$bin/cuda_one_test"

# A second is too short for every stage, which is not a failure.
stand_in "$tools/python3" <<<'exec sleep 1000'
stand_in "$bin/tern" <<'END'
[[ $1 == info ]] && { echo "device: cuda:0"; exit 0; }
exec sleep 1000
END
mv "$bin/cuda_large_parity_test" "$scratch"
stand_in "$bin/cuda_large_parity_test" <<<'exec sleep 1000'
cp "$bin/cuda_large_parity_test" "$bin/cuda_one_test"
cp "$bin/cuda_large_parity_test" "$tools/compute-sanitizer"
run --build "$scratch/a build" --budget 1 --out "$scratch/out.json"
expect "a budget of a second makes no failures" equal "$status" 3
for stage in 0 1 2 3 4 5 6; do
  expect "stage $stage is incomplete" equal "$(member stages $stage status)" incomplete
done
rm "$bin/cuda_one_test"
mv "$scratch/cuda_large_parity_test" "$bin"

# A signal ends the check and its programs at once.
gone() {  # PROCESS: waits until it has ended
  local i
  for ((i = 0; i < 600; ++i)); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}
for signal in TERM HUP; do
  rm -f "$KERNELS_PID"
  mkdir -p "$scratch/tmp"
  TMPDIR=$scratch/tmp bash "$check" --build "$scratch/a build" --stages kernels --budget 500 --out "$scratch/out.json" \
    >/dev/null 2>&1 &
  stopped=$!
  until [[ -s $KERNELS_PID ]]; do sleep 0.1; done
  kill -$signal $stopped
  expect "$signal ends it before the time is over" gone $stopped
  expect "and the program with it" gone "$(<"$KERNELS_PID")"
  wait $stopped
  status=$?
  expect "its status says so" equal "$status" $((128 + $(kill -l $signal)))
  expect "nothing is left of it" test -z "$(ls "$scratch/tmp")"
done

echo "a file" >"$scratch/file"
run --build "$scratch/a build" --stages large --out "$scratch/file/out.json"
expect "where nothing can be written nothing is run" equal "$status" 1
expect "it says so" has "$said" "$scratch/file/out.json cannot be written"
expect "no stage was begun" test "${said/===/}" = "$said"

# A killed run keeps the completed stages.
rm -f "$KERNELS_PID"
bash "$check" --build "$scratch/a build" --stages large,kernels --budget 500 --out "$scratch/out.json" >/dev/null 2>&1 &
killed=$!
until [[ -s $KERNELS_PID ]]; do sleep 0.1; done
kill -KILL $killed
wait $killed 2>/dev/null
kill "$(<"$KERNELS_PID")"
stand_in "$bin/tern" <<<'[[ $1 == info ]]'
stand_in "$tools/python3" <<<'exit 1'
expect "a killed run has lost its last stage alone" equal "$(member stages 0 stage)/$(member stages 0 status)" large/ok
expect "the unfinished one is not there" has "$(member stages 1 stage)" "expected an index less than 1"

# --- a bundle -----------------------------------------------------------------------------------------------------------

bundle="$scratch/un packed"
mkdir -p "$bundle/bench/gpu" "$bundle/datasets"
cp "$check" "$bundle/bench/gpu/check.sh"
cp -r "$bin" "$bundle/bin"
echo 0123456789abcdef >"$bundle/COMMIT"
echo "label,text" >"$bundle/datasets/reviews.csv"
stand_in "$bundle/bin/tern" <<'END'
[[ $1 == info ]] && { echo "device: cuda:0"; exit 0; }
echo "$TERN_DATA $XDG_CACHE_HOME $*" >>"$0.calls"
END
check=$bundle/bench/gpu/check.sh
stand_in "$bundle/bin/cuda_one_test" <<<'echo "[  PASSED  ] 3 tests."'
run --bundle --stages tests,job
expect "a bundle is checked where it lies" equal "$status" 0
file=$(ls "$bundle"/results/*-tests-job.json)
cp "$file" "$scratch/out.json"
expect "a bundle runs the tests of the golden files too" equal "$(member stages 0 note)" "23 tests passed"
expect "it knows its commit" equal "$(member about commit)" 0123456789abcdef
expect "its own texts are trained on" has "$(<"$bundle/bin/tern.calls")" "$bundle/datasets $bundle/datasets/cache train distilbert --device cuda --preset base --dtype bf16 --epochs 3 --data $bundle/datasets/reviews.csv"

stand_in "$bin/tern" <<<'echo "tern: error: cuda:0: the driver is too old"; exit 1'
run --build "$scratch/a build" --out "$scratch/other.json"
expect "a device that does not work ends the check" equal "$status" 1
expect "the program's own words are shown" has "$said" "the driver is too old"

((failed)) || echo "the GPU check does what it says"
exit "$failed"
