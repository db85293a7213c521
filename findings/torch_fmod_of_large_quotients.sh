#!/usr/bin/env bash
# torch.fmod and torch.remainder give NaN for finite numbers, depending on where in the tensor they stand.
#
# Packages: torch 2.15.0 (PyPI), on an x86-64 processor with AVX2.
# Seen: where the quotient a / b leaves the type's range (the largest float64 or float32 by 0.5), the elements that the
# vectorised loop computes are NaN, and those of the scalar loop for the rest of the tensor are right: of 33 equal
# numbers the first 32 give NaN and the last one 0. By 2 all are right, and so are all with
# ATEN_CPU_CAPABILITY=default, which turns the vectorised loop off. C's fmod is exact for all finite numbers (ISO C,
# F.10.7.1).
# Expected: 0 in every element: the largest numbers are multiples of 0.5.
# Why it matters: a comparison of two engines on random tensors with the largest finite number shows NaN in one of them,
# at some places only, and a check with few elements, which the scalar loop computes, does not show it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -q '^flags.* avx2' /proc/cpuinfo || { echo "skipped: this processor has no AVX2"; exit 77; }
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0
cat >"$work/run.py" <<'PYTHON'
import math
import warnings

warnings.simplefilter("ignore")  # of a missing numpy
import torch

print("torch", torch.__version__.split("+")[0], torch.backends.cpu.get_cpu_capability())
for dtype in (torch.float64, torch.float32):
    x = torch.full((33,), torch.finfo(dtype).max, dtype=dtype)
    for divisor in (0.5, 2):
        assert math.fmod(x[0].item(), divisor) == 0
        found = []
        for function in (torch.fmod, torch.remainder):
            y = function(x, divisor)
            found += [f"{int(y.isnan().sum())} NaN, {int((y == 0).sum())} 0"]
        print(str(dtype).split(".")[1], divisor, "; ".join(found))
PYTHON
for capability in avx2 default; do ATEN_CPU_CAPABILITY=$capability "$work/venv/bin/python" "$work/run.py"; done | tee "$work/out"
diff "$work/out" - <<'SEEN'
torch 2.15.0 AVX2
float64 0.5 32 NaN, 1 0; 32 NaN, 1 0
float64 2 0 NaN, 33 0; 0 NaN, 33 0
float32 0.5 32 NaN, 1 0; 32 NaN, 1 0
float32 2 0 NaN, 33 0; 0 NaN, 33 0
torch 2.15.0 DEFAULT
float64 0.5 0 NaN, 33 0; 0 NaN, 33 0
float64 2 0 NaN, 33 0; 0 NaN, 33 0
float32 0.5 0 NaN, 33 0; 0 NaN, 33 0
float32 2 0 NaN, 33 0; 0 NaN, 33 0
SEEN
echo "as seen"
