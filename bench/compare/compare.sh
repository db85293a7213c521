#!/bin/sh
# Compares Tern with PyTorch on this machine: prepares both sides, then runs tern-bench-train with PyTorch as the baseline.
#   TERN_DATA=/path/to/data bench/compare/compare.sh [--rows a,b] [--rounds 10] [--threads N] [--clock cpu] ...
#   bench/compare/compare.sh libtorch [--rounds 10] [--threads N] ...       ops on one element: PyTorch's C++ library
#   bench/compare/compare.sh openvino [--dtype bf16] [--rounds 10] ...      convolutional networks: OpenVINO
#   TERN_DATA=/path/to/data bench/compare/compare.sh gpt [--seeds 1,2,3] [--steps N] [--threads N]    the same: gpt.py
#   TERN_DATA=/path/to/data bench/compare/compare.sh cifar [--seeds 1,2,3] [--threads N]      whole trainings: cifar.py
# The options are those of tern-bench-train. Its table and lines of JSON go to results/DATE-PROCESSOR.{md,jsonl}.
# TERN_COMPARE_PYTHON names a Python that has the packages, TERN_COMPARE_PROGRAM a built tern-bench-train (for cifar a
# tern-bench-cifar), TERN_BENCH_JPEGS a folder of images train/LABEL/*.jpg to use instead of images made from CIFAR-10;
# with TERN_COMPARE_COMPILE=1 PyTorch's models go through torch.compile.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/bench/compare
work=$root/build/compare
target=train
other=PyTorch
if [ "${1:-}" = cifar ] || [ "${1:-}" = gpt ]; then
  target=$1
  shift
elif [ "${1:-}" = libtorch ]; then
  other=libtorch
  shift
elif [ "${1:-}" = openvino ]; then
  other=OpenVINO
  shift
fi

python=${TERN_COMPARE_PYTHON:-}
if [ -z "$python" ]; then
  python=$work/venv/bin/python
  wanted=$(cat "$here/requirements.txt" "$root/tests/golden/requirements.txt" | cksum)
  if [ "$(cat "$work/installed" 2>/dev/null)" != "$wanted" ]; then
    mkdir -p "$work"
    python3 -m venv "$work/venv"
    "$python" -m pip install --quiet -r "$here/requirements.txt" >&2
    echo "$wanted" >"$work/installed"
  fi
fi

program=${TERN_COMPARE_PROGRAM:-}
if [ -z "$program" ] && [ $target = gpt ]; then
  (cd "$root" && cmake --preset release -DTERN_BUILD_TESTS=ON &&
    cmake --build --preset release --target example_char_gpt) >&2
  program=$root/build/release/bin/example_char_gpt
fi
if [ -z "$program" ]; then
  (cd "$root" && cmake --preset release -DTERN_BUILD_BENCH=ON &&
    cmake --build --preset release --target "tern_bench_$target") >&2
  program=$root/build/release/bin/tern-bench-$target
fi
[ $target = train ] || exec python3 "$here/$target.py" --tern "$program" --python "$python" "$@"

if [ $other = PyTorch ] && [ -z "${TERN_BENCH_JPEGS:-}" ]; then
  TERN_BENCH_JPEGS=$work/jpegs
  if [ ! -d "$TERN_BENCH_JPEGS" ] && [ -d "${TERN_DATA:-data}/cifar-10-batches-bin" ]; then
    rm -rf "$TERN_BENCH_JPEGS.part"
    "$python" "$here/pytorch_side.py" --make-jpegs "$TERN_BENCH_JPEGS.part"
    mv "$TERN_BENCH_JPEGS.part" "$TERN_BENCH_JPEGS"
  fi
  export TERN_BENCH_JPEGS
fi

mkdir -p "$work" "$here/results"
# The baseline is a program that takes the options of every benchmark program.
if [ $other = libtorch ]; then
  torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
  "${CXX:-g++}" -std=c++20 -O2 -w -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" \
    "$here/libtorch_side.cpp" -o "$work/pytorch" -L"$torch/lib" -ltorch -ltorch_cpu -lc10 -Wl,-rpath,"$torch/lib"
  set -- --rows small "$@"
else
  side=pytorch_side.py
  if [ $other = OpenVINO ]; then
    side=openvino_side.py
    set -- --rows infer-resnet18-128,infer-mobilenet-16 "$@"
  fi
  printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$python" "$here/$side" >"$work/pytorch"
  chmod +x "$work/pytorch"
fi
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1 | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9\n' '-')
stem=$here/results/$(date -u +%Y-%m-%d)-$processor
case $other in
  libtorch) stem=$stem-libtorch other=PyTorch ;;
  OpenVINO) stem=$stem-openvino ;;
esac
status=0
"$program" --baseline "$work/pytorch" --json "$stem.jsonl" "$@" >"$stem.table" || status=$?
{
  printf '# Tern and %s, %s\n\n' $other "$(date -u +%Y-%m-%d)"
  printf 'Commit %s; options: %s. Time of a token or image, Tern / %s.\n\n' \
    "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo none)" "${*:-none}" $other
  sed 's/^/    /' "$stem.table"
} >"$stem.md"
cat "$stem.table"
rm "$stem.table"
echo "saved: $stem.md and .jsonl" >&2
# Rows that are slower than the other side's are a result, not a failure.
[ $status = 1 ] && ! grep -q FAILED "$stem.md" && status=0
exit $status
