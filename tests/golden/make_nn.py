#!/usr/bin/env python3
"""Writes nn.safetensors and nn.json: PyTorch's numbers for RMS norm. Deterministic by seed; torch alone is needed."""
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from golden_ops import Cases

HERE = pathlib.Path(__file__).resolve().parent


def norm_cases(cases):
    for shape, affine, eps in [((5, 7), True, None), ((3, 4, 37), True, 1e-6), ((3, 2), True, 0.5), ((2, 1), True, 0.1),
                               ((9, 129), False, None)]:
        x = {"x": torch.randn(shape) * 3 + 1}
        if affine:
            x["weight"] = torch.randn(shape[-1])
        cases.add("rms_norm", lambda x, weight=None: F.rms_norm(x, x.shape[-1:], weight, eps), x, list(x), {"eps": eps})


def main():
    torch.set_num_threads(1)  # the order of sums does not depend on the machine
    torch.manual_seed(1)
    cases = Cases()
    norm_cases(cases)
    save_file(cases.tensors, str(HERE / "nn.safetensors"))
    index = {"made_with": torch.__version__.split("+")[0], "tolerances": {"nn": {"floor": 1e-3}},
             "nn": {"file": "nn.safetensors", "cases": cases.cases}}
    (HERE / "nn.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
