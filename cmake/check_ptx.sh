#!/usr/bin/env bash
# check_ptx.sh [--update] [--all] [ROOT]: compiles every .cu file of kernels/cuda with nvcc for sm_90a and checks each kernel's
# PTX and ptxas report; then the attention kernels for sm_80, or with --all all kernels for sm_80, sm_100 and sm_120,
# where they must not spill registers either (--all takes about twice the time; it must pass before a release).
# check_ptx.sh --only PATTERN [ROOT]: only the second part, for the files whose names match.
#
# Fails if a kernel spills registers, if one that requires 16-byte accesses has none, if ptxas inserts waits between a
# kernel's wgmma instructions ("serialized": it sees uses of their registers), or if the tables in
# kernels/cuda/resources.md (registers, shared memory, stack, 16-byte accesses, occupancy; the forms of instructions
# that the emulator reimplements) are out of date; --update writes them. The kernels of CUB, instantiated in cub.cu, are
# NVIDIA's and are left out. Fails without nvcc (CUDA_HOME, PATH or /usr/local/cuda).
set -euo pipefail

update=0 only="" others_alone=0 others_of=attention others=80
every="80 100 120"  # the other architectures that the kernels are compiled for, by the build or by drivers
while [[ ${1:-} == --* ]]; do
  case $1 in
    --update) update=1 ;;
    --all) others_of="" others=$every ;;
    --only) only=${2?--only needs a pattern of file names} others_alone=1 others=$every && shift ;;
    *) echo "unknown option $1" >&2 && exit 2 ;;
  esac
  shift
done
root=$(cd "${1:-$(dirname "$0")/..}" && pwd)
cd "$root"
table=kernels/cuda/resources.md

# Kernels that require 16-byte accesses: patterns of "FILE KERNEL" and the accesses that each instance must have.
vectorised=(
  'both ^pointwise/float[a-z_]*.cu (Forward|Backward)Body'
  'both ^copy.cu elementwise_kernel<[^d].*Identity'  # but doubles
  'both ^softmax/softmax.cu softmax_'
  'both ^norm.cu layer_norm_'
  'both ^dropout.cu dropout_kernel'
  'both ^softmax/cross_entropy.cu cross_entropy_backward'
  'loads ^softmax/cross_entropy.cu cross_entropy_kernel'
  'both ^optimizer/optimizer.cu ^(update|scale|average)_kernel'
  'loads ^optimizer/gradient_norm.cu block_norm_kernel'
  'loads ^(gemm/linear|reduce/column_sum).cu column_parts_kernel'
  'loads ^reduce/(float|half|integer|arg_extreme).cu reduce_kernel<.*ReduceAccess\)[12]'
  'both ^convolution/depthwise.cu depthwise_kernel<.*, [48],'  # but doubles and single channels
  'loads ^attention/(forward|backward)(_sm90)?.cu flash_'
)

nvcc=$(PATH=${CUDA_HOME:+$CUDA_HOME/bin:}$PATH:/usr/local/cuda/bin command -v nvcc || true)
if [[ -z $nvcc ]]; then
  echo "nvcc is not installed: nothing was checked"
  exit 1
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The commands are those of the preset ci-cuda, which makes ptxas report and keeps the PTX as text, with the same paths,
# so that ccache shares results: a file compiled by that build takes a second here, and vice versa.
build=$root/build/ci-cuda
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1
if ! cmake --preset ci-cuda >"$scratch/configured" 2>&1; then
  cat "$scratch/configured"
  exit 1
fi
ninja -C "$build" -t commands kernels/libtern_cuda_kernels.a | grep ' -x cu -c ' >"$scratch/commands"
(cd kernels && find cuda -type d) | while read -r folder; do mkdir -p "$build/kernels/CMakeFiles/tern_cuda_kernels.dir/$folder"; done

