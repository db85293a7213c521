#!/usr/bin/env bash
# gpu_bundle.sh BUNDLE COMPILER: tests bench/gpu/bundle.sh with small programs in place of a build's.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support.sh"
bundle=$1 compiler=$2
build="$scratch/a build"
mkdir -p "$build/bin" "$build/lib" "$scratch/elsewhere"

run() {  # ARGUMENTS...: sets $status and $said
  said=$(bash "$bundle" "$@" 2>&1)
  status=$?
}
compile() {  # RPATH: builds the programs, which get their output text from a library
  local program
  for program in tern tern-bench-kernels tern-bench-train cuda_one_test; do
    "$compiler" "$scratch/main.cpp" -o "$build/bin/$program" -L"$build/lib" -lwords "-Wl,-rpath,$1" || exit 1
  done
}

cat >"$scratch/words.cpp" <<'END'
const char* words() { return WORDS; }
END
cat >"$scratch/main.cpp" <<'END'
#include <cstdio>
const char* words();
int main() { std::puts(words()); }
END
library() {  # WORDS
  "$compiler" -shared -fPIC "-DWORDS=\"$1\"" "$scratch/words.cpp" -o "$build/lib/libwords.so" || exit 1
}

run
expect "without OUT it is wrong usage" equal "$status" 2
for arguments in "a b" "--unknown a" "a --max-mib" "a --max-mib 0" "$scratch" "$scratch/none/a"; do
  run $arguments
  expect "'$arguments' is wrong usage" equal "$status" 2
done
small=(--ready --build "$build" --without-data)
out="$scratch/one file.tar.xz"

run "$out" "${small[@]}"
expect "a build without a program is refused" has "$said" "bin/tern: there is no such program"

library "CUDA: runtime 1, kernels for 90a"
compile "$build/lib"
run "$out" "${small[@]}"
expect "a path of this machine is refused" has "$said" "looks for libraries in $build/lib, a folder of this machine"
expect "and nothing is left" test "$status" = 1 -a ! -e "$out" -a ! -e "$out.part"

compile '$ORIGIN/../lib'
library "CUDA: runtime 1, kernels for 90a $build/bin"
run "$out" "${small[@]}"
expect "a folder that is compiled in is refused" has "$said" "folders of this machine are compiled into: lib/libwords.so"

library "no word of it"
run "$out" "${small[@]}"
expect "a program without CUDA is refused" has "$said" "tern info does not describe CUDA"

library "CUDA: runtime 1, kernels for 90a"
run "$out" "${small[@]}" --max-mib 1
expect "a bundle that is too large is refused" has "$said" "MiB, more than 1"
expect "and nothing is left of it" test "$status" = 1 -a ! -e "$out" -a ! -e "$out.part"

run "$out" "${small[@]}"
expect "a bundle is made" equal "$status" 0
expect "it says its size" has "$said" "one file.tar.xz: $(stat -c %s "$out") bytes"
expect "it says how to unpack it" has "$said" "tar xJf one file.tar.xz"
mv "$build" "$scratch/moved away"
said=$(cd "$scratch/elsewhere" && tar xJf "$out" && env -i tern-gpu/bin/tern)
status=$?
expect "it runs elsewhere, without the build" equal "$said" "CUDA: runtime 1, kernels for 90a"
for file in bin/cuda_one_test lib/libwords.so tests/golden/README.md bench/gpu/check.sh bench/compare/pytorch_side.py COMMIT; do
  expect "it holds $file" test -s "$scratch/elsewhere/tern-gpu/$file"
done
expect "it holds no library of the system" test -z "$(ls "$scratch/elsewhere/tern-gpu/lib" | grep -E '^lib(c|stdc\+\+|gcc_s)\.')"

((failed)) || echo "the bundle holds what it must"
exit "$failed"
