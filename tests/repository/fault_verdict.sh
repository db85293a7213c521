#!/usr/bin/env bash
# fault_verdict.sh RUN: tests/faults/run.sh with faults that are caught, missed, skipped and stale, and stand-ins for
# cmake, ninja and ctest. The stand-in for ctest has one_test, which fails if the file contains "broken".
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
tree="$scratch/a tree" bin=$scratch/bin
mkdir -p "$tree/tests/faults/faults" "$bin" "$scratch/results"
cp "$1" "$tree/tests/faults/run.sh"
unset TERN_TEST_RESULTS

stand_in "$bin/cmake" </dev/null
stand_in "$bin/ninja" </dev/null
stand_in "$bin/git" <<<'printf "%s\n" file.cpp moved/other.cpp'
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
printf 'good\nother\n' >"$tree/file.cpp"
mkdir "$tree/moved"
printf 'elsewhere\n' >"$tree/moved/other.cpp"
fault() {  # NAME TESTS ORIGINAL REPLACEMENT
  printf '%s: a reason\n-%s\n+%s\n' "$1" "$3" "$4" >"$tree/tests/faults/faults/$2.fault"
}
run() { out=$(bash "$tree/tests/faults/run.sh" --work "$scratch/work" "$@" 2>&1) && status=0 || status=$?; }
expect() {  # WHAT STATUS TEXT
  if [[ $status != "$2" || $out != *"$3"* ]]; then
    printf 'FAILED: %s\n  status %s, expected %s\n  printed: %s\n  expected: %s\n' "$1" "$status" "$2" "$out" "$3"
    failed=1
  fi
}

fault caught one_test good broken
run
expect "a fault that is caught passes" 0 "1 of 1 faults caught, 0 missed, 0 stale, 0 do not build, 0 skipped"
fault skipped absent_test good broken
sed -i 's/^-/also: unknown_test\n&/' "$tree/tests/faults/faults/absent_test.fault"
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

# Several faults of one test.
faults() { printf '%s\n' 'caught: a reason' '-good' '+broken' '' "$@" >"$tree/tests/faults/faults/one_test.fault"; }
faults 'missed: a reason' '-other' '+another'
run --allow-skipped
expect "a fault that is missed fails" 1 "1 of 2 faults caught, 1 missed"
faults 'missed: a reason' 'cpu: no_such_flag' '-other' '+another'
run --allow-skipped
expect "a fault that this processor cannot show is left out" 0 "1 of 1 faults caught, 0 missed"
faults 'second: a reason' '-good' ' other' '+broken'
run --allow-skipped
expect "text of several lines is replaced, and lines that stay are found" 0 "2 of 2 faults caught"
faults 'lost: a reason' '-nowhere' '+another'
run --allow-skipped
expect "a stale fault fails" 1 "1 stale"
run --fit
expect "the look at the sources alone finds it" 1 "does not fit the sources: its text occurs nowhere"
faults 'moved: a reason' '-elsewhere' '+broken'
run --only moved
expect "the text is found in whatever file it is" 1 "0 of 1 faults caught, 1 missed, 0 stale"
printf 'elsewhere\ngood\n' >"$tree/moved/other.cpp"
run --only caught
expect "text in two files is stale" 1 "1 stale"
run --fit
expect "the look at the sources finds that too" 1 "occurs more than once"
faults 'named: a reason' 'in: file.cpp' '-good' '+broken'
run --only named
expect "unless the fault names the file" 0 "1 of 1 faults caught"
run --fit --only named
expect "and then it fits" 0 "1 faults fit the sources"
faults 'named: a reason' 'at: file.cpp' '-good' '+broken'
run
expect "a setting that there is not is an error" 2 "one_test.fault:6: expected also, in, sanitize or cpu, got 'at'"
faults 'caught: a reason' '-good' '+broken'
run
expect "two faults of one name are an error" 2 "there are two faults 'caught'"
rm "$tree/tests/faults/faults/one_test.fault"
run --unknown
expect "an unknown option is wrong usage" 2 "unknown option --unknown"

((failed)) || echo "faults are judged"
exit "$failed"
