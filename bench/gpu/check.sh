#!/usr/bin/env bash
# check.sh: everything that wants a GPU, in one command. Prints a short table and leaves one JSON file.
#
#   bench/gpu/check.sh --make              builds with CUDA for this machine's GPU in build/cuda, then checks
#   bench/gpu/check.sh --build DIR         checks a finished build (also one made elsewhere and carried here)
#     --quick            under 10 minutes: shorter runs, fewer programs under the sanitizer
#     --stages LIST      of tests,ctest,sanitizer,kernels,job,compare,nsys (default: all but ctest)
#     --out FILE         the JSON file (default: bench/gpu/results/DATE-GPU.json)
#     --emulated         on no GPU: runs the emulated device of a build without CUDA on tiny shapes, to try this script
#
#   tests      every cuda_* test on the device         ctest    all tests of the build folder
#   sanitizer  compute-sanitizer's four tools on cuda_* tests and on every kernel at tiny shapes
#   kernels    every kernel's time, rate and share of what the device can do, beside its budget
#   job        tern train distilbert (DistilBERT base) on IMDB where TERN_DATA has it, otherwise on sentences
#   compare    training steps in turn with PyTorch and transformers (TERN_COMPARE_PYTHON: a Python that has them)
#   nsys       the kernels of a training step by time, from Nsight Systems
#
# A stage that fails, or whose tool is missing, is reported and the others go on; each has a time limit. A build to be
# carried is configured with -DTERN_CUDA=ON -DTERN_BUILD_TESTS=ON -DTERN_BUILD_BENCH=ON
# -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON and brings bin/ and lib/; libraries that the other machine lacks go into lib/.
# Exit status: 0 all stages are ok or were skipped for want of a tool, 1 one failed or there is no GPU, 2 wrong usage.
set -uo pipefail
exec </dev/null
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
stages=tests,sanitizer,kernels,job,compare,nsys
build="" make=0 quick=0 emulated=0 out=""

usage() {
  printf 'check.sh: %s\n' "$1" >&2
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0" | sed -n '3,9p' >&2
  exit 2
}
while (($#)); do
  case $1 in
    --build | --stages | --out) (($# > 1)) || usage "$1 needs a value" ;;&
    --build) build=$2 && shift ;;
    --stages) stages=$2 && shift ;;
    --out) out=$2 && shift ;;
    --make) make=1 ;;
    --quick) quick=1 ;;
    --emulated) emulated=1 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) usage "unknown argument '$1'" ;;
  esac
  shift
