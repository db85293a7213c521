#!/usr/bin/env bash
# run.sh BUILD [--strict] [--without NAME,...] [ctest options]: runs the tests of a build folder and counts their cases.
#
# The last line is `N passed, N failed, N skipped, N not built`; a run that did not come to its end adds
# `, N test programs not run`. The lines before it say what failed, and why cases were skipped or not built with the
# command that brings them. A case is one of GoogleTest's, or a ctest test that is no program of GoogleTest.
#
# --strict   what was skipped or not built for lack of something that can be installed fails the run
# --without  NAMEs for which --strict makes an exception: cuda, mpi, data, levels, options, other
#
# Exit status: 0 when cases passed and none failed; 1 otherwise; 2 wrong usage; 128 + signal when interrupted.
#
# A program of GoogleTest writes its cases to a file (tests/support/results.h). Cases that a program does not come to,
# because it crashed or ran out of time, count as failed. Cases that are not built are the TEST macros of their source.
# Programs that were built with sanitizers get their options (sanitizer_options.sh).
set -uo pipefail
build=$1
shift
usage() {
  printf 'tests/run.sh: %s\n' "$1" >&2
  exit 2
}

# Of a name: what brings the cases; and whether the machine itself lacks it (or PyTorch, packages of Python or a Fortran
# compiler, which no other test needs), which --strict does not fail for.
way_of() {
  case $1 in
    cuda) echo "install NVIDIA's package cuda-toolkit (https://developer.nvidia.com/cuda-downloads) or set CUDA_HOME, then: ./tern test" ;;
    mpi) echo "apt-get install -y libopenmpi-dev openmpi-bin && ./tern test" ;;
    data) echo "TERN_DATA=FOLDER ./tern test, where FOLDER holds the data sets (CONTRIBUTING.md)" ;;
    levels) echo "cmake -B $build -DTERN_CPU_LEVELS='v2;v3;v4' && ./tern test" ;;
    pytorch) echo "tests/golden/random_ops.py FOLDER, which needs PyTorch, then: TERN_RANDOM_OPS=FOLDER ./tern test --full" ;;
    python) echo "TERN_PYTHON=PROGRAM ./tern test --full, where PROGRAM is a Python with numpy and torch" ;;
    options) echo "cmake -B $build -DOPTION=ON, with the option that is named, then: ./tern test" ;;
    gpu) echo "./tern --cuda test, on a machine with an NVIDIA GPU and its driver" ;;
    cpu) echo "./tern test, on a machine whose processor has it" ;;
    memory) echo "./tern test, on a machine with more free memory" ;;
    fortran) echo "apt-get install -y gfortran && ./tern test" ;;
    root) echo "sudo ./tern test" ;;
    user) echo "./tern test, in a clone that every user of the machine may read" ;;
    sanitizer | emulator) echo "TERN_PRESET=release ./tern test" ;;
    *) echo "what the reason says" ;;
  esac
}
machine_lacks=" pytorch python fortran gpu cpu memory root user sanitizer emulator "

