#!/bin/sh
# Compares Tern with PyTorch on this machine: prepares both sides, then runs compare.py with the given options.
#   TERN_DATA=/path/to/data bench/compare/compare.sh [--rounds 3] [--seconds 10] [--threads N] [--rows a,b]
#   TERN_DATA=/path/to/data bench/compare/compare.sh cifar [--seeds 1,2,3] [--threads N]      whole trainings: cifar.py
# TERN_COMPARE_PYTHON names a Python that has the packages, TERN_COMPARE_PROGRAM a built tern-bench-train (for cifar a
# tern-bench-cifar), TERN_BENCH_JPEGS a folder of images train/LABEL/*.jpg to use instead of images made from CIFAR-10.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/bench/compare
work=$root/build/compare
driver=compare.py target=train
if [ "${1:-}" = cifar ]; then
  driver=cifar.py target=cifar
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
if [ -z "$program" ]; then
  (cd "$root" && cmake --preset release -DTERN_BUILD_BENCH=ON &&
    cmake --build --preset release --target "tern_bench_$target") >&2
  program=$root/build/release/bin/tern-bench-$target
fi

if [ $target = train ] && [ -z "${TERN_BENCH_JPEGS:-}" ]; then
  TERN_BENCH_JPEGS=$work/jpegs
  if [ ! -d "$TERN_BENCH_JPEGS" ] && [ -d "${TERN_DATA:-data}/cifar-10-batches-bin" ]; then
    rm -rf "$TERN_BENCH_JPEGS.part"
    "$python" "$here/pytorch_side.py" --make-jpegs "$TERN_BENCH_JPEGS.part"
    mv "$TERN_BENCH_JPEGS.part" "$TERN_BENCH_JPEGS"
  fi
  export TERN_BENCH_JPEGS
fi

exec python3 "$here/$driver" --tern "$program" --python "$python" "$@"