name_of() {  # COMMAND: prints its file's path below kernels/cuda, with - for /
  sed 's|.*/kernels/cuda/\([a-z_0-9/]*\)\.cu -o .*|\1|; s|/|-|g' <<<"$1"
}
file_of() { echo "${1//-//}.cu"; }  # NAME
export -f name_of file_of

compile() {  # COMMAND: writes the object with its PTX as text, and the ptxas report, to the scratch folder
  local name
  name=$(name_of "$1")
  if ! (cd "$BUILD" && eval "$(sed "s| -o [^ ]*| -o '$SCRATCH/$name.o'|" <<<"$1")") >"$SCRATCH/$name.log" 2>&1; then
    echo "$(file_of "$name"): does not compile"
    cat "$SCRATCH/$name.log"
    return 1
  fi
  strings -n 4 "$SCRATCH/$name.o" >"$SCRATCH/$name.ptx"
}
export -f compile
export BUILD=$build SCRATCH=$scratch

compile_others() {  # COMMAND: prints the kernels that spill on $others
  local name target targets=""
  name=$(name_of "$1")
  for target in $OTHERS; do targets+=" --generate-code=arch=compute_$target,code=sm_$target"; done
  if ! (cd "$BUILD" && eval "$(sed -E "s| -o [^ ]*| -o '$SCRATCH/$name.others.o'|; s| \"?--generate-code=[^ ]*||g; s| -c |$targets -c |" <<<"$1")") \
    >"$SCRATCH/$name.others" 2>&1; then
    echo "$(file_of "$name"): does not compile for sm_${OTHERS// /, sm_}"
    cat "$SCRATCH/$name.others"
    return 1
  fi
  awk -v file="$(file_of "$name")" -v targets="$OTHERS" '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; target = part[4]; ++seen[target] }
    /bytes spill stores/ {
      for (i = 1; i < NF; ++i) if ($i + 0 > 0 && $(i + 1) == "bytes" && $(i + 2) == "spill") bytes += $i
      if (bytes > 0 && file != "cub.cu") {
        printf "%s: %s spills %d bytes on %s\n", file, kernel, bytes, target
        bad = 1
      }
      bytes = 0
    }
    END {
      n = split(targets, wanted, " ")
      for (i = 1; i <= n; ++i)
        if (kernel && !seen["sm_" wanted[i]] && file != "cub.cu") { printf "%s: no kernel for sm_%s\n", file, wanted[i]; bad = 1 }
      exit bad
    }' "$SCRATCH/$name.others" | c++filt
  return "${PIPESTATUS[0]}"
}
export -f compile_others
export OTHERS=$others

each_command() {  # FUNCTION COMMANDS
  tr '\n' '\0' <"$2" | xargs -0 -r -n 1 -P "$(nproc)" bash -c "$1"' "$0"'
}
select_files() { grep -E "/kernels/cuda/[a-z_0-9/]*($1)[a-z_0-9/]*\.cu -o " "$scratch/commands" >"$scratch/chosen"; }

if ((others_alone)); then
  select_files "$only" || { echo "no file of kernels/cuda matches $only" && exit 2; }
  each_command compile_others "$scratch/chosen"
  exit
fi
each_command compile "$scratch/commands"
status=0
select_files "$others_of"
each_command compile_others "$scratch/chosen" || status=1