strict=0 allowed=" " arguments=()
while (($#)); do
  case $1 in
    --strict) strict=1 ;;
    --without)
      (($# > 1)) || usage "--without needs a value"
      for name in ${2//,/ }; do
        [[ " cuda mpi data levels options other " == *" $name "* ]] ||
          usage "--without: expected cuda, mpi, data, levels, options or other, got '$name'"
        allowed+="$name "
      done
      shift
      ;;
    -N | --show-only* | --print-labels | -h | -help | --help* | -H | --version) list=1 && arguments+=("$1") ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
ctest=(ctest --test-dir "$build" ${arguments[@]+"${arguments[@]}"})
[[ -z ${list:-} ]] || exec "${ctest[@]}"

work=$(mktemp -d "${TMPDIR:-/tmp}/tern-tests-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/results"
"${ctest[@]}" -N >"$work/wanted" 2>&1 || {
  cat "$work/wanted" >&2
  exit 1
}
slow=0
for ((i = 0; i + 1 < ${#arguments[@]}; ++i)); do
  if [[ ${arguments[i]} == -LE && ${arguments[i + 1]} == slow ]]; then
    others=("${arguments[@]:0:i}" "${arguments[@]:i+2}")
    slow=$(ctest --test-dir "$build" ${others[@]+"${others[@]}"} -L slow -N 2>/dev/null | sed -n 's/^Total Tests: //p')
  fi
done

# A build with sanitizers says so in its cache.
if grep -qs '^TERN_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt"; then
  here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
  source "$here/sanitizer_options.sh"
  sanitizer_options "$(dirname "$here")"
fi

# --- the run ----------------------------------------------------------------------------------------------------------

# ctest is one job, hence a process group: all of it can be ended, and what it starts has the usual signals. What it prints
# is shown and kept, also when it is ended.
interrupted=0
mkfifo "$work/pipe" || exit 1
(trap '' HUP INT TERM && exec tee "$work/log" <"$work/pipe") &
tee=$!
set -m
TERN_TEST_RESULTS=$work/results "${ctest[@]}" --output-on-failure --no-tests=error --no-label-summary </dev/null \
  >"$work/pipe" 2>&1 &
job=$!
set +m
end_job() {  # NUMBER OF THE SIGNAL
  interrupted=$((128 + $1))
  kill -TERM -- -"$job" 2>/dev/null
  for _ in {1..50}; do
    kill -0 -- -"$job" 2>/dev/null || return
    sleep 0.2
  done
  kill -KILL -- -"$job" 2>/dev/null
}
trap 'end_job 1' HUP
trap 'end_job 2' INT
trap 'end_job 15' TERM
wait "$job"
status=$?
((interrupted)) && wait "$job" 2>/dev/null
trap '' HUP INT TERM
wait "$tee"

# --- what became of each case -----------------------------------------------------------------------------------------

# Writes one line for each group to "$work/groups": KIND, number of cases, name, reason, some of the cases; KIND is
# passed, failed, skipped, absent (not built), partly or open (a program that did not end).
awk -v results="$work/results/" -v table="$build/tests/not_built" '
  function add(kind, count, name, reason, where,   key) {
    key = kind "\t" name "\t" reason
    if (!(key in counts)) order[++keys] = key
    counts[key] += count
    if (examples[key] == "") examples[key] = where
    else if (length(examples[key]) + length(where) < 150) examples[key] = examples[key] ", " where
    else more[key] = ", ..."
  }
  function add_for(kind, reason, where,   colon) {  # a reason starts with a name and a colon
    colon = index(reason, ": ")
    if (colon && substr(reason, 1, colon - 1) ~ /^[a-z0-9]+$/)
      add(kind, 1, substr(reason, 1, colon - 1), substr(reason, colon + 2), where)
    else
      add(kind, 1, "other", reason == "" ? "no reason is given" : reason, where)
  }
  function cases_of(source,   line, count) {
    while ((getline line < source) > 0)
      if (line ~ /^ *(TYPED_)?TEST(_F|_P)?\(/) ++count
    close(source)
    return count ? count : 1
  }
  function count_program(name, verdict,   line, f, total, ended, bad, open, ok) {
    ok = verdict == "Passed"
    total = -1
    while ((getline line < (results name)) > 0) {
      split(line, f, "\t")
      if (f[1] == "program") total = f[2]
      else if (f[1] == "started") open = f[2]
      else if (f[1] == "partly") add_for("partly", f[3], f[2])
      else {
        ++ended
        open = ""
        if (f[1] == "passed") add("passed", 1, "", "", "")
        if (f[1] == "skipped") add_for("skipped", f[3], f[2])
        if (f[1] == "failed") { ++bad; add("failed", 1, name, "", f[2]) }
      }
    }
    close(results name)
    if (total < 0) {
      if (ok) add("passed", 1, "", "", "")
      else if (verdict == "Skipped" && !ended) add("skipped", 1, "other", "its output says why", name)
      else if (!ended) add("failed", 1, name, verdict, name)
    } else if (ended < total) {
      add("failed", total - ended, name, "ended (" verdict ")" (open == "" ? "" : " in " open) \
        "; cases that did not finish count as failed", "")
    } else if (!ok && !bad) {
      add("failed", 1, name, total ? verdict ", outside of its cases" : "has no cases", "")
    }
  }
  FILENAME == table { split($0, field, "\t"); source[field[1]] = field[2]; why[field[1]] = field[3]; next }
  FILENAME ~ /\/wanted$/ {
    if (match($0, /^ *Test +#[0-9]+: /)) {
      name = substr($0, RLENGTH + 1)
      sub(/ \(Disabled\)$/, "", name)
      number = $0
      sub(/^ *Test +#/, "", number)
      wanted[number + 0] = name
      sequence[++tests] = number + 0
    }
    next
  }
  /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {  # ctest: "12/98 Test  #5: core_tensor_test .....   Passed    0.10 sec"
    line = $0
    sub(/^ */, "", line)
    of = line; sub(/^[0-9]+\//, "", of)
    number = line; sub(/^[^#]*#/, "", number)
    name = line; sub(/^[^:]*: /, "", name)
    verdict = name; sub(/ .*/, "", name)
    if (of + 0 != tests || wanted[number + 0] != name) next  # the output of a test that runs ctest
    sub(/^[^ ]* *\.*/, "", verdict); sub(/ *[0-9.]+ sec.*$/, "", verdict); gsub(/^[ *]+|[ *]+$/, "", verdict)
    verdicts[number + 0] = verdict
  }
  END {
    for (t = 1; t <= tests; ++t) {
      number = sequence[t]
      name = wanted[number]
      verdict = verdicts[number]
      if (verdict == "Not Run (Disabled)" || name in why)
        add("absent", source[name] == "" ? 1 : cases_of(source[name]), substr(why[name], 1, index(why[name], ": ") - 1),
            substr(why[name], index(why[name], ": ") + 2), name)
      else if (verdict == "") { add("open", 1, "", "", name); count_open(name) }
      else count_program(name, verdict)
    }
    for (k = 1; k <= keys; ++k) {
      split(order[k], part, "\t")
      printf "%s\t%d\t%s\t%s\t%s\n", part[1], counts[order[k]], part[2], part[3], examples[order[k]] more[order[k]]
    }
  }
  function count_open(name,   line, f) {  # what a program did before the run was interrupted
    while ((getline line < (results name)) > 0) {
      split(line, f, "\t")
      if (f[1] == "passed") add("passed", 1, "", "", "")
      if (f[1] == "failed") add("failed", 1, name, "", f[2])
      if (f[1] == "skipped") add_for("skipped", f[3], f[2])
    }
    close(results name)
  }' "$([[ -f $build/tests/not_built ]] && echo "$build/tests/not_built" || echo /dev/null)" "$work/wanted" "$work/log" |
  sort -t $'\t' -k 1,1 -k 3,3 -k 2,2nr >"$work/groups"

# --- the report -------------------------------------------------------------------------------------------------------

sum() { awk -F '\t' -v kind="$1" '$1 == kind { n += $2 } END { print n + 0 }' "$work/groups"; }
show() {  # KIND TITLE
  local kind count name reason cases last=""
  while IFS=$'\x1f' read -r kind count name reason cases; do
    [[ $kind == "$1" ]] || continue
    [[ -n $last ]] || printf '%s:\n' "$2"
    if [[ $kind == failed ]]; then
      printf '  %s%s%s\n' "$name" "${reason:+: $reason}" "${cases:+: $cases}"
    else
      printf '  %d for lack of %s: %s (%s)\n' "$count" "$name" "$reason" "$cases"
      printf '    to have them: %s\n' "$(way_of "$name")"
    fi
    last=$name
  done < <(tr '\t' '\037' <"$work/groups")
}
passed=$(sum passed) failed=$(sum failed) skipped=$(sum skipped) absent=$(sum absent) open=$(sum open)
echo
show failed "failed"
show skipped "skipped"
show absent "not built"
show partly "passed, but for a part that was left out"
((slow == 0)) || echo "$slow slow tests were left out: ./tern test --full"
refused=""
if ((strict)); then
  refused=$(awk -F '\t' -v allowed="$allowed$machine_lacks" \
    '($1 == "skipped" || $1 == "absent") && !index(allowed, " " $3 " ") { print $3 }' "$work/groups" | sort -u | paste -sd,)
  [[ -z $refused ]] || echo "cases were left out, which fails a strict run; to allow it: --without $refused"
fi
if ((passed + failed + skipped + absent + open == 0)); then echo "no test was selected"; fi
((!interrupted)) || echo "interrupted"
printf '%d passed, %d failed, %d skipped, %d not built' "$passed" "$failed" "$skipped" "$absent"
((open == 0)) || printf ', %d test programs not run' "$open"
echo

((!interrupted)) || exit "$interrupted"
((status == 0 && failed == 0 && open == 0 && passed > 0)) && [[ -z $refused ]]
