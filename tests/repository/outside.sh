#!/usr/bin/env bash
# outside.sh installed|subdirectory BUILD ROOT CMAKE: a project outside of the tree (outside/CMakeLists.txt) builds and
# runs the program of README.md, one with custom ops and one with benchmarks, with what BUILD installs, or with ROOT as
# a subdirectory. What BUILD installs has what the documents for users name.
set -uo pipefail
way=$1 build=$2 root=$3 cmake=$4
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
project=$scratch/project
mkdir -p "$project"
cp "$root/tests/repository/outside/CMakeLists.txt" "$root"/docs/examples/{digits,custom_op,benchmark}.cpp "$project"
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
options=(-S "$project" -G Ninja "-DCMAKE_CXX_COMPILER=$(cached CMAKE_CXX_COMPILER)"
  "-DCMAKE_BUILD_TYPE=$(cached CMAKE_BUILD_TYPE)")

run() {  # COMMAND...: sets $status and $said
  said=$("$@" 2>&1) && status=0 || status=$?
}
runs() { run "$@" && ends 0; }
programs_run() {  # FOLDER
  expect "the program of README.md runs" runs env -C "$scratch" "$1/digits"
  expect "it trains" has "$said" "test accuracy 9"
  expect "the program with custom ops runs" runs env -C "$scratch" "$1/custom_op"
  expect "its ops are right" has "$said" "the gradient vanishes: yes"
  expect "the program with benchmarks runs" runs "$1/benchmark" --seconds 0
  expect "it has the row of the op" has "$said" "snake/backward"
}

documented() {  # INCLUDE: what documents for users name is reachable from the two headers that they include
  local header names
  names=$(grep -ohE '\b(nn|optim|data|dist|models|bench)::([a-z]+::)?[A-Za-z_]\w*' "$root"/README.md "$root"/docs/*.md |
    sort -u)
  expect "documents name classes and functions" has "$names" "nn::Linear"
  { printf '#include <tern/%s>\n' tern.h bench/benchmark.h
    awk '{ print "namespace name_" NR " { using tern::" $0 "; }" }' <<<"$names"; } >"$scratch/named.cpp"
  expect "tern.h and bench/benchmark.h declare the names of documents" \
    runs "$(cached CMAKE_CXX_COMPILER)" -std=c++20 -fsyntax-only -I "$1" "$scratch/named.cpp"
  printf '#include <tern/tern.h>\nvoid use(const tern::Tensor& x) { x.to(tern::float16); }\n' >"$scratch/discarded.cpp"
  run "$(cached CMAKE_CXX_COMPILER)" -std=c++20 -fsyntax-only -I "$1" "$scratch/discarded.cpp"
  expect "the compiler warns of a tensor that nothing takes" has "$said" nodiscard
  said=$(grep -ohE '\b(core|kernels|nn|optim|data|dist|models|bench)/[a-z_0-9/]+\.h\b' \
    "$root"/docs/{coming_from_pytorch,tutorial,ops}.md | sort -u |
    while read -r header; do [[ -f $1/tern/$header ]] || echo "$header"; done)
  expect "the headers that documents for users name are installed" equal "$said" ""
}

installed() {
  local prefix others bytes lines most
  expect "cmake --install succeeds" runs "$cmake" --install "$build" --prefix "$scratch/prefix"
  ends 0 || return
  prefix="$scratch/another place"
  mv "$scratch/prefix" "$prefix"
  bytes=$(du -sb "$prefix" | cut -f 1)
  if [[ $(cached CMAKE_BUILD_TYPE) == Release ]]; then
    said=$(grep -rlF -e "$build/" -e "$root/" -e "$scratch/prefix" "$prefix")
    expect "nothing installed names a folder of this machine" equal "$said" ""
    # The kernels of each CPU level take 7 MB, everything else 25: the library is installed twice, in the program too.
    most=$((25000000 + 7000000 * $(find "$prefix" -name 'libtern_kernels_v*.so' | wc -l)))
    [[ $(cached TERN_CUDA) == ON ]] || expect "at most $most bytes are installed, not $bytes" test "$bytes" -le "$most"
  fi
  others='nlohmann|CLI|Eigen|toml|regex|filesystem|archive|curl|openssl|png|jpeg|zlib|dnnl'
  said=$(grep -rnE --exclude=eigen.h "#[ \t]*include[ \t]*<($others)" "$prefix/include")
  expect "public headers need no header of another project, nor <regex> and <filesystem>" equal "$said" ""
  said=$(grep -rlE "tern/core/interop/eigen.h" "$prefix/include/tern")
  expect "no other includes the one that needs Eigen" equal "$said" ""
  echo '#include <tern/core/interop/eigen.h>
float first(const tern::Tensor& x) { return tern::eigen_map<float>(x)(0, 0); }' >"$scratch/eigen.cpp"
  expect "the header for users of Eigen compiles" runs "$(cached CMAKE_CXX_COMPILER)" -std=c++20 -fsyntax-only \
    -I "$prefix/include" -isystem /usr/include/eigen3 "$scratch/eigen.cpp"
  echo '#include <tern/tern.h>' >"$scratch/empty.cpp"
  lines=$("$(cached CMAKE_CXX_COMPILER)" -std=c++20 -E -I "$prefix/include" "$scratch/empty.cpp" |
    awk '/^# [0-9]+ "/ { tern = index($3, "\"/usr/") != 1; next } tern { ++n } END { print n + 0 }')
  expect "tern.h adds at most 25000 lines to those of the system, not $lines" \
    test "$lines" -gt 1000 -a "$lines" -le 25000
  documented "$prefix/include"

  said=$(ldd "$prefix"/lib*/*.so 2>&1 | grep 'not found')
  expect "the installed libraries find each other" equal "$said" ""
  expect "the installed program runs" runs env -i PATH=/usr/bin:/bin "HOME=$scratch" "$prefix/bin/tern" info
  expect "it says what it is" has "$said" "tern 0."
  options+=(-DTERN_WAY=package "-DCMAKE_PREFIX_PATH=$prefix" -B "$scratch/build")
  run "$cmake" "${options[@]}" -DTERN_WANTED=99
  expect "another version is refused" has "$said" "TernConfig.cmake, version: 0."
  expect "the project finds Tern" runs "$cmake" "${options[@]}" -DTERN_WANTED=0.1
  expect "the project builds" runs "$cmake" --build "$scratch/build"
  ends 0 || return
  run ldd "$scratch/build/digits"
  expect "the program takes the installed library" has "$said" "=> $prefix/lib"
  expect "the program takes no library from the build folder" lacks "$said" "$build"
  programs_run "$scratch/build"
  if command -v cc >/dev/null; then  # a program in C, without CMake
    local folder
    folder=$(dirname "$(ls "$prefix"/lib*/libtern.so)")
    expect "a program in C is compiled with tern_c.h" runs cc -std=c99 -pedantic -Wall -Wextra -Werror \
      -I "$prefix/include" "$root/docs/examples/digits.c" -o "$scratch/in_c" -L "$folder" "-Wl,-rpath,$folder" -ltern
    expect "it trains" runs env -C "$scratch" "$scratch/in_c"
  fi
}

