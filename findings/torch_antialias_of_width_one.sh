#!/usr/bin/env bash
# F.interpolate(antialias=True) of an image that is one pixel wide repeats one row, where the width stays.
#
# Packages: torch 2.15.0 (PyPI), x86-64.
# Seen: [1, 1, 5, 1] enlarged to [1, 1, 10, 1], bilinear or bicubic, with and without align_corners: all ten rows are
# equal. Enlarged from 5 x 2 to 10 x 2, or with a width that changes from 1 to 2, the rows differ. Nothing is raised.
# Expected: to enlarge with antialias is the same filter as without (bilinear, align_corners=False), and it is for the
# other two shapes.
# Why it matters: a column, such as a spectrum or a time series kept as an image, becomes a constant silently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0
cat >"$work/run.py" <<'PYTHON'
import warnings

warnings.simplefilter("ignore")  # of a missing numpy
import torch
import torch.nn.functional as F

print("torch", torch.__version__.split("+")[0])
for width, factor in ((1, 1), (2, 1), (1, 2)):
    x = torch.arange(5.0 * width).reshape(1, 1, 5, width)
    for mode in ("bilinear", "bicubic"):
        for corners in (False, True):
            options = dict(scale_factor=(2, factor), mode=mode, align_corners=corners)
            y = F.interpolate(x, **options, antialias=True)
            equal = "equal" if bool((y == y[:, :, :1]).all()) else "different"
            same = ""
            if mode == "bilinear" and not corners:
                same = ", as without antialias" if torch.allclose(y, F.interpolate(x, **options)) else ", wrong"
            print(f"width {width} to {width * factor} {mode} {corners}: {equal} rows{same}")
PYTHON
"$work/venv/bin/python" "$work/run.py" | tee "$work/out"
diff "$work/out" - <<'SEEN'
torch 2.15.0
width 1 to 1 bilinear False: equal rows, wrong
width 1 to 1 bilinear True: equal rows
width 1 to 1 bicubic False: equal rows
width 1 to 1 bicubic True: equal rows
width 2 to 2 bilinear False: different rows, as without antialias
width 2 to 2 bilinear True: different rows
width 2 to 2 bicubic False: different rows
width 2 to 2 bicubic True: different rows
width 1 to 2 bilinear False: different rows, as without antialias
width 1 to 2 bilinear True: different rows
width 1 to 2 bicubic False: different rows
width 1 to 2 bicubic True: different rows
SEEN
echo "as seen"
