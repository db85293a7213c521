#!/bin/sh
# Builds tern-bench-scale and runs scale.py with the given options.
#   bench/scale/scale.sh                       1, 2 and 4 processes
#   bench/scale/scale.sh --link 1gbit          over a rate-limited link (root)
#   TERN_COMPARE_PYTHON=... bench/scale/scale.sh --pytorch
# TERN_COMPARE_PYTHON names a Python with the packages of bench/compare/requirements.txt; bench/compare/compare.sh
# creates one in build/compare/venv.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
program=${TERN_SCALE_PROGRAM:-}
if [ -z "$program" ]; then
  (cd "$root" && cmake --preset release -DTERN_BUILD_BENCH=ON &&
    cmake --build --preset release --target tern_bench_scale) >&2
  program=$root/build/release/bin/tern-bench-scale
fi
python=${TERN_COMPARE_PYTHON:-$root/build/compare/venv/bin/python}
if [ -x "$python" ]; then
  set -- --python "$python" "$@"
fi
exec python3 "$root/bench/scale/scale.py" --tern "$program" "$@"
