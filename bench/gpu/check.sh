#!/usr/bin/env bash
# check.sh: all checks that need a GPU, in one command. Prints a short table and writes one JSON file.
#
#   bench/gpu/check.sh --make              builds with CUDA for this machine's GPU in build/cuda, then checks
#   bench/gpu/check.sh --build DIR         checks a finished build
#   bench/gpu/check.sh --bundle            checks the folder that contains it, unpacked from a bundle of bundle.sh
#     --stages LIST      of tests,large,kernels,sanitizer,job,compare,profile,ctest (default: all but ctest)
#     --budget SECONDS   for each stage, instead of the default limits
#     --quick            less of each stage: all of them in 10 minutes
#     --out FILE         the JSON file (default: bench/gpu/results/DATE-GPU[-STAGES].json, in a bundle results/...)
#     --emulated         without a GPU: runs a CUDA-less build's emulated device on tiny shapes, to test this script
#
#   tests      every cuda_* test on the device; in a bundle also the tests that read the golden files
#   large      cuda_large_*_test: production shapes against the CPU
#   kernels    every kernel's time, rate and share of the device's peak, with its budget
#   sanitizer  compute-sanitizer: memcheck and racecheck on every kernel at tiny shapes and on attention at large ones,
#              memcheck on the tests, and in the remaining time racecheck, synccheck and initcheck
#   job        tern train distilbert (DistilBERT base on IMDB if TERN_DATA has it, in a bundle on texts of its lengths,
#              otherwise on sentences) and tern train vit (ViT-B/16 on CIFAR-10)
#   compare    training steps, in turn with PyTorch and transformers (TERN_COMPARE_PYTHON: a Python that has them)
#   profile    the kernels of a training step by time, from Nsight Systems, or if that is missing from CUPTI
#   ctest      all tests of the build folder
#
# Three calls of less than ten minutes each cover everything: --stages tests,large,kernels; --stages sanitizer;
# --stages job,compare,profile.
#
# A stage whose time is over ends as "incomplete", with the results so far; the JSON file is written after every stage.
# A stage that fails, or whose tool is missing, is reported, and the others still run.
# Exit status: 0 all stages are ok or were skipped because a tool is missing, 1 one failed or there is no GPU, 2 wrong
# usage, 3 none failed, but one is incomplete.
set -uo pipefail
exec </dev/null
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
all_stages=tests,large,kernels,sanitizer,job,compare,profile
stages=$all_stages
build="" make=0 quick=0 emulated=0 bundle=0 out="" budget=""

usage() {
  printf 'check.sh: %s\n' "$1" >&2
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0" | sed -n '3,10p' >&2
  exit 2
}
while (($#)); do
  case $1 in
    --build | --stages | --out | --budget) (($# > 1)) || usage "$1 needs a value" ;;&
    --build) build=$2 && shift ;;
    --stages) stages=$2 && shift ;;
    --budget) budget=$2 && shift ;;
    --bundle) bundle=1 ;;
    --out) out=$2 && shift ;;
    --make) make=1 ;;
    --quick) quick=1 ;;
    --emulated) emulated=1 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) usage "unknown argument '$1'" ;;
  esac
  shift
