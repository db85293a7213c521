#!/usr/bin/env python3
"""Writes whole_optimizers.safetensors: PyTorch's Adafactor and Muon, whose rules need whole parameters, in float64.
Deterministic by seed. Muon's iterations, which PyTorch rounds to bfloat16, are in float64 too."""
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20
CASES = {
    "adafactor": (torch.optim.Adafactor, {}),
    "adafactor_all": (torch.optim.Adafactor, {"lr": 0.3, "beta2_decay": -0.5, "eps": (1e-8, 1e-2), "d": 2.0,
                                              "weight_decay": 0.1, "maximize": True}),
    "muon": (torch.optim.Muon, {}),
    "muon_all": (torch.optim.Muon, {"lr": 0.02, "weight_decay": 0.05, "momentum": 0.8, "nesterov": False, "ns_steps": 3,
                                    "ns_coefficients": (3.0, -3.2, 1.2), "eps": 1e-6}),
    "muon_rms": (torch.optim.Muon, {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw"}),
    "muon_spectral": (torch.optim.Muon, {"lr": 0.02, "adjust_lr_fn": "spectral_unclamped"}),
}
SHAPES = {"wide": (5, 9), "tall": (11, 4), "square": (6, 6), "vector": (13,), "stack": (2, 3, 5)}


def main():
    torch.manual_seed(20261126)
    torch.bfloat16 = torch.float64
    tensors = {}
    for shape_name, shape in SHAPES.items():
        tensors[f"{shape_name}/weight"] = torch.randn(shape, dtype=torch.float64)
        tensors[f"{shape_name}/gradients"] = torch.randn((STEPS, *shape), dtype=torch.float64)
        for name, (kind, options) in CASES.items():
            if name.startswith("muon") and len(shape) != 2:
                continue
            parameter = torch.nn.Parameter(tensors[f"{shape_name}/weight"].clone())
            optimizer = kind([parameter], **options)
            for gradient in tensors[f"{shape_name}/gradients"]:
                parameter.grad = gradient.clone()
                optimizer.step()
            tensors[f"{shape_name}/{name}"] = parameter.detach().clone()
    save_file(tensors, str(HERE / "whole_optimizers.safetensors"))


if __name__ == "__main__":
    main()
