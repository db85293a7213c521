#!/usr/bin/env python3
"""Writes image_ops.safetensors and image_ops.json: PyTorch's numbers for norms and other ops on images. Deterministic by seed."""
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from golden_ops import Cases

HERE = pathlib.Path(__file__).resolve().parent


def norms(cases):
    def group(x, groups, affine=True, **params):
        tensors = {"x": torch.randn(x) * 2 + 1}
        if affine:
            tensors |= {"weight": torch.rand(x[1]) + 0.5, "bias": torch.randn(x[1])}
        cases.add("group_norm", lambda x, weight=None, bias=None: F.group_norm(x, groups, weight, bias, **params), tensors,
                  list(tensors), {"groups": groups} | params)

    group((2, 6, 5, 7), 3)
    group((3, 12, 4), 4, eps=0.1)
    group((2, 5, 3, 2, 4), 1)
    group((4, 8), 2, affine=False)
    group((1, 70, 3, 3), 35)

    def instance(x, affine=False, running=False, **params):
        tensors = {"x": torch.randn(x) * 2 + 1}
        if affine:
            tensors |= {"weight": torch.rand(x[1]) + 0.5, "bias": torch.randn(x[1])}
        constants = {"mean": torch.randn(x[1], dtype=torch.float64).float(), "var": torch.rand(x[1]) + 0.5} if running else {}

        def function(x, weight=None, bias=None, mean=None, var=None):
            if mean is None:
                return F.instance_norm(x, weight=weight, bias=bias, **params)
            mean, var = mean.to(x.dtype, copy=True), var.to(x.dtype, copy=True)
            y = F.instance_norm(x, mean, var, weight, bias, **params)
            # The statistics after the call are part of the result.
            return torch.cat([y.flatten(), mean, var])

        cases.add("instance_norm", function, tensors, list(tensors), params, constants)

    instance((2, 3, 7))
    instance((2, 4, 5, 3), affine=True, eps=1e-3)
    instance((2, 3, 2, 4, 3), affine=True)
    instance((3, 4, 5, 3), affine=True, running=True, momentum=0.3)
    instance((3, 4, 5), running=True, use_input_stats=False)

    for x, size, params in (((2, 7, 5), 3, {}), ((2, 6, 3, 4), 4, {"alpha": 0.3, "beta": 0.6, "k": 2.0}),
                            ((1, 5, 2, 3, 2), 5, {"alpha": 0.5})):
        cases.add("local_response_norm", lambda x: F.local_response_norm(x, size, **params), {"x": torch.randn(x)}, ["x"],
                  {"size": size} | params)


def interpolations(cases):
    def add(x, mode, **params):
        cases.add("interpolate", lambda x: F.interpolate(x, mode=mode, **params), {"x": torch.randn(x)}, ["x"],
                  {"mode": mode} | params)

    add((2, 3, 7), "nearest", size=12)
    add((2, 3, 5, 6), "nearest", scale_factor=2)
    add((1, 2, 3, 4, 5), "nearest", size=(5, 2, 9))
    add((2, 3, 7), "nearest-exact", size=4)
    add((2, 3, 5, 6), "nearest-exact", scale_factor=(1.7, 0.6))
    add((2, 3, 7), "linear", size=13)
    add((2, 3, 9), "linear", size=4, align_corners=True)
    add((2, 4, 5, 6), "bilinear", scale_factor=2)
    add((2, 4, 5, 6), "bilinear", size=(11, 3), align_corners=True)
    add((2, 4, 5, 7), "bilinear", scale_factor=1.6)
    add((2, 4, 5, 7), "bilinear", scale_factor=1.6, recompute_scale_factor=True)
    add((2, 4, 9, 11), "bilinear", size=(4, 5), antialias=True)
    add((2, 4, 4, 6), "bilinear", size=(9, 2), antialias=True)
    add((1, 3, 3, 4, 2), "trilinear", scale_factor=(2, 0.5, 3))
    add((1, 3, 3, 4, 2), "trilinear", size=(2, 7, 5), align_corners=True)
    add((2, 3, 5, 6), "bicubic", scale_factor=2)
    add((2, 3, 7, 6), "bicubic", size=(4, 11), align_corners=True)
    add((2, 3, 2, 3), "bicubic", size=(5, 7))
    add((2, 3, 12, 9), "bicubic", size=(5, 4), antialias=True)
    add((2, 3, 5, 6), "bicubic", size=(8, 3), antialias=True)
    add((2, 3, 7), "area", size=4)
    add((2, 3, 7, 6), "area", scale_factor=0.5)
    add((2, 3, 1, 1), "bilinear", size=(3, 1), align_corners=True)


