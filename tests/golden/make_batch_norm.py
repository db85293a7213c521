#!/usr/bin/env python3
"""Writes batch_norm.safetensors and batch_norm.json: PyTorch's numbers for batch normalisation. Deterministic by seed."""
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from golden_ops import Cases

HERE = pathlib.Path(__file__).resolve().parent
ACTIVATIONS = {"none": lambda z: z, "relu": F.relu, "relu6": F.relu6, "silu": F.silu, "hardswish": F.hardswish,
               "gelu": F.gelu}


def functions(cases):
    def add(x, training, activation="none", affine=True, running=True, residual=False, eps=1e-5):
        tensors = {"x": torch.randn(x) * 3 + 1}
        if affine:
            tensors |= {"weight": torch.randn(x[1]), "bias": torch.randn(x[1])}
        if residual:
            tensors["residual"] = torch.randn(x)
        constants = {"mean": torch.randn(x[1]), "var": torch.rand(x[1]) + 0.5} if running else {}

        def run(x, weight=None, bias=None, residual=None, mean=None, var=None):
            copies = [None if t is None else t.to(x.dtype, copy=True) for t in (mean, var)]
            z = F.batch_norm(x, *copies, weight, bias, training or mean is None, 0.1, eps)
            return ACTIVATIONS[activation](z if residual is None else z + residual)

        cases.add("batch_norm", run, tensors, list(tensors),
                  {"training": training, "activation": activation, "eps": eps}, constants)

    add((7, 5), True)
    add((7, 5), False)
    add((4, 3, 11), True, eps=1e-2)
    add((2, 17, 5, 4), True)
    add((2, 17, 5, 4), False)
    add((2, 3, 3, 2, 4), True)
    add((3, 8, 4, 4), False, running=False)
    add((3, 8, 4, 4), True, affine=False)
    add((3, 8, 4, 4), True, affine=False, residual=True)
    for activation in ACTIVATIONS:
        for training in (True, False):
            add((2, 6, 5, 3), training, activation)
            add((2, 6, 5, 3), training, activation, residual=True)


def running(cases):
    """Running statistics after 100 batches: out = [mean, var] of a layer."""
    for momentum in (0.1, None):
        def run(batches, momentum=momentum):
            layer = torch.nn.BatchNorm2d(batches.shape[2], momentum=momentum).to(batches.dtype)
            for batch in batches:
                layer(batch)
            return torch.stack([layer.running_mean, layer.running_var])
        scale, shift = torch.linspace(0.5, 3, 100), torch.linspace(-1, 2, 100)
        batches = torch.randn(100, 4, 3, 3, 2) * scale[:, None, None, None, None] + shift[:, None, None, None, None]
        cases.add("running", run, {"batches": batches}, [], {"momentum": momentum})


def main():
    torch.set_num_threads(1)
    cases = Cases()
    for section in (functions, running):
        torch.manual_seed(28)  # sections can be added without a change of the others
        section(cases)
    path = HERE / "batch_norm.safetensors"
    save_file(cases.tensors, str(path))
    path.chmod(0o644)  # save_file makes it private
    lines = ",\n".join(json.dumps(case) for case in cases.cases)
    (HERE / "batch_norm.json").write_text(f'{{"tolerances": {{"functions": {{"floor": 1e-3}}}},\n'
        f' "functions": {{"file": "batch_norm.safetensors", "cases": [\n{lines}\n]}}}}\n')


if __name__ == "__main__":
    main()