done
[[ -n ${stages//,/} ]] || usage "--stages names no stage"
for stage in ${stages//,/ }; do
  [[ ,$all_stages,ctest, == *",$stage,"* ]] || usage "unknown stage '$stage'"
done
[[ -z $budget || $budget =~ ^[1-9][0-9]{0,5}$ ]] || usage "--budget: '$budget' is no number of seconds above 0"
((make + bundle + (${#build} > 0) == 1)) || usage "give one of --make, --build DIR and --bundle"

# --- the GPU and the build --------------------------------------------------------------------------------------------

# NVIDIA's tools, if a toolkit is installed but not in PATH.
PATH+=:${CUDA_HOME:-/usr/local/cuda}/bin

query() { timeout 30 nvidia-smi --query-gpu="$1" --format=csv,noheader --id=0 2>/dev/null | head -n 1; }

gpu="" driver="" capability=""
if ((emulated)); then
  gpu="emulated device"
elif command -v nvidia-smi >/dev/null; then
  gpu=$(query name) driver=$(query driver_version) capability=$(query compute_cap)
fi
if [[ -z $gpu && ! -e /dev/nvidia0 ]]; then
  echo "check.sh: no NVIDIA GPU on this machine (nvidia-smi lists none, there is no /dev/nvidia0):" \
    "nothing was checked" >&2
  exit 1
fi

if ((make)); then
  [[ -n $capability ]] || { echo "check.sh: nvidia-smi does not report the GPU's architecture" >&2; exit 1; }
  architecture=${capability/./}
  [[ $architecture != 90 ]] || architecture=90a
  build=$root/build/cuda
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTERN_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="$architecture" -DTERN_BUILD_TESTS=ON -DTERN_BUILD_BENCH=ON \
    -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON >&2 &&
    cmake --build "$build" --target tern_program tern_bench_kernels tern_bench_train tern_cuda_tests >&2 ||
    { echo "check.sh: the build failed" >&2; exit 1; }
  [[ ,$stages, != *,ctest,* ]] || cmake --build "$build" --target tern_tests >&2
fi
if ((bundle)); then
  build=$root
  export XDG_CACHE_HOME=$root/datasets/cache
fi
# Of the stages job and compare; tests that read data need all of it.
data=${TERN_DATA:-}
((!bundle)) || data=${data:-$root/datasets}
[[ -d $build/bin ]] || { echo "check.sh: $build/bin: no such folder" >&2; exit 1; }
export CUBLAS_WORKSPACE_CONFIG=${CUBLAS_WORKSPACE_CONFIG-:4096:8}  # as tern does: recurrent layers are then cuDNN's
build=$(cd "$build" && pwd) suffix="" tiny=()
# Libraries that came with the build, only for its programs: other tools have other versions.
libraries=$build/lib
if ((emulated)); then
  suffix=-emulated libraries=$build/lib/standin:$libraries
  tiny=(--tiny)
fi
libraries+=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
tern=$build/bin/tern$suffix kernels=$build/bin/tern-bench-kernels$suffix train=$build/bin/tern-bench-train$suffix

work=$(mktemp -d) || exit 1
clean_up() {
  local running
  # A program started by limited() leads a process group: timeout ends the whole group.
  if running=$(cat "$work/running" 2>/dev/null) && [[ -n $running ]]; then kill "$running" 2>/dev/null && wait; fi
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [[ -x $tern ]] && ! LD_LIBRARY_PATH=$libraries timeout 120 "$tern" info --device cuda >"$work/info" 2>&1; then
  echo "check.sh: $(tail -n 1 "$work/info")" >&2
  echo "check.sh: $tern cannot use the GPU: nothing was checked" >&2
  exit 1
fi

# --- JSON and stages --------------------------------------------------------------------------------------------------

utf8() {  # the valid UTF-8 of stdin; without iconv only its ASCII
  if command -v iconv >/dev/null; then iconv -c -f UTF-8 -t UTF-8 2>/dev/null; else LC_ALL=C tr -d '\200-\377'; fi
}
quoted() {  # TEXT: as a JSON string
  local text=$1
  text=$(printf '%s' "$text" | LC_ALL=C tr -d '\000-\010\013\014\016-\037' | utf8)
  text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\t'/\\t} text=${text//$'\r'/} text=${text//$'\n'/\\n}
  printf '"%s"' "$text"
}
list() { printf '[\n%s\n]' "$(sed '$!s/$/,/' "$1")"; }  # FILE of one JSON value per line
last_line() { tail -n 1 "$1" 2>/dev/null | cut -c 1-300; }

deadline=0
left() { echo $((deadline - SECONDS)); }
# COMMAND...: runs it within the rest of the stage's time, or $most seconds if that is less; 124 on timeout. It runs in
# the background, since the shell handles signals only between commands and in wait.
limited() {
  local seconds code started=$SECONDS
  seconds=$(left)
  ((seconds > 0)) || return 124
  [[ -z ${most:-} ]] || ((most >= seconds)) || seconds=$most
  timeout -k 10 "$seconds" "$@" &
  echo $! >"$work/running"
  wait $!
  code=$?
  rm -f "$work/running"
  # Killed by timeout, or otherwise, such as for lack of memory.
  ((code != 137 || SECONDS - started < seconds)) || code=124
  return $code
}
ours() { limited env LD_LIBRARY_PATH="$libraries" "$@"; }  # PROGRAM...: one of the build's
# Whether a run ended by its time limit, which is not a failure.
late() { (($1 == 124)); }  # STATUS

# A stage sets `status` (ok, failed, incomplete, skipped) and `note`, and writes JSON values to "$work/STAGE", one per
# line.
names=() lines=()
run_stage() {  # NAME SECONDS
  local name=$1 seconds=${budget:-$2} started=$SECONDS
  printf '\n=== %s (at most %d s)\n' "$name" "$seconds"
  deadline=$((SECONDS + seconds)) status=ok note=""
  : >"$work/$name"
  "stage_$name"
  names+=("$name")
  lines+=("$(printf '%-10s %-10s %5d s  %s' "$name" "$status" $((SECONDS - started)) "$note")")
  printf '{"stage": "%s", "status": "%s", "seconds": %d, "budget": %d, "note": %s,\n"results": %s}' "$name" "$status" \
    $((SECONDS - started)) "$seconds" "$(quoted "$note")" "$(list "$work/$name")" >"$work/$name.json"
}
skip() { status=skipped note=$1; }
fail() { status=failed note=$1; }
incomplete() {  # NOTE: unless the stage has failed
  [[ $status == failed ]] || status=incomplete
  note=$1
}
ended() {  # STATUS NOTE: of the stage's only program
  if late "$1"; then
    incomplete "$2; out of time"
  elif (($1 != 0)); then
    fail "$2; status $1: $(last_line "$work/log")"
  fi
}
truth() { (($1)) && echo true || echo false; }

tests_named() { find "$build/bin" -maxdepth 1 -name "$1" -type f -executable | sort; }  # PATTERN
mapfile -t cuda_tests < <(tests_named 'cuda_*_test' | grep -v '/cuda_large_[^/]*$')
golden_tests=()
((!bundle)) || mapfile -t golden_tests < <(tests_named '*_test' | grep -v '/cuda_[^/]*$')
large=$build/bin/cuda_large_parity_test
mapfile -t large_tests < <(tests_named 'cuda_large_*_test')
joined() { local text && text=$(printf '%s; ' "$@") && printf '%s' "${text%; }"; }

run_test() {  # STAGE PROGRAM ARGUMENTS...: adds its line to the stage's results; sets $code, $passed and $skipped
  local stage=$1 name=${2##*/} failed failures
  shift
  ours "$@" >"$work/log" 2>&1
  code=$?
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/log")
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$work/log")
  # A stopped program prints no totals.
  passed=${passed:-$(grep -c '^\[       OK \] .*(.* ms)$' "$work/log")} skipped=${skipped:-0}
  failed=$(grep -c '^\[  FAILED  \] .*(.* ms)$' "$work/log")
  failures=$(grep -m 20 '^\[  FAILED  \] .*(.* ms)$' "$work/log")
  last=$(sed -n 's/^\[ RUN      \] //p' "$work/log" | tail -n 1)
  printf '%-32s %s passed, %s failed, %s skipped%s\n' "$name" "$passed" "$failed" "$skipped" \
    "$(late $code && echo "; out of time in ${last:-its start}")"
  printf '{"name": "%s", "status": %d, "passed": %d, "failed": %d, "skipped": %d, "failures": %s, "last": %s}\n' \
    "$name" "$code" "$passed" "$failed" "$skipped" "$(quoted "$failures")" "$(quoted "$last")" >>"$work/$stage"
  # A test that failed before the time limit counts as failed.
  if late $code && ((failed > 0)); then code=1; fi
  ((code == 0)) || late $code || tail -n 15 "$work/log"
}

run_tests() {  # STAGE PROGRAM...
  local stage=$1 program name code passed skipped last total=0 bad=() waiting=() most count=$(($# - 1))
  shift
  for program; do
    name=${program##*/}
    if (($(left) <= 0)); then
      waiting+=("$name")
      continue
    fi
    # A hanging program must leave time for the others.
    count=$((count - 1)) most=""
    ((count == 0)) || most=$((($(left) + 1) / 2))
    run_test "$stage" "$program"
    total=$((total + passed))
    if late $code; then
      waiting+=("$name (in ${last:-its start})")
    elif ((code != 0)); then
      bad+=("$name: status $code")
    elif ((skipped > 0 && passed == 0)); then
      bad+=("$name: all skipped")
    fi
  done
  note="$total tests passed"
  if ((${#waiting[@]})); then incomplete "$note; out of time: $(joined "${waiting[@]}")"; fi
  if ((${#bad[@]})); then fail "$note; $(joined "${bad[@]}")"; fi
}

stage_tests() {
  ((${#cuda_tests[@]})) || { skip "the build has no cuda_* tests"; return; }
  run_tests tests "${cuda_tests[@]}" ${golden_tests[@]+"${golden_tests[@]}"}
}

stage_large() {
  [[ -x $large ]] || { skip "the build has no ${large##*/}"; return; }
  run_tests large "${large_tests[@]}"
}

stage_ctest() {
  [[ -f $build/CTestTestfile.cmake ]] && command -v ctest >/dev/null ||
    { skip "no ctest, or the build was carried"; return; }
  limited ctest --test-dir "$build" -LE slow --output-on-failure >"$work/log" 2>&1
  local code=$?
  note=$(grep 'tests passed' "$work/log" || last_line "$work/log")
  grep -A 30 'The following tests FAILED' "$work/log"
  quoted "$note" >>"$work/ctest"
  ended $code "$note"
}

# compute-sanitizer is not part of the build. If a program needs the build's libraries to start, env sets their path.
sanitize() {  # TOOL NAME PROGRAM ARGUMENTS...: sets $code
  local tool=$1 name=$2 summary first start=()
  shift 2
  ! ldd "$1" 2>/dev/null | grep -q 'not found' || start=(--target-processes all env LD_LIBRARY_PATH="$libraries")
  limited compute-sanitizer --tool "$tool" --error-exitcode 99 --print-limit 20 ${start[@]+"${start[@]}"} "$@" \
    >"$work/log" 2>&1
  code=$?
  summary=$(grep -o '\(ERROR\|RACECHECK\) SUMMARY: .*' "$work/log" | tail -n 1)
  first=$(grep -m 8 -A 6 '=========.*\(Invalid\|Error\|hazard\|Uninit\|Barrier\)' "$work/log")
  late $code && [[ -n $first ]] && code=99  # errors found before the time limit count
  late $code && summary="out of time"
  printf '%-10s %-32s %s\n' "$tool" "$name" "${summary:-status $code}"
  printf '{"tool": "%s", "name": "%s", "status": %d, "summary": %s, "first": %s}\n' "$tool" "$name" "$code" \
    "$(quoted "$summary")" "$(quoted "$first")" >>"$work/sanitizer"
}

stage_sanitizer() {
  command -v compute-sanitizer >/dev/null || { skip "compute-sanitizer is not installed"; return; }
  local tool program code bad=() waiting=() runs=() run most="" others=(racecheck synccheck initcheck)
  for tool in memcheck racecheck; do
    [[ ! -x $kernels ]] || runs+=("$tool|kernels, tiny")
    [[ ! -x $large ]] || runs+=("$tool|attention, large")
  done
  for program in "${cuda_tests[@]}"; do runs+=("memcheck|${program##*/}"); done
  if ((!quick)); then
    for tool in "${others[@]}"; do
      [[ ! -x $kernels || $tool == racecheck ]] || runs+=("$tool|kernels, tiny")
      for program in "${cuda_tests[@]}"; do runs+=("$tool|${program##*/}"); done
    done
  fi
  for run in ${runs[@]+"${runs[@]}"}; do
    tool=${run%%|*} program=${run#*|}
    if (($(left) <= 0)); then
      waiting+=("$tool: $program")
      continue
    fi
    most=$((($(left) + 1) / 2))
    case $program in
      kernels*) sanitize "$tool" "$program" "$kernels" --device cuda --tiny ;;
      attention*) sanitize "$tool" "$program" "$large" '--gtest_filter=*Attention*' ;;
      *) sanitize "$tool" "$program" "$build/bin/$program" ;;
    esac
    if late $code; then
      waiting+=("$tool: $program")
    elif ((code != 0)); then
      bad+=("$tool: $program")
    fi
  done
  note="$(($(wc -l <"$work/sanitizer"))) runs"
  if ((${#waiting[@]})); then incomplete "$note; out of time: $(joined "${waiting[@]}")"; fi
  if ((${#bad[@]})); then fail "$note; $(joined "${bad[@]}")"; fi
}

stage_kernels() {
  [[ -x $kernels ]] || { skip "the build has no ${kernels##*/}"; return; }
  local code
  ours "$kernels" --device cuda ${tiny[@]+"${tiny[@]}"} --json "$work/kernels" --rows "${TERN_CHECK_KERNELS:-}" \
    2>"$work/log"
  code=$?
  sed -i '/}$/!d' "$work/kernels"  # removes a line truncated by the time limit
  note="$(grep -c '"seconds"' "$work/kernels") measured, $(grep -c '"met":false' "$work/kernels") below their budget"
  ended $code "$note"
}

train_job() {  # MODEL UNIT OPTIONS...: adds to $jobs, and to $bad or $waiting
  local model=$1 unit=$2 code seconds rate run=$work/run-$1
  shift 2
  printf -- '--- tern train %s\n' "$model $*"
  ours "$tern" train "$model" --device cuda "$@" --out "$run" >"$work/log" 2>&1
  code=$?
  tail -n 4 "$work/log"
  # Only complete lines, since a stopped run may leave a partial one: the final line, otherwise the last step's numbers.
  grep '"train_seconds".*}$' "$run/metrics.jsonl" 2>/dev/null >"$work/metrics" ||
    grep "\"${unit}_per_second\".*}\$" "$run/metrics.jsonl" 2>/dev/null | tail -n 1 >"$work/metrics"
  cat "$work/metrics" >>"$work/job"
  if [[ -f $run/run.json ]]; then tr -d '\n' <"$run/run.json" >>"$work/job" && echo >>"$work/job"; fi
  seconds=$(sed -n 's/.*"train_seconds":\([0-9.]*\).*/\1 s/p' "$work/metrics" | tail -n 1)
  rate=$(sed -n 's/.*"'"$unit"'_per_second":\([0-9]*\).*/\1/p' "$work/metrics" | tail -n 1)
  jobs+=("$model $*: ${seconds:+$seconds, }${rate:-no} $unit/s")
  if late "$code"; then
    waiting+=("$model")
  elif ((code != 0)); then
    bad+=("$model: status $code: $(last_line "$work/log")")
  fi
}

stage_job() {
  [[ -z $data ]] || local -x TERN_DATA=$data
  [[ -x $tern ]] || { skip "the build has no ${tern##*/}"; return; }
  local texts=(--preset base --dtype bf16 --epochs 3) images=(--preset base --dtype bf16 --epochs 3)
  local jobs=() bad=() waiting=() most
  if ((bundle)) && [[ -f $TERN_DATA/reviews.csv ]]; then
    texts+=(--data "$TERN_DATA/reviews.csv" --split 35000/5000/10000 --max-length 512 --batch-tokens 16384)
  elif [[ -d ${TERN_DATA:-}/aclImdb ]]; then
    texts+=(--data imdb --split 35000/5000/10000 --batch-tokens 16384)
  else
    texts+=(--data sentences)
  fi
  if [[ -d ${TERN_DATA:-}/cifar-10-batches-bin ]]; then
    images+=(--data cifar10 --batch-size 64)
  else
    images=(--data digits --dtype bf16 --epochs 3)
  fi
  if ((quick)); then texts+=(--max-steps 300) images+=(--max-steps 100); fi
  if ((emulated)); then
    texts=(--preset tiny --dtype bf16 --data sentences --max-steps 2 --batch-tokens 64 --max-length 32)
    images=(--data digits --dtype bf16 --split 16/10/10 --max-steps 4 --batch-size 2)  # recorded from the third on
  fi
  most=$((($(left) + 1) / 2))
  train_job distilbert tokens "${texts[@]}"
  most=""
  train_job vit images "${images[@]}"
  note=$(joined "${jobs[@]}")
  if ((${#waiting[@]})); then incomplete "$note; out of time: $(joined "${waiting[@]}")"; fi
  if ((${#bad[@]})); then fail "$note; $(joined "${bad[@]}")"; fi
}

stage_compare() {
  [[ -z $data ]] || local -x TERN_DATA=$data
  [[ -x $train ]] || { skip "the build has no ${train##*/}"; return; }
  local python=${TERN_COMPARE_PYTHON:-python3} rows=train-base-32x512,train-base-12x512,infer-base-128x128 code
  local round rounds=2 side options=(--device cuda --dtype bf16 --seconds 5) bad=() waiting=()
  limited "$python" -c 'import torch, transformers; assert torch.cuda.is_available()' 2>"$work/log"
  code=$?
  late $code && { incomplete "out of time: $python has not imported PyTorch and transformers"; return; }
  ((code == 0)) || { skip "$python has no PyTorch with CUDA and transformers: $(last_line "$work/log")"; return; }
  if [[ -d ${TERN_DATA:-}/aclImdb && -d ${TERN_DATA:-}/bert-base-uncased ]]; then rows+=,imdb-base; fi
  rows+=,train-vit-64
  ((!quick)) || rounds=1
  for ((round = 1; round <= rounds; ++round)); do
    for side in tern pytorch; do
      (($(left) > 0)) || { waiting+=("$side, round $round"); continue; }
      if [[ $side == tern ]]; then
        ours "$train" --rows "$rows" "${options[@]}" --json - >"$work/said" 2>"$work/log"
      else
        limited "$python" "$root/bench/compare/pytorch_side.py" --rows "$rows" "${options[@]}" >"$work/said" 2>"$work/log"
      fi
      code=$?
      sed -n "s/^{\(.*\"name\".*}\)\$/{\"side\": \"$side\", \1/p" "$work/said" | tee -a "$work/compare" | cut -c 1-150
      if late $code; then
        waiting+=("$side, round $round")
      elif ((code != 0)); then
        bad+=("$side, round $round: status $code: $(last_line "$work/log")")
      elif grep -q '"error"' "$work/said"; then
        bad+=("$side, round $round: $(grep -m 1 -o '"error": *"[^"]*"' "$work/said")")
      fi
    done
  done
  note="$(($(wc -l <"$work/compare"))) measurements"
  if ((${#waiting[@]})); then incomplete "$note; out of time: $(joined "${waiting[@]}")"; fi
  if ((${#bad[@]})); then fail "$note; $(joined "${bad[@]}")"; fi
}

nsys_profile() {  # whether there is a table; prints it as CSV lines
  command -v nsys >/dev/null || { nsys_said="nsys is not installed"; return 1; }
  [[ -x $train ]] || { nsys_said="the build has no ${train##*/}"; return 1; }
  local started=$work/start-bench-train
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$libraries" "$train" >"$started" && chmod +x "$started"
  TERN_NVTX=1 limited nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o "$work/step" --force-overwrite true \
    "$started" --rows train-base-32x512 --device cuda --dtype bf16 --seconds 1 >"$work/log" 2>&1 &&
    limited nsys stats --report cuda_gpu_kern_sum --format csv "$work/step.nsys-rep" 2>>"$work/log" |
    grep -v '^$' | grep ',' | head -n 31 >"$work/table"
  [[ -s $work/table ]] && return
  nsys_said="nsys made no table: $(last_line "$work/log")"
  return 1
}

stage_profile() {
  local code nsys_said="" most=$((($(left) + 1) / 2))
  : >"$work/table"
  if nsys_profile; then
    note="$(($(wc -l <"$work/table") - 1)) kernels by nsys, as CSV lines"
  else
    [[ -x $tern ]] || { skip "$nsys_said; the build has no ${tern##*/}"; return; }
    local options=(--preset base --dtype bf16 --batch-tokens 16384 --max-steps 30)
    ((!emulated)) || options=(--preset tiny --dtype bf16 --batch-tokens 64 --max-length 32 --max-steps 4 --profile-steps 2)
    most=""
    ours "$tern" train distilbert --device cuda --data sentences "${options[@]}" --profile="$work/step" \
      --out "$work/run-profile" >"$work/log" 2>&1
    code=$?
    head -n 80 "$work/step.profile.txt" >"$work/table" 2>/dev/null
    note="$nsys_said; tern's own profile"
    ended $code "$note"
    if ((code == 0)) && [[ ! -s $work/table ]]; then fail "$note: there is no table"; fi
  fi
  cut -c 1-150 "$work/table" | head -n 24
  while IFS= read -r line; do quoted "$line" && echo; done <"$work/table" >"$work/profile"
}

# --- run the stages ---------------------------------------------------------------------------------------------------

commit=$(git -C "$root" rev-parse HEAD 2>/dev/null) changed=false
[[ -z $(git -C "$root" status --porcelain 2>/dev/null) ]] || changed=true
if ((bundle)); then commit=$(head -n 1 "$root/COMMIT" 2>/dev/null) changed=$(grep -q changed "$root/COMMIT" && echo true || echo false); fi
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
if [[ -z $out ]]; then
  short=$(printf '%s' "$gpu" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
  folder=$root/bench/gpu/results
  ((!bundle)) || folder=$root/results
  out=$folder/${now:0:10}-${short:-gpu}
  [[ $stages == "$all_stages" ]] || out+=-${stages//,/-}
  out+=.json
fi

memory=$(query memory.total) state=$(query clocks.sm,clocks.max.sm,power.draw,power.limit,temperature.gpu)

save() {  # writes the stages so far; after an interruption only the current stage is lost
  local name separator=""
  mkdir -p "$(dirname "$out")" && {
    printf '{"about": {"date": "%s", "commit": "%s", "uncommitted": %s,\n' "$now" "$commit" $changed
    printf '"gpu": %s, "driver": %s, "compute_capability": %s, "gpu_memory": %s, "gpu_state": %s,\n' \
      "$(quoted "$gpu")" "$(quoted "$driver")" "$(quoted "$capability")" "$(quoted "$memory")" "$(quoted "$state")"
    printf '"processor": %s, "cores": %d, "system": %s, "quick": %s, "emulated": %s, "bundle": %s,\n' \
      "$(quoted "$processor")" "$(nproc)" "$(quoted "$(uname -srm)")" "$(truth $quick)" "$(truth $emulated)" \
      "$(truth $bundle)"
    printf '"tern": %s},\n"stages": [\n' "$(quoted "$(cat "$work/info" 2>/dev/null)")"
    for name in ${names[@]+"${names[@]}"}; do printf '%s' "$separator" && cat "$work/$name.json" && separator=$',\n'; done
    printf '\n]}\n'
  } >"$out.part" && mv "$out.part" "$out" || { echo "check.sh: $out cannot be written; --out FILE names another place" >&2; exit 1; }
}

save  # fails before the first stage if the file cannot be written
for stage in ${stages//,/ }; do
  case $stage in  # seconds, and those of --quick, which sum to less than 10 minutes
    tests) run_stage tests $((quick ? 90 : 150)) ;;
    large) run_stage large $((quick ? 60 : 90)) ;;
    kernels) run_stage kernels $((quick ? 110 : 300)) ;;
    sanitizer) run_stage sanitizer $((quick ? 120 : 560)) ;;
    job) run_stage job $((quick ? 70 : 240)) ;;
    compare) run_stage compare $((quick ? 90 : 240)) ;;
    profile) run_stage profile $((quick ? 40 : 70)) ;;
    ctest) run_stage ctest $((quick ? 60 : 3600)) ;;
  esac
  save
done

printf '\n%s, driver %s, commit %s, %s\n' "${gpu:-GPU}" "${driver:-unknown}" "${commit:0:12}" "$now"
printf '%s\n' "${lines[@]}"
echo "saved: $out"
! printf '%s\n' "${lines[@]}" | grep -qE '^[a-z]+ +failed ' || exit 1
! printf '%s\n' "${lines[@]}" | grep -qE '^[a-z]+ +incomplete ' || exit 3
