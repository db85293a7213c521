#!/bin/sh
# A longer training of Tern only: the Vision Transformer "tiny" from scratch on all 50,000 images of CIFAR-10, with as
# many epochs as fit into the given minutes, then its accuracy on the 10,000 test images. Output goes to build/long/.
#   TERN_DATA=/path/to/data bench/cifar/long.sh [MINUTES]
# TERN_LONG_PROGRAM names a tern-bench-cifar already built.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
minutes=${1:-60}
data=${TERN_DATA:?set it to the folder that holds cifar-10-batches-bin}/cifar-10-batches-bin
out=$root/build/long
mkdir -p "$out"

program=${TERN_LONG_PROGRAM:-}
if [ -z "$program" ]; then
  (cd "$root" && cmake --preset release -DTERN_BUILD_BENCH=ON &&
    cmake --build --preset release --target tern_bench_cifar) >&2
  program=$root/build/release/bin/tern-bench-cifar
fi

# Measures the speed: 40 steps and the test images.
"$program" --data "$data" --images 2560 --epochs 1 --dtype auto >"$out/pace.jsonl"
epochs=$(sed -n 's/.*"test_seconds":\([0-9.]*\).*"train_seconds":\([0-9.]*\).*/\1 \2/p' "$out/pace.jsonl" |
  awk -v seconds=$((60 * minutes)) '{ n = int((0.97 * seconds - $1) / ($2 * 50000 / 2560)); print n < 1 ? 1 : n }')
lines=$out/cifar-$(date -u +%Y%m%dT%H%M%S).jsonl
echo "long: $epochs epochs; load before $(cut -d' ' -f1 /proc/loadavg); lines: $lines" >&2
"$program" --data "$data" --images 50000 --epochs "$epochs" --dtype auto --seed 1 >"$lines"
tail -n 1 "$lines"
