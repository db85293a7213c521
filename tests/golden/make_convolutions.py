#!/usr/bin/env python3
"""Writes convolutions.safetensors and convolutions.json: PyTorch's numbers for convolutions and poolings. Deterministic by seed."""
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from golden_ops import Cases

HERE = pathlib.Path(__file__).resolve().parent


def convolutions(cases):
    def add(op, dims, x, weight, bias=True, **params):
        function = getattr(F, f"{op}{dims}d")
        tensors = {"x": torch.randn(x), "weight": torch.randn(weight) * 0.5}
        out = weight[0] if op == "conv" else weight[1] * params.get("groups", 1)
        if bias:
            tensors["bias"] = torch.randn(out)
        cases.add(op, lambda x, weight, bias=None: function(x, weight, bias, **params), tensors, list(tensors),
                  {"dims": dims} | params)

    add("conv", 1, (2, 3, 11), (4, 3, 3))
    add("conv", 1, (4, 11), (6, 2, 4), bias=False, groups=2, stride=3, padding=2)
    add("conv", 2, (2, 3, 9, 8), (5, 3, 3, 3), padding=1)
    add("conv", 2, (2, 16, 7, 6), (16, 16, 3, 3), stride=2, padding=1)
    add("conv", 2, (1, 4, 9, 10), (6, 2, 2, 3), groups=2, stride=(2, 1), padding=(0, 2), dilation=(3, 1))
    add("conv", 2, (2, 6, 5, 7), (6, 1, 5, 5), groups=6, padding=2)
    add("conv", 2, (2, 3, 6, 5), (4, 3, 4, 3), padding="same", dilation=(1, 2))
    add("conv", 2, (4, 4, 5), (8, 4, 1, 1))
    add("conv", 3, (2, 2, 4, 5, 3), (3, 2, 2, 3, 1), stride=(1, 2, 1), padding=(1, 0, 0))
    add("conv_transpose", 1, (2, 4, 6), (4, 3, 3), stride=2, output_padding=1)
    add("conv_transpose", 2, (2, 3, 5, 4), (3, 4, 3, 3), padding=1)
    add("conv_transpose", 2, (2, 4, 5, 4), (4, 3, 3, 2), groups=2, stride=(3, 2), padding=(1, 0), output_padding=(2, 1),
        dilation=(1, 2))
    add("conv_transpose", 2, (6, 4, 4), (6, 1, 4, 4), bias=False, groups=6, stride=2, padding=1)
    add("conv_transpose", 3, (1, 2, 3, 2, 3), (2, 3, 2, 2, 3), stride=2)


def pools(cases):
    def add(op, dims, x, kernel, **params):
        function = getattr(F, f"{op}_pool{dims}d")
        cases.add(f"{op}_pool", lambda x: function(x, kernel, **params), {"x": torch.randn(x)}, ["x"],
                  {"dims": dims, "kernel": kernel} | params)

    add("max", 1, (2, 3, 11), 3, stride=2, padding=1)
    add("max", 2, (2, 3, 9, 8), (3, 2), padding=(1, 0), ceil_mode=True)
    add("max", 2, (4, 9, 8), 2, dilation=(2, 3), stride=1)
    add("max", 3, (1, 2, 4, 5, 6), 2)
    add("avg", 1, (2, 3, 11), 4, stride=3, padding=2)
    add("avg", 2, (2, 3, 9, 8), 3, stride=2, padding=1, ceil_mode=True)
    add("avg", 2, (2, 3, 9, 8), (3, 2), padding=1, ceil_mode=True, count_include_pad=False)
    add("avg", 2, (3, 7, 6), 2, divisor_override=3)
    add("avg", 3, (1, 2, 4, 5, 6), 2, stride=1, padding=1)
    for name in ("adaptive_avg", "adaptive_max"):
        add(name, 1, (2, 3, 11), 4)
        add(name, 2, (2, 3, 7, 9), (3, 1))
        add(name, 2, (3, 3, 4), (5, 7))
        add(name, 3, (1, 2, 4, 5, 6), 2)


def main():
    torch.set_num_threads(1)
    cases = Cases()
    for section in (convolutions, pools):
        torch.manual_seed(27)  # sections can be added without a change of the others
        section(cases)
    path = HERE / "convolutions.safetensors"
    save_file(cases.tensors, str(path))
    path.chmod(0o644)  # save_file makes it private
    lines = ",\n".join(json.dumps(case) for case in cases.cases)
    (HERE / "convolutions.json").write_text(f'{{"tolerances": {{"functions": {{"floor": 1e-3}}}},\n'
        f' "functions": {{"file": "convolutions.safetensors", "cases": [\n{lines}\n]}}}}\n')


if __name__ == "__main__":
    main()