subdirectory() {
  local name before folder=$build/outside
  # ccache has the objects when the paths relative to this folder are those of the tests' build folder. It has none of
  # a build that compiles several files at a time: then without optimisation and for one level, in half of the time.
  [[ $(dirname "$build") != "$root/build" ]] || folder=$root/build/$(basename "$build")-outside
  if [[ $(cached TERN_FAST_BUILD) == ON ]]; then
    options+=(-DCMAKE_BUILD_TYPE=Debug -DTERN_CPU_LEVELS=v2)
  else
    options+=("-DTERN_CPU_LEVELS=$(cached TERN_CPU_LEVELS)")
  fi
  for name in CMAKE_CXX_COMPILER_LAUNCHER TERN_WERROR TERN_FAST_BUILD TERN_MPI TERN_CURL TERN_ARCHIVES TERN_IMAGES \
    TERN_ONNX TERN_EMBEDDED_DATA; do
    options+=("-D$name=$(cached $name)")
  done
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}  # else it leaves precompiled headers alone
  before=$(cd "$project" && find . | sort)
  expect "FetchContent takes Tern in" \
    runs "$cmake" "${options[@]}" -B "$scratch/build" -DTERN_WAY=fetch "-DFETCHCONTENT_SOURCE_DIR_TERN=$root"
  rm -rf "$folder"
  expect "add_subdirectory takes Tern in" \
    runs "$cmake" "${options[@]}" -B "$folder" -DTERN_WAY=subdirectory "-DTERN_ROOT=$root"
  expect "the project builds" runs "$cmake" --build "$folder" --target digits custom_op benchmark
  ends 0 || return
  programs_run "$folder"
  expect "the project's tree is as before" equal "$(cd "$project" && find . | sort)" "$before"
  rm -rf "$folder"
}

"$way"
exit "$failed"
