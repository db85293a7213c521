#!/usr/bin/env bash
# test_counts.sh RUN SAMPLE: tests/run.sh counts the cases of programs that end in all possible ways.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
run=$1 sample=$(readlink -f "$2")
unset TERN_TEST_RESULTS TERN_TEST_SEED GTEST_FILTER ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS OMP_NUM_THREADS
build="$scratch/a build"
mkdir -p "$build/tests"

has() { [[ $out == *"$1"* ]]; }
lacks() { [[ $out != *"$1"* ]]; }
last() { [[ ${out##*$'\n'} == "$1" ]]; }

tests() { : >"$build/CTestTestfile.cmake"; : >"$build/tests/not_built"; }
add() { printf 'add_test(%s %s)\n' "$1" "$2" >>"$build/CTestTestfile.cmake"; }  # NAME COMMAND
script() {  # NAME, the script on stdin
  cat >"$build/$1.sh"
  add "$1" "\"bash\" \"$build/$1.sh\""
}
set_property() { printf 'set_tests_properties(%s PROPERTIES %s)\n' "$1" "$2" >>"$build/CTestTestfile.cmake"; }
cases() {  # NAME FILTER: the sample under this name, with some of its cases
  ln -sf "$sample" "$build/$1"
  add "$1" "\"$build/$1\" \"--gtest_filter=$2\""
}
counts() {  # OPTIONS...: sets $out and $status
  out=$(bash "$run" "$build" "$@" 2>&1)
  status=$?
}

tests
cases one 'Good.*'
cases two 'Good.One:Last.*'
script script <<<'exit 0'
counts -j 2
expect "cases are counted, and a script is one" last "6 passed, 0 failed, 0 skipped, 0 not built"
expect "a run that passes ends with 0" ends 0
expect "a part that was left out is said" has "1 for lack of cpu: this processor has no CPU level v9 (Good.Two)"
expect "nothing that did not happen is named" lacks "not built:"
counts -R one
expect "only what is selected is counted" last "2 passed, 0 failed, 0 skipped, 0 not built"
counts -R nothing
expect "no test is no success" ends 1
expect "no test is said" has "no test was selected"
counts -N
expect "a list runs nothing" lacks "passed"
counts --repeat until-fail:3 -R two
expect "a test that is repeated counts once" last "3 passed, 0 failed, 0 skipped, 0 not built"

tests
cases one 'Good.One:Bad.*:Last.*'
script script <<<'echo "7/7 Test #2: script ..... Passed 1.0 sec"; exit 3'
counts
expect "failures are counted" last "3 passed, 2 failed, 0 skipped, 0 not built"
expect "a run that fails ends with 1" ends 1
expect "the case that failed is named" has "one: Bad.Fails"
expect "the script that failed is named" has "script: Failed"
expect "the output of a failure is shown" has "in two lines"
expect "a failure says how to repeat it" has "--gtest_filter=Bad.Fails"

tests
cases one 'Good.One:Missing.Data:Missing.Mpi'
cases two 'Missing.Data:Good.One'
counts
expect "a skip is no pass" last "2 passed, 0 failed, 3 skipped, 0 not built"
expect "a run with skips passes" ends 0
expect "skips with one reason are said together" has "2 for lack of data: there is none (Missing.Data, Missing.Data)"
expect "what brings them is said" has "TERN_DATA=FOLDER ./tern test"
expect "what brings the others is said too" has "apt-get install -y libopenmpi-dev openmpi-bin"
counts --strict
expect "a strict run fails for skips" ends 1
expect "a strict run says what allows it" has "to allow it: --without data,mpi"
expect "the counts are the same" last "2 passed, 0 failed, 3 skipped, 0 not built"
counts --strict --without mpi
expect "a strict run fails for what was not named" ends 1
counts --strict --without mpi,data
expect "a strict run passes with what was named" ends 0
counts --strict --without dat
expect "an unknown name is wrong usage" ends 2
tests
cases one 'Good.One:Missing.Unnamed'
counts --strict --without data
expect "a skip without a name fails a strict run" ends 1
expect "a skip without a name is said" has "1 for lack of other: no name before a colon"
tests
cases one 'Good.One:Missing.Gpu'
counts --strict
expect "what the machine lacks does not fail a strict run" ends 0
expect "what the machine lacks is counted" last "1 passed, 0 failed, 1 skipped, 0 not built"
tests
cases one 'Missing.*'
counts
expect "a run in which nothing passed is no success" ends 1

tests
cases one 'Good.*:End.Crashes:Last.*'
cases two 'Good.*:End.Exits:Last.*'
counts
expect "cases that a crash or an exit hides count as failed" last "4 passed, 6 failed, 0 skipped, 0 not built"
expect "where it crashed is said" has "in End.Crashes"
expect "where it ended is said" has "in End.Exits"
tests
cases one 'Good.*:End.Hangs:Last.One'
set_property one 'TIMEOUT 2'
counts
expect "what a timeout hides counts as failed" last "2 passed, 2 failed, 0 skipped, 0 not built"
expect "a timeout is said" has "one: ended (Timeout) in End.Hangs"
tests
cases one 'None.*'
counts
expect "a program without a case fails" last "0 passed, 1 failed, 0 skipped, 0 not built"
tests
cases one 'Teardown.*'
counts
expect "a failure outside of the cases fails" last "1 passed, 1 failed, 0 skipped, 0 not built"
tests
add one '"/nowhere/program"'
counts
expect "a program that is not there fails" last "0 passed, 1 failed, 0 skipped, 0 not built"

tests
cases one 'Good.One'
printf 'TEST(A, B) {}\nTEST_F(C, D) {\n// TEST(not, this)\nTEST_P(E, F) {\n' >"$scratch/absent_test.cpp"
printf 'nothing here\n' >"$scratch/absent_script.sh"
for name in absent_test absent_script; do
  add "$name" '"/nowhere/program"'
  set_property "$name" 'DISABLED TRUE'
done
printf '%s\t%s\t%s\n' absent_test "$scratch/absent_test.cpp" "cuda: there are no headers" \
  absent_script "$scratch/absent_script.sh" "levels: CPU level v9 is left out" >"$build/tests/not_built"
counts
expect "cases that were not built are counted by their source" last "1 passed, 0 failed, 0 skipped, 4 not built"
expect "a run without them passes" ends 0
expect "why they were not built is said" has "3 for lack of cuda: there are no headers (absent_test)"
expect "what brings them is said" has "install NVIDIA's package cuda-toolkit"
counts --strict --without levels
expect "a strict run fails for what was not built" ends 1
counts --strict --without cuda,levels
expect "a strict run passes without what was named" ends 0
counts -R one
expect "what was not selected is not missed" last "1 passed, 0 failed, 0 skipped, 0 not built"

tests
cases one 'Good.One'
script scripted <<'END'
printf 'skipped\tscripted\tcuda: some faults\n' >"$TERN_TEST_RESULTS/scripted"
exit 77
END
set_property scripted 'SKIP_RETURN_CODE 77'
script plain <<<'exit 77'
set_property plain 'SKIP_RETURN_CODE 77'
cases slow_one 'Good.*'
set_property slow_one 'LABELS slow'
counts -LE slow
expect "a script's skip is counted" last "1 passed, 0 failed, 2 skipped, 0 not built"
expect "a script gives its reason" has "1 for lack of cuda: some faults (scripted)"
expect "slow tests that are left out are said" has "1 slow tests were left out: ./tern test --full"

# A build with a sanitizer sets its options for the programs; options from the environment come last.
tests
echo 'TERN_SANITIZE:STRING=thread' >"$build/CMakeCache.txt"
script script <<'END'
file=${TSAN_OPTIONS#suppressions=\"} && file=${file%%\"*}
[[ -f $file && $TSAN_OPTIONS == *:verbosity=1 && $OMP_NUM_THREADS == 2 ]]
END
TSAN_OPTIONS=verbosity=1 counts
expect "a build with a sanitizer has its options" last "1 passed, 0 failed, 0 skipped, 0 not built"
rm "$build/CMakeCache.txt"
tests
script script <<<'[[ -z ${TSAN_OPTIONS:-} ]]'
counts
expect "a build without has none" ends 0

# Interrupted while a case hangs. (A shell's background jobs ignore SIGINT, which the script handles in the same way.)
for signal in TERM:143 HUP:129; do
  tests
  cases one 'Good.*:End.Hangs:Last.*'
  cases two 'Good.*'
  mkdir "$scratch/$signal"
  TMPDIR=$scratch/$signal bash "$run" "$build" -j 1 >"$scratch/out" 2>&1 &
  child=$!
  for _ in {1..600}; do
    grep -qs End.Hangs "$scratch/$signal"/*/results/one && break
    sleep 0.1
  done
  kill -"${signal%:*}" "$child"
  wait "$child"
  status=$? out=$(<"$scratch/out")
  expect "an interrupted run ends with the signal" ends "${signal#*:}"
  expect "an interrupted run says so" has "interrupted"
  expect "an interrupted run counts what was done" last "2 passed, 0 failed, 0 skipped, 0 not built, 2 test programs not run"
  expect "an interrupted run leaves nothing" test -z "$(ls -A "$scratch/$signal")"
  expect "an interrupted run ends what it started" test -z "$(pgrep -f "$build/one")"
done

# The seed: new in each run, printed, repeatable.
drawn() { "$sample" --gtest_filter=Seed.Print | sed -n 's/^drawn //p'; }
seeds=$(for _ in 1 2 3; do "$sample" --gtest_filter=Seed.Print | sed -n 's/^TERN_TEST_SEED=//p'; done | sort -u | wc -l)
status=$seeds out=""
expect "every run has another seed" ends 3
export TERN_TEST_SEED=$((RANDOM + 1))
out=$(drawn)
status=$([[ -n $out && $out == "$(drawn)" ]] && echo same)
expect "TERN_TEST_SEED repeats a run" ends same
export TERN_TEST_SEED=12x
"$sample" --gtest_filter=Good.One >/dev/null 2>&1
status=$? out=""
expect "a seed that is no number is an error" ends 2

((failed)) || echo "the tests are counted"
exit "$failed"
