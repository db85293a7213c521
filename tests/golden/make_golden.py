#!/usr/bin/env python3
"""Writes the reference numbers of this folder from PyTorch and transformers: see README.md. Deterministic by seed."""
import argparse
import hashlib
import json
import pathlib

import numpy
import safetensors
import torch
import transformers
from safetensors.torch import save_file

import golden_models
import golden_ops
import golden_schedules
import golden_vit

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCES = {
    # |difference| <= relative * max(|reference|, floor * |all results of the case|), norms per tensor.
    "ops": {"float32": 1e-5, "float64": 1e-10, "floor": 1e-3},
    "attention": {"float32": 1e-5, "float64": 1e-10, "floor": 1e-3},
    "models": {"float32": 1e-4, "float64": 1e-9, "floor": 1e-3},
    # |difference| <= relative * |reference|, norms.
    "optimizers": {"float32": 1e-5, "float64": 1e-12},
    "schedules": {"absolute": 1e-12},
    # absolute per loss, relative per final norm (attention.k_lin.bias left out: its gradient is zero, its path noise).
    "loss_curve": {"loss": 2e-5, "norm": 1e-5},
}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="folder to write to (default: this one)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the order of sums does not depend on the machine
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    index = {"seed": options.seed, "made_with": {
        "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__,
        "safetensors": safetensors.__version__, "numpy": numpy.__version__}, "tolerances": TOLERANCES}

    for name, make in (("ops", golden_ops.op_cases), ("attention", golden_ops.attention_cases)):
        torch.manual_seed(options.seed)
        cases = make()
        save_file(cases.tensors, str(out / f"{name}.safetensors"))
        index[name] = {"file": f"{name}.safetensors", "cases": cases.cases}

    torch.manual_seed(options.seed)
    tensors, index_of_optimizers = golden_ops.optimizer_cases()
    save_file(tensors, str(out / "optimizer.safetensors"))
    index["optimizers"] = {"file": "optimizer.safetensors", "cases": index_of_optimizers}

    write_json(out / "schedules.json",
               {"hugging_face": golden_ops.schedules(), "torch": golden_schedules.torch_schedules()})
    index["schedules"] = {"file": "schedules.json"}

    index["models"] = []
    for name, config in golden_models.MODELS.items():
        torch.manual_seed(options.seed)
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        lengths = [31, 1, 7, 18, 31, 2] if name == "distilbert_gelu" else [40, 3, 17]
        index["models"].append(golden_models.write_model(folder, config, lengths))

    for name in golden_vit.MODELS:
        torch.manual_seed(options.seed)
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        index["models"].append(golden_vit.write_model(folder, name))

    torch.manual_seed(options.seed)
    folder = out / "loss_curve"
    folder.mkdir(parents=True, exist_ok=True)
    name = "distilbert_gelu"
    curve = golden_models.write_loss_curve(folder, out / name, golden_models.MODELS[name])
    write_json(folder / "loss_curve.json", curve)
    index["loss_curve"] = {"file": "loss_curve/loss_curve.json", "batches": "loss_curve/batches.safetensors"}

    files = sorted(p for p in out.rglob("*") if p.suffix == ".safetensors" or p.name == "schedules.json")
    for path in files:
        path.chmod(0o644)  # save_file makes it private
    index["sha256"] = {str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    write_json(out / "index.json", index)
    check(index, curve)


def check(index, curve):
    """PyTorch's own float32 must pass the tolerances with a margin, or they say nothing about Tern."""
    found = [(case["name"], case["float32_error"], TOLERANCES[part]["float32"])
             for part in ("ops", "attention", "optimizers") for case in index[part]["cases"]]
    found += [(model["folder"], model["float32_error"], TOLERANCES["models"]["float32"]) for model in index["models"]]
    found += [("loss_curve losses", curve["float32_loss_difference"], TOLERANCES["loss_curve"]["loss"]),
              ("loss_curve norms", curve["float32_norm_relative_difference"], TOLERANCES["loss_curve"]["norm"])]
    for name, error, tolerance in found:
        print(f"{name:28} float32 error {error:.2e}  tolerance {tolerance:.0e}")
        if not error <= tolerance / 2:
            raise SystemExit(f"make_golden: {name}: PyTorch's float32 error {error:.2e} is above half the tolerance")


if __name__ == "__main__":
    main()
