#!/usr/bin/env bash
# fault_verdict.sh RUN: tests/faults/run.sh with faults that are caught, missed, skipped and stale, and stand-ins for
# cmake, ninja and ctest. The stand-in for ctest has one_test, which fails if the file contains "broken".
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
house="$scratch/a house" bin=$scratch/bin
mkdir -p "$house/tests/faults/faults" "$bin" "$scratch/results"
cp "$1" "$house/tests/faults/run.sh"
unset TERN_TEST_RESULTS

stand_in "$bin/cmake" </dev/null
stand_in "$bin/ninja" </dev/null
stand_in "$bin/git" <<<'printf "%s\n" file.cpp'
stand_in "$bin/ctest" <<'END'
[[ -z ${TERN_TEST_RESULTS:-} ]] || touch "$TERN_TEST_RESULTS/one_test"
if [[ $* == *-N* ]]; then
  printf '%s\n' '  Test #1: one_test' '  Test #2: absent_test (Disabled)'
elif grep -q broken "$2/../../file.cpp"; then
  echo '1/1 Test #1: one_test ...***Failed'
  exit 8
fi
END
export PATH="$bin:$PATH"
printf 'good\nother\n' >"$house/file.cpp"
fault() {  # NAME TESTS ORIGINAL REPLACEMENT
  printf 'why: a reason\nfile: file.cpp\ntests: %s\n<<<<\n%s\n====\n%s\n>>>>\n' "$2" "$3" "$4" \
    >"$house/tests/faults/faults/$1.fault"
}
run() { out=$(bash "$house/tests/faults/run.sh" --work "$scratch/work" "$@" 2>&1) && status=0 || status=$?; }
expect() {  # WHAT STATUS TEXT
  if [[ $status != "$2" || $out != *"$3"* ]]; then
    printf 'FAILED: %s\n  status %s, expected %s\n  printed: %s\n  expected: %s\n' "$1" "$status" "$2" "$out" "$3"
    failed=1
  fi
}

fault caught one_test good broken
run
expect "a fault that is caught passes" 0 "1 of 1 faults caught, 0 missed, 0 stale, 0 do not build, 0 skipped"
fault skipped "absent_test unknown_test" good broken
run
expect "a fault whose tests cannot be built is no success" 77 "1 of 1 faults caught, 0 missed, 0 stale, 0 do not build, 1 skipped"
expect "how to pass without it is said" 77 "--allow-skipped"
run --allow-skipped
expect "it passes where that is allowed" 0 "1 skipped"
run --only skipped
expect "skipped faults alone are no success" 77 "0 of 0 faults caught"
TERN_TEST_RESULTS=$scratch/results run
expect "the result is the same with a report" 77 "1 skipped"
out=$(<"$scratch/results/faults_planted")
expect "the report has the reason" 77 $'skipped\tfaults_planted\tcuda: 1 faults were skipped'
out=$(ls "$scratch/results")
[[ $out == faults_planted ]] || { echo "FAILED: tests in the copy wrote $out"; failed=1; }
fault missed one_test other another
run --allow-skipped
expect "a fault that is missed fails" 1 "1 of 2 faults caught, 1 missed"
sed -i 's/^why:/cpu: no_such_flag\n&/' "$house/tests/faults/faults/missed.fault"
run --allow-skipped
expect "a fault that this processor cannot show is left out" 0 "1 of 1 faults caught, 0 missed"
fault missed one_test nowhere another
run --allow-skipped
expect "a stale fault fails" 1 "1 stale"
run --unknown
expect "an unknown option is wrong usage" 2 "unknown option --unknown"

((failed)) || echo "faults are judged"
exit "$failed"
