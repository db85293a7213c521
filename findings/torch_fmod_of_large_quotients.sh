#!/usr/bin/env bash
# torch.fmod and torch.remainder give NaN for finite numbers, depending on where in the tensor they stand.
#
# Packages: torch 2.15.0 (PyPI), on an x86-64 processor with AVX2.
# Seen: where a / b is about 2^1024 (float64) or 2^128 (float32) or more, that is where the quotient leaves the type's
# range, the elements that the vectorised loop computes are NaN, and those of the scalar loop for the rest of the tensor
# are right: of 33 equal numbers the first 32 give NaN and the last one 0. With ATEN_CPU_CAPABILITY=default, which turns
# the vectorised loop off, all are right. C's fmod is exact for all finite numbers (ISO C, F.10.7.1).
# Expected: 0 for the largest float64 and float32 by 0.5 (they are multiples of it), in every element.
# Why it matters: a comparison of two engines on random tensors with the largest finite number shows NaN in one of them,
# at some places only, and a check with few elements, which the scalar loop computes, does not show it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -q '^flags.* avx2' /proc/cpuinfo || { echo "skipped: this processor has no AVX2"; exit 77; }
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.2.6
cat >"$work/run.py" <<'PYTHON'
import math
import torch

print("torch", torch.__version__.split("+")[0], torch.backends.cpu.get_cpu_capability())
for dtype in (torch.float64, torch.float32):
    x = torch.full((33,), torch.finfo(dtype).max, dtype=dtype)
    assert math.fmod(x[0].item(), 0.5) == 0
    for name in ("fmod", "remainder"):
        y = getattr(torch, name)(x, 0.5)
        print(str(dtype).split(".")[1], name, "NaN:", int(y.isnan().sum()), "0:", int((y == 0).sum()))
PYTHON
ATEN_CPU_CAPABILITY=avx2 "$work/venv/bin/python" "$work/run.py" | tee "$work/avx2"
ATEN_CPU_CAPABILITY=default "$work/venv/bin/python" "$work/run.py" | tee "$work/default"
diff "$work/avx2" - <<'SEEN'
torch 2.15.0 AVX2
float64 fmod NaN: 32 0: 1
float64 remainder NaN: 32 0: 1
float32 fmod NaN: 32 0: 1
float32 remainder NaN: 32 0: 1
SEEN
diff "$work/default" - <<'SEEN'
torch 2.15.0 DEFAULT
float64 fmod NaN: 0 0: 33
float64 remainder NaN: 0 0: 33
float32 fmod NaN: 0 0: 33
float32 remainder NaN: 0 0: 33
SEEN
echo "as seen"
