#!/usr/bin/env bash
# bundle.sh: Tern's check on a GPU as one file, for a machine that has a driver, CUDA's libraries and little else.
#
#   bench/gpu/bundle.sh OUT            builds in build/bundle and writes OUT, a .tar.xz of at most 60 MiB
#     --architectures LIST   of the CUDA kernels, as CMake takes them (default: 90a-real)
#     --build DIR            the build folder
#     --ready                takes the build folder as it is: builds nothing
#     --without-data         leaves the data sets out
#     --max-mib N           the greatest size of OUT (default: 60)
#
# There:
#
#   tar xJf OUT                        or: python3 -c 'import tarfile; tarfile.open("OUT").extractall()'
#   tern-gpu/bench/gpu/check.sh --bundle --stages tests,large,kernels
#   tern-gpu/bench/gpu/check.sh --bundle --stages sanitizer
#   tern-gpu/bench/gpu/check.sh --bundle --stages job,compare,profile
#
# In it: the program, the cuda_* tests and those that read the golden files, the benchmarks, stripped; the shared libraries
# that they need, without those of glibc and GCC (libstdc++, libgcc_s) and without NVIDIA's; the golden files; texts with
# IMDB's lengths with their token cache, and images like CIFAR-10's (make_data.py); the headers of core and docs/ops.md,
# which the test of the table of ops reads. Programs find libraries and files relative to themselves. CUDA's libraries
# (cuBLASLt, cuDNN, NCCL, CUPTI) are looked for where docs/cuda.md says, among others in the toolkit and in Python
# packages.
set -uo pipefail
exec </dev/null
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
architectures=90a-real build=$root/build/bundle ready=0 data=1 max_mib=60 out=""

usage() {
  printf 'bundle.sh: %s\n' "$1" >&2
  sed -n '3,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
die() {
  printf 'bundle.sh: error: %s\n' "$*" >&2
  exit 1
}
say() { printf 'bundle.sh: %s\n' "$*" >&2; }
while (($#)); do
  case $1 in
    --architectures | --build | --max-mib) (($# > 1)) || usage "$1 needs a value" ;;&
    --architectures) architectures=$2 && shift ;;
    --build) build=$2 && shift ;;
    --max-mib) max_mib=$2 && shift ;;
    --ready) ready=1 ;;
    --without-data) data=0 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | head -n -1 && exit 0 ;;
    -*) usage "unknown argument '$1'" ;;
    *) [[ -z $out ]] || usage "one OUT, not two" && out=$1 ;;
  esac
  shift