done
for stage in ${stages//,/ }; do
  [[ " tests ctest sanitizer kernels job compare nsys " == *" $stage "* ]] || usage "unknown stage '$stage'"
done

# --- the GPU and the build --------------------------------------------------------------------------------------------

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
  [[ -n $capability ]] || { echo "check.sh: nvidia-smi does not tell the GPU's architecture" >&2; exit 1; }
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
[[ -n $build ]] || usage "give --make or --build DIR"
[[ -d $build/bin ]] || { echo "check.sh: $build/bin: no such folder" >&2; exit 1; }
build=$(cd "$build" && pwd) suffix=""
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if ((emulated)); then
  suffix=-emulated
  export LD_LIBRARY_PATH=$build/lib/standin:$LD_LIBRARY_PATH TERN_BENCH_TINY=1
fi
tern=$build/bin/tern$suffix kernels=$build/bin/tern-bench-kernels$suffix train=$build/bin/tern-bench-train$suffix

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [[ -x $tern ]] && ! timeout 120 "$tern" info --device cuda >"$work/info" 2>&1; then
  echo "check.sh: $(tail -n 1 "$work/info")" >&2
  echo "check.sh: $tern cannot use the GPU: nothing was checked" >&2
  exit 1
fi

# --- JSON and stages --------------------------------------------------------------------------------------------------

quoted() {  # TEXT: as a JSON string
  local text=$1
  text=$(printf '%s' "$text" | tr -d '\000-\010\013\014\016-\037' | iconv -c -f UTF-8 -t UTF-8 2>/dev/null)
  text=${text//\\/\\\\} text=${text//\"/\\\"} text=${text//$'\t'/\\t} text=${text//$'\r'/} text=${text//$'\n'/\\n}
  printf '"%s"' "$text"
}
list() { printf '[\n%s\n]' "$(sed '$!s/$/,/' "$1")"; }  # FILE of one JSON value a line
last_line() { tail -n 1 "$1" 2>/dev/null | cut -c 1-300; }

deadline=0
limited() {  # COMMAND...: within what is left of the stage's time
  local left=$((deadline - SECONDS))
  ((left > 0)) || return 124
  timeout -k 10 "$left" "$@"
}

# A stage sets `status` (ok, failed, skipped) and `note`, and writes JSON values to "$work/STAGE", one a line.
names=() lines=()
run_stage() {  # NAME SECONDS
  local name=$1 started=$SECONDS
  printf '\n=== %s (at most %d s)\n' "$name" "$2"
  deadline=$((SECONDS + $2)) status=ok note=""
  : >"$work/$name"
  "stage_$name"
  names+=("$name")
  lines+=("$(printf '%-10s %-8s %5d s  %s' "$name" "$status" $((SECONDS - started)) "$note")")
  printf '{"stage": "%s", "status": "%s", "seconds": %d, "note": %s,\n"results": %s}' "$name" "$status" \
    $((SECONDS - started)) "$(quoted "$note")" "$(list "$work/$name")" >"$work/$name.json"
}
skip() { status=skipped note=$1; }
fail() { status=failed note=$1; }
truth() { (($1)) && echo true || echo false; }
reason_of() { (($1 == 124 || $1 == 137)) && echo "out of time" || echo "status $1"; }  # STATUS

mapfile -t cuda_tests < <(find "$build/bin" -maxdepth 1 -name 'cuda_*_test' -type f -executable | sort)
joined() { local text && text=$(printf '%s; ' "$@") && printf '%s' "${text%; }"; }

stage_tests() {
  local program name code passed skipped failed failures total=0 bad=()
  for program in "${cuda_tests[@]}"; do
    name=${program##*/}
    limited "$program" >"$work/log" 2>&1
    code=$?
    passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/log")
    skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$work/log")
    failed=$(grep -c '^\[  FAILED  \] .*(.* ms)$' "$work/log")
    failures=$(grep -m 20 '^\[  FAILED  \] .*(.* ms)$' "$work/log")
    printf '%-32s %s passed, %s failed, %s skipped\n' "$name" "${passed:-0}" "$failed" "${skipped:-0}"
    printf '{"name": "%s", "status": %d, "passed": %d, "failed": %d, "skipped": %d, "failures": %s}\n' "$name" "$code" \
      "${passed:-0}" "$failed" "${skipped:-0}" "$(quoted "$failures")" >>"$work/tests"
    total=$((total + ${passed:-0}))
    if ((code != 0)); then
      bad+=("$name: $(reason_of $code)")
      tail -n 15 "$work/log"
    elif ((${skipped:-0} > 0 && ${passed:-0} == 0)); then
      bad+=("$name: all skipped")
    fi
  done
  note="$total tests passed"
  if [[ ! -s $work/tests ]]; then skip "the build has no cuda_* tests"; fi
  if ((${#bad[@]})); then fail "$note; $(joined "${bad[@]}")"; fi
}

stage_ctest() {
  [[ -f $build/CTestTestfile.cmake ]] && command -v ctest >/dev/null ||
    { skip "no ctest, or the build was carried"; return; }
  limited ctest --test-dir "$build" -LE slow --output-on-failure >"$work/log" 2>&1 || status=failed
  note=$(grep 'tests passed' "$work/log" || last_line "$work/log")
  grep -A 30 'The following tests FAILED' "$work/log"
  quoted "$note" >>"$work/ctest"
}

sanitize() {  # TOOL NAME COMMAND...
  local tool=$1 name=$2 code summary first
  shift 2
  limited compute-sanitizer --tool "$tool" --error-exitcode 99 --print-limit 20 "$@" >"$work/log" 2>&1
  code=$?
  summary=$(grep -o '\(ERROR\|RACECHECK\) SUMMARY: .*' "$work/log" | tail -n 1)
  first=$(grep -m 8 -A 6 '=========.*\(Invalid\|Error\|hazard\|Uninit\|Barrier\)' "$work/log")
  printf '%-10s %-32s %s\n' "$tool" "$name" "${summary:-$(reason_of $code)}"
  printf '{"tool": "%s", "name": "%s", "status": %d, "summary": %s, "first": %s}\n' "$tool" "$name" "$code" \
    "$(quoted "$summary")" "$(quoted "$first")" >>"$work/sanitizer"
  ((code == 0))
}

stage_sanitizer() {
  command -v compute-sanitizer >/dev/null || { skip "compute-sanitizer is not installed"; return; }
  local tool program bad=() tools=(memcheck racecheck initcheck synccheck)
  for tool in "${tools[@]}"; do
    [[ -x $kernels ]] || break
    TERN_BENCH_DEVICE=cuda TERN_BENCH_TINY=1 sanitize "$tool" "kernels, tiny" "$kernels" \
      --benchmark_filter=-wordpiece || bad+=("$tool: kernels")
  done
  for program in "${cuda_tests[@]}"; do
    for tool in "${tools[@]}"; do
      ((quick)) && [[ $tool != memcheck ]] && continue
      sanitize "$tool" "${program##*/}" "$program" || bad+=("$tool: ${program##*/}")
    done
  done
  note="$(wc -l <"$work/sanitizer") runs"
  if ((${#bad[@]})); then fail "$note; $(joined "${bad[@]}")"; fi
}

stage_kernels() {
  [[ -x $kernels ]] || { skip "the build has no ${kernels##*/}"; return; }
  local code
  TERN_BENCH_DEVICE=cuda TERN_BENCH_LINES=$work/kernels limited "$kernels" \
    --benchmark_filter="${TERN_CHECK_KERNELS:--wordpiece}" 2>"$work/log"
  code=$?
  sed -i '/}$/!d' "$work/kernels"  # a line cut short by the time limit
  note="$(grep -c seconds "$work/kernels") measured, $(grep -c '"met":false' "$work/kernels") below their budget"
  if ((code != 0)); then fail "$note; $(reason_of $code): $(last_line "$work/log")"; fi
}

stage_job() {
  [[ -x $tern ]] || { skip "the build has no ${tern##*/}"; return; }
  local options=(--preset base --dtype bf16 --epochs 3) code
  if [[ -d ${TERN_DATA:-}/aclImdb ]]; then
    options+=(--data imdb --split 35000/5000/10000)
  else
    options+=(--data sentences)
  fi
  if ((quick)); then options+=(--max-steps 300); fi
  if ((emulated)); then
    options=(--preset tiny --dtype bf16 --data sentences --max-steps 2 --batch-tokens 64 --max-length 32)
  elif [[ " ${options[*]} " == *" imdb "* ]]; then
    options+=(--batch-tokens 16384)
  fi
  limited "$tern" train distilbert --device cuda "${options[@]}" --out "$work/run" 2>&1 | tee "$work/log" | tail -n 4
  code=${PIPESTATUS[0]}
  grep '"train_seconds"' "$work/run/metrics.jsonl" >>"$work/job" 2>/dev/null
  if [[ -f $work/run/run.json ]]; then tr -d '\n' <"$work/run/run.json" >>"$work/job" && echo >>"$work/job"; fi
  note="${options[*]}: $(sed -n 's/.*"train_seconds":\([0-9.]*\).*/\1 s/p' "$work/job")"
  note+=", $(sed -n 's/.*"tokens_per_second":\([0-9]*\).*/\1 tokens\/s/p' "$work/job")"
  if ((code != 0)); then fail "$(reason_of "$code"): $(last_line "$work/log")"; fi
}

stage_compare() {
  [[ -x $train ]] || { skip "the build has no ${train##*/}"; return; }
  local python=${TERN_COMPARE_PYTHON:-python3} rows=train-base-32x512,train-base-12x512,infer-base-128x128 code
  limited "$python" -c 'import torch, transformers; assert torch.cuda.is_available()' 2>"$work/log" ||
    { skip "$python has no PyTorch with CUDA and transformers: $(last_line "$work/log")"; return; }
  if [[ -d ${TERN_DATA:-}/aclImdb && -d ${TERN_DATA:-}/bert-base-uncased ]]; then rows+=,imdb-base; fi
  limited "$python" "$root/bench/compare/compare.py" --tern "$train" --python "$python" --device cuda --dtype bf16 \
    --rows "$rows" --rounds $((quick ? 1 : 3)) --seconds $((quick ? 4 : 10)) --results "$work/results" 2>"$work/log"
  code=$?
  cat "$work"/results/*.json 2>/dev/null | tr -d '\n' >>"$work/compare"
  note=$(grep -c '^[a-z].*tokens/s' "$work/log")" measurements"
  if ((code != 0)); then fail "$(reason_of $code): $(last_line "$work/log")"; fi
}

stage_nsys() {
  command -v nsys >/dev/null || { skip "nsys is not installed"; return; }
  [[ -x $train ]] || { skip "the build has no ${train##*/}"; return; }
  TERN_NVTX=1 limited nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o "$work/step" --force-overwrite true \
    "$train" train-base-32x512 --device cuda --dtype bf16 --seconds 1 >"$work/log" 2>&1 &&
    limited nsys stats --report cuda_gpu_kern_sum --format csv "$work/step.nsys-rep" 2>>"$work/log" |
    grep -v '^$' | grep ',' | head -n 31 >"$work/step.csv"
  if [[ ! -s $work/step.csv ]]; then fail "nsys made no table: $(last_line "$work/log")"; return; fi
  cut -c 1-150 "$work/step.csv" | head -n 16
  while IFS= read -r line; do quoted "$line" && echo; done <"$work/step.csv" >"$work/nsys"
  note="$(($(wc -l <"$work/nsys") - 1)) kernels, as CSV lines"
}

# --- all of it --------------------------------------------------------------------------------------------------------

full=$((quick ? 1 : 4))  # the limits of --quick add up to less than 10 minutes
for stage in ${stages//,/ }; do
  case $stage in
    tests) run_stage tests $((90 * full)) ;;
    ctest) run_stage ctest $((quick ? 60 : 3600)) ;;
    sanitizer) run_stage sanitizer $((quick ? 150 : 1800)) ;;
    kernels) run_stage kernels $((120 * full)) ;;
    job) run_stage job $((60 * full)) ;;
    compare) run_stage compare $((90 * full)) ;;
    nsys) run_stage nsys $((40 * full)) ;;
  esac
done

commit=$(git -C "$root" rev-parse HEAD 2>/dev/null) changed=false
[[ -z $(git -C "$root" status --porcelain 2>/dev/null) ]] || changed=true
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
if [[ -z $out ]]; then
  short=$(printf '%s' "$gpu" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9-')
  out=$root/bench/gpu/results/${now:0:10}-${short:-gpu}.json
fi
mkdir -p "$(dirname "$out")" && {
  printf '{"about": {"date": "%s", "commit": "%s", "uncommitted": %s,\n' "$now" "$commit" $changed
  printf '"gpu": %s, "driver": %s, "compute_capability": %s, "gpu_memory": %s, "gpu_state": %s,\n' "$(quoted "$gpu")" \
    "$(quoted "$driver")" "$(quoted "$capability")" "$(quoted "$(query memory.total)")" \
    "$(quoted "$(query clocks.sm,clocks.max.sm,power.draw,power.limit,temperature.gpu)")"
  printf '"processor": %s, "cores": %d, "system": %s, "quick": %s, "emulated": %s,\n' "$(quoted "$processor")" \
    "$(nproc)" "$(quoted "$(uname -srm)")" "$(truth $quick)" "$(truth $emulated)"
  printf '"tern": %s},\n"stages": [\n' "$(quoted "$(cat "$work/info" 2>/dev/null)")"
  separator=""
  for name in "${names[@]}"; do printf '%s' "$separator" && cat "$work/$name.json" && separator=$',\n'; done
  printf '\n]}\n'
} >"$out.part" && mv "$out.part" "$out" || { echo "check.sh: $out cannot be written" >&2; exit 1; }

printf '\n%s, driver %s, commit %s, %s\n' "${gpu:-GPU}" "${driver:-unknown}" "${commit:0:12}" "$now"
printf '%s\n' "${lines[@]}"
echo "saved: $out"
! printf '%s\n' "${lines[@]}" | grep -qE '^[a-z]+ +failed '