def patches(cases):
    def unfold(x, kernel, **params):
        cases.add("unfold", lambda x: F.unfold(x, kernel, **params), {"x": torch.randn(x)}, ["x"], {"kernel": kernel} | params)

    unfold((2, 3, 5, 6), 3)
    unfold((2, 2, 7, 6), (2, 3), dilation=(2, 1), padding=(1, 2), stride=(1, 2))
    unfold((3, 6, 5), 2, stride=2)

    def fold(x, size, kernel, **params):
        cases.add("fold", lambda x: F.fold(x, size, kernel, **params), {"x": torch.randn(x)}, ["x"],
                  {"size": size, "kernel": kernel} | params)

    fold((2, 27, 12), (5, 6), 3)
    fold((2, 12, 28), (7, 6), (2, 3), dilation=(2, 1), padding=(1, 2), stride=(1, 2))
    fold((12, 4), 4, 2, stride=2)

    for name, x, number in (("pixel_shuffle", (2, 12, 3, 4), 2), ("pixel_shuffle", (9, 2, 3), 3),
                            ("pixel_shuffle", (2, 2, 4, 3, 2), 2), ("pixel_unshuffle", (2, 3, 4, 6), 2),
                            ("channel_shuffle", (2, 6, 3, 4), 3), ("channel_shuffle", (2, 6, 5), 2)):
        cases.add(name, lambda x: getattr(F, name)(x, number), {"x": torch.randn(x)}, ["x"], {"number": number})


def pools(cases):
    def unpool(x, kernel, size=None, **params):
        dims = len(x) - 2
        values, indices = getattr(F, f"max_pool{dims}d")(torch.randn(x), kernel, return_indices=True, **params)
        cases.add("max_unpool", lambda x, indices: getattr(F, f"max_unpool{dims}d")(x, indices, kernel, output_size=size, **params),
                  {"x": values}, ["x"], {"kernel": kernel, "dims": dims} | params | ({"size": size[2:]} if size else {}),
                  {"indices": indices})

    unpool((2, 3, 8), 2)
    unpool((2, 3, 7, 8), (2, 3), size=(2, 3, 7, 8))
    unpool((2, 3, 9, 8), 2, size=(2, 3, 9, 8), stride=3, padding=1)  # no windows overlap
    unpool((1, 2, 4, 4, 6), 2)

    def lp(x, power, kernel, **params):
        dims = len(x) - 2
        cases.add("lp_pool", lambda x: getattr(F, f"lp_pool{dims}d")(x, power, kernel, **params), {"x": torch.rand(x) + 0.1}, ["x"],
                  {"power": power, "kernel": kernel, "dims": dims} | params)

    lp((2, 3, 9), 2, 3)
    lp((2, 3, 6, 7), 1.5, (2, 3), stride=2, ceil_mode=True)
    lp((1, 2, 4, 4, 4), 3, 2)


def sampling(cases):
    def sample(x, out, mode, padding, align, scale=1.4):
        tensors = {"x": torch.randn(x), "grid": (torch.rand(x[0], *out, len(out)) * 2 - 1) * scale}
        cases.add("grid_sample", lambda x, grid: F.grid_sample(x, grid, mode, padding, align), tensors,
                  ["x"] if mode == "nearest" else ["x", "grid"], {"mode": mode, "padding": padding, "align": align})

    for padding in ("zeros", "border", "reflection"):
        for align in (False, True):
            sample((2, 3, 5, 4), (3, 6), "bilinear", padding, align)
            sample((2, 2, 4, 6), (4, 3), "nearest", padding, align)
            sample((2, 2, 5, 6), (3, 4), "bicubic", padding, align)
    sample((2, 2, 3, 4, 5), (2, 3, 2), "bilinear", "zeros", False)
    sample((2, 2, 3, 4, 5), (2, 3, 2), "bilinear", "reflection", True)
    sample((2, 2, 3, 4, 5), (2, 3, 2), "nearest", "border", False)
    sample((1, 2, 1, 4), (3, 4), "bilinear", "reflection", True, scale=3)
    for size in ((2, 1, 4, 5), (2, 1, 1, 3), (2, 1, 2, 3, 4)):
        for align in (False, True):
            theta = torch.randn(2, len(size) - 2, len(size) - 1)
            cases.add("affine_grid", lambda theta: F.affine_grid(theta, size, align), {"theta": theta}, ["theta"],
                      {"size": size, "align": align})


def main():
    torch.set_num_threads(1)
    cases = Cases()
    for section in (norms, interpolations, patches, pools, sampling):
        torch.manual_seed(29)  # sections can be added without a change of the others
        section(cases)
    path = HERE / "image_ops.safetensors"
    save_file(cases.tensors, str(path))
    path.chmod(0o644)  # save_file makes it private
    lines = ",\n".join(json.dumps(case) for case in cases.cases)
    (HERE / "image_ops.json").write_text(f'{{"tolerances": {{"functions": {{"floor": 1e-3}}}},\n'
        f' "functions": {{"file": "image_ops.safetensors", "cases": [\n{lines}\n]}}}}\n')


if __name__ == "__main__":
    main()