done
[[ -n $out ]] || usage "OUT is missing"
[[ $max_mib =~ ^[1-9][0-9]{0,4}$ ]] || usage "--max-mib: '$max_mib' is no number above 0"
[[ ! -d $out ]] || usage "OUT is a file; $out is a folder"
[[ -d $(dirname "$out") ]] || usage "OUT: there is no folder $(dirname "$out")"
missing=()
((!data)) || command -v python3 >/dev/null || missing+=(python3)
for tool in xz strip readelf ldd; do command -v $tool >/dev/null || missing+=($tool); done
((${#missing[@]} == 0)) ||
  die "missing: ${missing[*]}; in Debian: apt-get install -y --no-install-recommends xz-utils python3 binutils libc-bin"

# --- build ------------------------------------------------------------------------------------------------------------

if ((!ready)); then
  say "building in $build"
  launcher=()
  ! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1
  # Flags as of .ci/run, whose objects ccache may have.
  cmake -S "$root" -B "$build" -G Ninja ${launcher[@]+"${launcher[@]}"} -DCMAKE_BUILD_TYPE=Release -DTERN_WERROR=ON \
    -DTERN_CUDA=ON -DTERN_SHARED=ON "-DCMAKE_CUDA_ARCHITECTURES=$architectures" -DTERN_BUILD_TESTS=ON \
    -DTERN_BUILD_BENCH=ON "-DTERN_CPU_LEVELS=v3;v4" -DTERN_INSTALL=OFF >&2 &&
    cmake --build "$build" --target tern_program tern_cuda_tests tern_golden_tests tern_bench_kernels tern_bench_train \
      >&2 || die "the build failed; ./tern test and ./tern bench install the packages that it needs, CUDA's compiler apart"
fi
[[ -x $build/bin/tern ]] || die "$build/bin/tern: there is no such program"
build=$(cd "$build" && pwd)

# --- programs and libraries -------------------------------------------------------------------------------------------

work=$(mktemp -d) && work=$(cd "$work" && pwd -P) || exit 1
trap 'rm -rf "$work" "$out.part"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
bundle=$work/tern-gpu
mkdir -p "$bundle"/{bin,lib,bench/gpu,tests,data/assets}

# Every machine has its version of these: glibc's and GCC's libraries; a driver installs libcuda.
of_the_system='^(linux-vdso|ld-linux-x86-64|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl|nsl|nss_[a-z]*|stdc\+\+|gcc_s|cuda))\.so'

programs=("$build"/bin/tern "$build"/bin/tern-bench-kernels "$build"/bin/tern-bench-train "$build"/bin/*_test)
for program in "${programs[@]}"; do
  [[ -x $program ]] || die "$program: there is no such program"
  cp "$program" "$bundle/bin/" || exit 1
done
needed() {  # what ldd says on stdin, as "NAME PATH"
  sed -n -e 's/^\s*\(\S*\) => \(.*\) (0x[0-9a-f]*)$/\1 \2/p' -e 's/^\s*\(\S*\) => not found$/\1 missing/p'
}
for program in "${programs[@]}"; do ldd "$program" | needed; done | sort -u | grep -vE "$of_the_system" >"$work/libraries"
while read -r name path; do
  [[ -f $path ]] || die "the library $name was not found"
  cp -L "$path" "$bundle/lib/$name" || exit 1
done <"$work/libraries"
chmod u+w "$bundle"/lib/* && strip --strip-unneeded "$bundle"/lib/* "$bundle"/bin/* || die "strip failed"

# --- files --------------------------------------------------------------------------------------------------------

{
  git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown
  [[ -z $(git -C "$root" status --porcelain 2>/dev/null) ]] || echo changed
} >"$bundle/COMMIT"
cp -r "$root/bench/compare" "$bundle/bench/" && rm -rf "$bundle"/bench/compare/{results,__pycache__} &&
  cp "$root/bench/gpu/check.sh" "$bundle/bench/gpu/" &&
  (cd "$root" && find core -name '*.h' -exec cp --parents -t "$bundle" docs/ops.md {} +) &&
  cp -r "$root/tests/golden" "$bundle/tests/" &&
  cp "$root/data/assets/bert-base-uncased-vocab.txt" "$bundle/data/assets/" && cp "$root/LICENSE" "$bundle/" || exit 1

# --- what must hold ---------------------------------------------------------------------------------------------------

for file in "$bundle"/bin/* "$bundle"/lib/*; do
  IFS=: read -ra paths < <(readelf -d "$file" | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]/\2/p')
  for path in ${paths[@]+"${paths[@]}"}; do
    [[ $path == \$ORIGIN* ]] || die "${file#"$bundle"/} looks for libraries in $path, a folder of this machine"
  done
done
# The folders of this machine must not be read there. (Names of source files in messages are relative.)
named=$(cd "$bundle" && grep -rlF -e "$build/" -e "$root/" bin lib)
[[ -z $named ]] || die "folders of this machine are compiled into: ${named//$'\n'/, }"
# Run where nothing of the build is found but what was packed.
clean() { env -i PATH=/usr/bin:/bin "$@"; }  # COMMAND...
for program in "$bundle"/bin/*; do
  clean ldd "$program" | needed | grep -vE "$of_the_system" | grep -vF " $bundle/" >"$work/outside"
  [[ ! -s $work/outside ]] || die "${program##*/} takes libraries that are not in the bundle: $(tr '\n' ' ' <"$work/outside")"
done
told=$(clean HOME="$work" "$bundle/bin/tern" info) || die "tern info does not run: $told"
grep -q '^CUDA: runtime .* kernels for ' <<<"$told" || die "tern info does not describe CUDA: $told"
glibc=$(cat "$bundle"/bin/* "$bundle"/lib/* | grep -aoE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1)
gcc=$(cat "$bundle"/bin/* "$bundle"/lib/* | grep -aoE 'GLIBCXX_3\.4\.[0-9]+' | sort -uV | tail -n 1)

# --- data -------------------------------------------------------------------------------------------------------------

if ((data)); then
  say "writing data sets"
  python3 "$root/bench/gpu/make_data.py" "$bundle/datasets" "$root/data/assets/bert-base-uncased-vocab.txt" ||
    die "make_data.py failed"
  # A training that ends before its first step (no batch holds its longest text) leaves the token cache.
  clean XDG_CACHE_HOME="$bundle/datasets/cache" "$bundle/bin/tern" train distilbert --data "$bundle/datasets/reviews.csv" \
    --device cpu --preset tiny --batch-tokens 2 --max-length 512 --split 35000/5000/10000 --out "$work/run" >"$work/log" 2>&1
  cached=$(find "$bundle/datasets/cache" -name '*.tokens' 2>/dev/null | wc -l)
  ((cached == 1)) || die "there is no token cache: $(tail -n 1 "$work/log")"
fi

# --- one file ---------------------------------------------------------------------------------------------------------

say "compressing $(du -sm "$bundle" | cut -f 1) MiB"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - tern-gpu | xz -T 1 -6 >"$out.part" ||
  die "$out cannot be written"
bytes=$(stat -c %s "$out.part")
mib=$(((bytes + 1048575) / 1048576))
((mib <= max_mib)) || die "the bundle has $mib MiB, more than $max_mib"
mv "$out.part" "$out" || exit 1
printf '%s: %d bytes, %d MiB; %d programs, %d libraries; needs %s and %s\n' "$out" "$bytes" "$mib" \
  "$(ls "$bundle/bin" | wc -l)" "$(ls "$bundle/lib" | wc -l)" "${glibc/_/ }" "${gcc/_/ }"
sed -n '/^# There:/,/^# In it/s/^# \{0,1\}//p' "$0" | grep '^ ' | sed "s|OUT|${out##*/}|g"
