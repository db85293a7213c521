#!/usr/bin/env bash
# check_ptx.sh [--update] [ROOT]: compiles every kernels/cuda/*.cu with nvcc for sm_90a and looks at what ptxas made of
# each kernel. Fails when one spills registers, or when the table of registers, static shared memory and stack differs
# from kernels/cuda/resources.md; --update writes that table. Without nvcc (NVCC, or /usr/local/cuda/bin/nvcc, or from
# PATH) it says so and succeeds.
set -euo pipefail

update=0
if [[ ${1:-} == --update ]]; then
  update=1
  shift
fi
root=$(cd "${1:-$(dirname "$0")/..}" && pwd)
cd "$root"
table=kernels/cuda/resources.md
arch=sm_90a

nvcc=${NVCC:-}
[[ -n $nvcc ]] || nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc || true)
if [[ -z $nvcc ]]; then
  echo "skipped: nvcc is not installed"
  exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ln -s "$root" "$scratch/tern"

compile() {  # FILE: its ptxas report in the scratch folder
  local name log
  name=$(basename "$1" .cu)
  log=$scratch/$name.log
  if ! "$NVCC" -std=c++20 -O3 --expt-relaxed-constexpr --extended-lambda -arch="$ARCH" -Xptxas -v -I "$SCRATCH" \
    -cubin -o "$SCRATCH/$name.cubin" "$1" >"$SCRATCH/$name.log" 2>&1; then
    echo "$1: does not compile"
    cat "$SCRATCH/$name.log"
    return 1
  fi
}
export -f compile
export NVCC=$nvcc ARCH=$arch SCRATCH=$scratch
find kernels/cuda -maxdepth 1 -name '*.cu' -print0 | sort -z | xargs -0 -r -n 1 -P "$(nproc)" bash -c 'compile "$0"'

# ptxas reports, per kernel: "Compiling entry function 'NAME'", "N bytes stack frame, N bytes spill stores, N bytes spill
# loads", "Used N registers, used N barriers, N bytes smem".
report() {
  local log
  for log in "$scratch"/*.log; do
    [[ -e $log ]] || continue
    awk -v file="$(basename "$log" .log).cu" '
      /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
      /bytes stack frame/ && name != "" {
        for (i = 1; i < NF; ++i) {
          if ($(i + 1) == "bytes" && $(i + 2) ~ /^stack/) stack = $i
          if ($(i + 1) == "bytes" && $(i + 2) == "spill") spill += $i
        }
      }
      /Used [0-9]+ registers/ && name != "" {
        shared = 0
        for (i = 1; i <= NF; ++i) {
          if ($i ~ /^registers/) registers = $(i - 1)
          if ($i ~ /^smem/) shared = $(i - 2)
        }
        printf "%s\t%s\t%d\t%d\t%d\t%d\n", file, name, registers, shared, stack, spill
        name = ""
        spill = stack = 0
      }' "$log"
  done | c++filt -p |
    sed -e 's/tern::kernels::cuda:://g; s/tern::kernels:://g; s/tern:://g; s/(anonymous namespace):://g' |
    LC_ALL=C sort
}
report >"$scratch/report"

{
  cat <<END
# What the CUDA kernels use

Made by \`cmake/check_ptx.sh --update\`: registers a thread, bytes of static shared memory a block and bytes of stack a
thread, as ptxas reports them for $arch with CUDA $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'). No kernel may spill registers.

| File | Kernel | Registers | Shared | Stack |
|---|---|--:|--:|--:|
END
  awk -F '\t' '{ printf "| %s | `%s` | %d | %d | %d |\n", $1, $2, $3, $4, $5 }' "$scratch/report"
} >"$scratch/table"

status=0
awk -F '\t' '$6 > 0 { printf "%s: %s spills %d bytes\n", $1, $2, $6; bad = 1 } END { exit bad }' "$scratch/report" || status=1
if ((update)); then
  cp "$scratch/table" "$table"
  echo "$table: $(wc -l <"$scratch/report") kernels"
elif ! diff -u "$table" "$scratch/table"; then
  echo "$table is out of date: look at the difference, then run cmake/check_ptx.sh --update"
  status=1
fi
exit "$status"