# ptxas reports, per kernel: "Compiling entry function 'NAME'", "N bytes stack frame, N bytes spill stores, N bytes spill
# loads", "Used N registers, used N barriers, N bytes smem". The PTX has ".entry NAME(", ".maxntid N, 1, 1" from the
# launch bounds, and the accesses; copies to shared memory (cp.async) of 16 bytes are loads too.
report() {
  local log
  for log in "$scratch"/*.log; do
    [[ -e $log ]] || continue
    awk -v file="$(file_of "$(basename "$log" .log)")" '
      FNR == 1 { ++input }
      input == 1 && /Compiling entry function/ { split($0, part, "\047"); name = part[2]; kernels[++count] = name }
      input == 1 && /bytes stack frame/ && name != "" {
        for (i = 1; i < NF; ++i) {
          if ($(i + 1) == "bytes" && $(i + 2) ~ /^stack/) stack[name] = $i
          if ($(i + 1) == "bytes" && $(i + 2) == "spill") spill[name] += $i
        }
      }
      input == 1 && /Used [0-9]+ registers/ && name != "" {
        for (i = 1; i <= NF; ++i) {
          if ($i ~ /^registers/) registers[name] = $(i - 1)
          if ($i ~ /^smem/) shared[name] = $(i - 2)
        }
        name = ""
      }
      input == 2 && /^(\.visible |\.weak )*\.(entry|func) / {
        name = ""
        if (match($0, /_Z[A-Za-z0-9_$]*\($/)) name = substr($0, RSTART, RLENGTH - 1)
      }
      input == 2 && /^\.maxntid/ { split($2 " " $3 " " $4, n, /[, ]+/); threads[name] = n[1] * n[2] * n[3] }
      input == 2 && /(^|[ \t])ld\.global[a-z.A-Z0-9:_]*\.(v4\.[busf]32|v2\.[busf]64)/ { ++loads[name] }
      input == 2 && /cp\.async\.c[ag]\.shared\.global/ && /, 16/ { ++loads[name] }
      input == 2 && /(^|[ \t])st\.global[a-z.A-Z0-9:_]*\.(v4\.[busf]32|v2\.[busf]64)/ { ++stores[name] }
      END {
        for (i = 1; i <= count; ++i) {
          name = kernels[i]
          printf "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", file, name, registers[name], shared[name], stack[name],
                 spill[name], loads[name], stores[name], threads[name]
        }
      }' "$log" "${log%.log}.ptx"
  done | c++filt -p | grep -vP '\t(void )?cub::' |
    sed -e 's/tern::kernels::cuda:://g; s/tern::kernels:://g; s/tern:://g; s/(anonymous namespace):://g' |
    LC_ALL=C sort
}

# Blocks per multiprocessor of sm_90, limited by threads (2048), registers (65536, allocated by 256 per warp), shared
# memory (228 KB; each block takes 1 KB more than it uses) and number (32), and the resulting share of its 64 warps. The
# flash kernels' dynamic shared memory follows from the head dimension (Shape::kElements, 2 bytes each, and
# QueryColumns); layer norm's is computed for 768 columns.
add_occupancy() {
  awk -F '\t' -v OFS='\t' '
    function least(a, b) { return a < b ? a : b }
    function dynamic_shared(kernel, dim, wide, parts) {
      if (kernel ~ /flash_/) {
        split(kernel, parts, /, /)
        dim = parts[2] + 0
        if (kernel ~ /flash_forward_sm90/) return 2 * dim * (128 + 4 * 64)
        if (kernel ~ /_sm90/) {
          wide = dim <= 64 ? 64 : 32
          return 2 * dim * (2 * 128 + 4 * wide) + (kernel ~ /dkv/ ? 2 * wide * 16 : 0)
        }
        if (kernel ~ /flash_forward/) return 2 * (dim + 8) * ((dim <= 64 ? 128 : 64) + 4 * 64)
        return 2 * (dim + 8) * (2 * 64 + 4 * (dim <= 64 ? 64 : 32))
      }
      wide = kernel ~ /<double/ ? 8 : 4
      if (kernel ~ /layer_norm_(backward_)?kernel/) return (kernel ~ /backward/ ? 1 : 2) * 768 * wide
      return 0
    }
    {
      if ($9 == 0) { print $0, "-", "-"; next }
      warps = int(($9 + 31) / 32)
      warp_registers = int(($3 * 32 + 255) / 256) * 256
      blocks = least(32, int(64 / warps))
      blocks = least(blocks, int(int(65536 / warp_registers) / warps))
      blocks = least(blocks, int(233472 / ($4 + dynamic_shared($2) + 1024)))
      print $0, blocks, int(100 * blocks * warps / 64 + 0.5) " %"
    }'
}
report | add_occupancy >"$scratch/report"

# The instructions that support/ writes as PTX, one line per form in a file: register numbers and offsets are removed,
# lists of registers are counted. The emulator reimplements them and does not execute this text, so this check is the
# only one.
instructions() {
  local ptx
  for ptx in "$scratch"/*.ptx; do
    [[ -e $ptx && $(basename "$ptx") != cub.ptx ]] || continue
    { grep -hoE '(wgmma|mma\.sync|ldmatrix|cp\.async|fence\.proxy|ex2\.)[^;]*;' "$ptx" || true; } |
      awk -v file="$(file_of "$(basename "$ptx" .ptx)")" '{
        gsub(/%[a-z]+[0-9]+/, "%"); gsub(/\+[0-9]+\]/, "]"); gsub(/[ \t]+/, " ")
        while (match($0, /%(, ?%)+/)) {
          before = substr($0, 1, RSTART - 1); list = substr($0, RSTART, RLENGTH); after = substr($0, RSTART + RLENGTH)
          count = gsub(/%/, "", list)
          $0 = before count " registers" after
        }
        printf "| %s | `%s` |\n", file, $0
      }'
  done | LC_ALL=C sort -u
}

{
  cat <<END
# What the CUDA kernels use

Made by \`cmake/check_ptx.sh --update\`: registers a thread, bytes of static shared memory a block and bytes of stack a
thread, as ptxas reports them for sm_90a with CUDA $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'); 16-byte loads and stores of global memory in the PTX
(in the code, not as executed); threads a block by the launch bounds; blocks that fit on one multiprocessor of sm_90 and
the occupancy that makes (with the flash kernels' dynamic shared memory, and layer norm's at 768 columns). No kernel may
spill registers, nor any on sm_80, sm_100 and sm_120 (those of attention are checked in every run, the others by --all).

| File | Kernel | Registers | Shared | Stack | 16-byte loads | 16-byte stores | Threads | Blocks | Occupancy |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|
END
  awk -F '\t' '{ printf "| %s | `%s` | %d | %d | %d | %d | %d | %s | %s | %s |\n", $1, $2, $3, $4, $5, $7, $8,
                 $9 ? $9 : "-", $10, $11 }' "$scratch/report"
  cat <<END

## Instructions written as PTX

Each form of them in a file's PTX. The emulator runs a twin of every one and cannot see the text: a change here is looked
up in the manual.

| File | Instruction |
|---|---|
END
  instructions
} >"$scratch/table"

awk -F '\t' '$6 > 0 { printf "%s: %s spills %d bytes\n", $1, $2, $6; bad = 1 } END { exit bad }' "$scratch/report" || status=1
if grep -H -i 'wgmma.*serialized' "$scratch"/*.log | sed "s|$scratch/||; s|-|/|; s|\\.log:|.cu: |"; then status=1; fi
for promise in "${vectorised[@]}"; do
  read -r what file kernel <<<"$promise"
  awk -F '\t' -v what="$what" -v file="$file" -v kernel="$kernel" '
    $1 ~ file && $2 ~ kernel {
      found = 1
      if (what != "stores" && $7 == 0) { printf "%s: %s has no 16-byte loads\n", $1, $2; bad = 1 }
      if (what != "loads" && $8 == 0) { printf "%s: %s has no 16-byte stores\n", $1, $2; bad = 1 }
    }
    END {
      if (!found) printf "no kernel matches %s %s: mend the list in cmake/check_ptx.sh\n", file, kernel
      exit bad || !found
    }' "$scratch/report" || status=1
done
if ((update)); then
  cp "$scratch/table" "$table"
  echo "$table: $(wc -l <"$scratch/report") kernels"
elif ! diff -u "$table" "$scratch/table"; then
  echo "$table is out of date: look at the difference, then run cmake/check_ptx.sh --update"
  status=1
fi
exit "$status"
