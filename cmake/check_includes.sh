#!/usr/bin/env bash
# check_includes.sh floors|headers [ROOT]
#   floors   every include names an existing file, is written "tern/...", and does not point to a higher floor
#   headers  every header compiles alone, and when included twice (CXX, default g++). A header with #pragma once that is
#            the first include of a source file is checked when that file is compiled, with the program and its tests
# Prints one line per violation and exits with 1 if there is any.
set -euo pipefail

mode=${1:-}
root=$(cd "${2:-$(dirname "$0")/..}" && pwd)
cd "$root"

floors=()
for floor in kernels core nn optim data dist models tests bench; do
  [[ ! -d $floor ]] || floors+=("$floor")
done
sources() {  # files with the given name endings, separated by NUL
  local names=() ending
  for ending in "$@"; do names+=(-o -name "*.$ending"); done
  find "${floors[@]}" -type f \( "${names[@]:1}" \) -print0 | sort -z
  [[ ! -f tern.h ]] || printf 'tern.h\0'
  [[ ! -f tern_c.h ]] || printf 'tern_c.h\0'
}

check_floors() {
  sources h cpp cu cuh inc | xargs -0 -r awk '
    BEGIN {
      core = below["kernels"] = "kernels"
      count = split("device memory tensor io interop profiler autograd ops graph", inner)  # from the lowest
      for (i = 1; i <= count; ++i) core = below["core/" inner[i]] = "core/" inner[i] " " core
      below["nn"] = "nn " core
      below["optim"] = "optim " core
      data = core
      count = split("files hub,plan samples tokenizers,images datasets loaders transforms", inner)  # likewise
      for (i = 1; i <= count; ++i) {
        sides = split(inner[i], side, ",")  # which do not include one another
        for (j = 1; j <= sides; ++j) below["data/" side[j]] = "data/" side[j] " " data
        for (j = 1; j <= sides; ++j) data = "data/" side[j] " " data
      }
      below["data/without"] = "data/without " data  # in place of some files of the others
      below["dist"] = "dist nn optim " data
      below["tern_c.h"] = "tern_c.h"
      below["tern.h"] = "models " below["dist"]
      below["models"] = cli = "tern_c.h " below["tern.h"]
      count = split("/options /launch /run /commands", inner)  # of the program, whose main file is the highest
      for (i = 1; i <= count; ++i) cli = below["models/cli" inner[i]] = "models/cli" inner[i] " " cli
      below["models/cli"] = "models/cli " cli
      below["tests"] = "tests bench " below["models/cli"]
      below["bench"] = "bench " below["models"]
      # A program is linked with one of these two, and nothing else includes them.
      count = split("cuda no_cuda", either)
      for (i = 1; i <= count; ++i) {
        below["core/" either[i]] = "core/" either[i] " " core
        below["dist/" either[i]] = "dist/" either[i] " core/" either[i] " " below["dist"]
      }
    }
    function report(message) {
      printf "%s:%d: %s\n", FILENAME, FNR, message
      bad = 1
    }
    function exists(path,   line, found) {
      found = (getline line < path) >= 0
      close(path)
      return found
    }
    # The floors of core, data and models/cli are their folders; core/tensor.h, whose path is public, belongs to
    # core/tensor, and a file of models/cli itself stands above the folders.
    function floor_of(path,   parts, depth) {
      if (path == "core/tensor.h") return "core/tensor"
      depth = split(path, parts, "/")
      if (parts[1] "/" parts[2] == "models/cli")
        return depth == 3 ? "models/cli" : "models/cli/" parts[3]
      return parts[1] ~ /^(core|data)$/ || (parts[1] "/" parts[2]) in below ? parts[1] "/" parts[2] : parts[1]
    }
    FNR == 1 {
      floor = floor_of(FILENAME)
      if (!(floor in below)) {
        match(floor, "/[^/]*$")
        report(substr(floor, 1, RSTART - 1) " has no floor " substr(floor, RSTART + 1) \
               "; its files are in the folders of its floors")
      }
    }
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
      sub(/\r$/, "")
      bracket = ($0 ~ /include[ \t]*</)
      name = $0
      sub(/^[^<"]*[<"]/, "", name)
      sub(/[>"].*$/, "", name)
      if (name ~ /^(cuda|cublas|cudnn)/ && floor !~ /^(kernels|core\/cuda|tests|bench)$/)
        report("no CUDA header may be seen from " floor ": " name)
      if (bracket && name !~ /^tern\//) next
      if (bracket || name !~ /^tern\//) {
        report("write the include as \"tern/...\": " $0)
        next
      }
      target = substr(name, 6)
      if (!exists(target)) {
        report("no such file: " target)
        next
      }
      other = floor_of(target)
      if (other == "tern.h" && (floor == "tests" || floor == "bench")) next
      if (index(" " below[floor] " ", " " other " ") == 0)
        report(floor " may not include " other ": " name)
    }
    END { exit bad }'
}

check_headers() {
  local scratch status=0
  # ccache finds a file again in the same place of a clone.
  if [[ -d build ]]; then
    scratch=$root/build/headers
    rm -rf "$scratch"
    mkdir "$scratch"
  else
    scratch=$(mktemp -d)
  fi
  ln -s "$root" "$scratch/tern"
  export TERN_LAUNCHER="" CCACHE_BASEDIR=$root CCACHE_DEPEND=1
  ! command -v ccache >/dev/null || TERN_LAUNCHER=ccache
  export TERN_HEADER_SCRATCH=$scratch
  # Programs of benchmarks may not be built together with the tests.
  find "${floors[@]}" -path "bench/*/*" -prune -o \( -name '*.cpp' -o -name '*.cu' \) -print0 |
    xargs -0 -r awk '/^#include/ { if (match($0, /"tern\/[^"]*"/)) print substr($0, RSTART + 6, RLENGTH - 7); nextfile }' \
      >"$scratch/first"
  # kernels/cpu is compiled once per level, whose name is a macro; kernels/cuda is compiled for the emulator.
  sources h | xargs -0 -r -n 1 -P "$(nproc)" bash -c '
    if grep -q "^#pragma once" "$0" && grep -qxF "$0" "$TERN_HEADER_SCRATCH/first"; then
      exit 0
    fi
    flags=()
    [[ $0 != kernels/cpu/* ]] || flags=(-DTERN_CPU=cpu_v3 -DTERN_CPU_v3 -march=x86-64-v3)
    [[ $0 != tests/* ]] || flags=(-DTERN_PROGRAM=\"\")
    if [[ $0 == tests/emulator/* && $0 != tests/emulator/simt/* || $0 == */cublaslt.h || $0 == kernels/cuda/*cudnn*.h ]]; then  # needs NVIDIA'"'"'s headers, which not every machine has
      cuda=${CUDA_PATH:-/usr/local/cuda}/include
      [[ -e $cuda/cuda_runtime_api.h ]] || exit 0
      flags=(-isystem "$cuda" -DTERN_SIMT=1 -DSIMT_WITH_CUDA_HEADERS -include tests/emulator/simt/simt.h)
    fi
    [[ $0 != kernels/cuda/* ]] || flags+=(-DTERN_SIMT=1 -Wno-unknown-pragmas -include tests/emulator/simt/simt.h)
    file=$TERN_HEADER_SCRATCH/${0//\//-}
    printf "#include \"tern/%s\"\n" "$0" "$0" >"$file.cpp"
    if ! $TERN_LAUNCHER "${CXX:-g++}" -std=c++20 -Wall -Wextra -Wno-unused-parameter -Werror \
        "${flags[@]}" -DTERN_CPU_HAS_V2=1 -DTERN_CPU_HAS_V3=1 -DTERN_CPU_HAS_V4=1 -I "$TERN_HEADER_SCRATCH" \
        -isystem /usr/include/eigen3 -MD -MF "$file.d" -c "$file.cpp" -o "$file.o" >"$file.log" 2>&1; then
      printf "%s: does not compile alone\n%s\n" "$0" "$(head -n 20 "$file.log")"
      exit 1
    fi' || status=1
  rm -rf "$scratch"
  return "$status"
}

case $mode in
  floors) check_floors ;;
  headers) check_headers ;;
  *)
    echo "usage: check_includes.sh floors|headers [ROOT]" >&2
    exit 2
    ;;
esac
