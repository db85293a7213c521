#!/usr/bin/env python3
"""Writes cnn.json: what torchvision's and timm's convolutional networks compute from weights that are a function of their
names, so that no weights need to be stored. The test has the same function (tests/models/cnn_test.cpp)."""
import json
import math
import pathlib

import numpy as np
import timm
import torch
import torchvision

HERE = pathlib.Path(__file__).resolve().parent
CLASSES = 7


def uniform(name, count):
    """Numbers in [0, 1): splitmix64 of FNV-1a of the name plus the index."""
    base = 0xcbf29ce484222325
    for byte in name.encode():
        base = ((base ^ byte) * 0x100000001b3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(base) + np.arange(count, dtype=np.uint64) + np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.float64) / 2**24


def value(name, shape):
    u = uniform(name, math.prod(shape))
    if name.endswith("running_var") or (name.endswith("weight") and len(shape) == 1):
        u = 0.3 + 0.5 * u if name.endswith("weight") else 0.5 + u
    elif len(shape) > 1:
        u = (2 * u - 1) * math.sqrt(3 / math.prod(shape[1:]))
    else:
        u = (2 * u - 1) * 0.2
    return torch.from_numpy(u.astype(np.float32)).reshape(shape)


def fill(model):
    state = {name: value(name, tuple(t.shape)) if t.is_floating_point() else t for name, t in model.state_dict().items()}
    model.load_state_dict(state)
    return model.double()


def small_resnet18(**options):
    model = torchvision.models.resnet18(**options)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = torch.nn.Identity()
    return model


def features(model, images):
    """What the last linear layer reads."""
    read = []
    last = [m for m in model.modules() if isinstance(m, torch.nn.Linear)][-1]
    hook = last.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    model(images)
    hook.remove()
    return read[0]


def case(name, make, side, **options):
    model = fill(make(num_classes=CLASSES, **options))
    images = (torch.from_numpy(uniform("images", 3 * 3 * side * side)).reshape(3, 3, side, side) * 4 - 2).float().double()
    model.eval()
    with torch.no_grad():
        logits = model(images)
        read = features(model, images)
        mix = torch.from_numpy(uniform("features", read.numel())).reshape(read.shape) - 0.5
        single = model.float()(images.float()).double()
    model.double().train()
    trained = model(images)
    weights = torch.from_numpy(uniform("loss", trained.numel())).reshape(trained.shape) - 0.5
    (trained * weights).sum().backward()
    slopes = {}
    for key, p in model.named_parameters():
        along = torch.from_numpy(uniform("along " + key, p.numel())).reshape(p.shape) - 0.5
        slopes[key] = [float((p.grad * along).sum()), float(p.grad.norm())]
    means = {key: float(b.norm()) for key, b in model.named_buffers() if key.endswith(("running_mean", "running_var"))}
    return {"name": name, "side": side, "parameters": sum(p.numel() for p in model.parameters()),
            "logits": logits.tolist(),
            "features": [read.shape[1], (read * mix).sum(1).tolist(), read.norm(dim=1).tolist()],
            "float32_error": float((single - logits).abs().max()),
            "train_logits": trained.tolist(), "slopes": slopes, "buffers": means}


def main():
    torch.set_num_threads(2)
    models = torchvision.models
    cases = [case("resnet18", models.resnet18, 64), case("resnet34", models.resnet34, 33),
             case("resnet50", models.resnet50, 64), case("resnext50_32x4d", models.resnext50_32x4d, 40),
             case("resnet18 small", small_resnet18, 32),
             case("seresnet18", lambda **o: timm.create_model("seresnet18", **o), 48),
             case("seresnet50", lambda **o: timm.create_model("seresnet50", **o), 48),
             case("mobilenet_v2", models.mobilenet_v2, 64, dropout=0.0),
             case("mobilenet_v3_small", models.mobilenet_v3_small, 64, dropout=0.0),
             case("mobilenet_v3_large", models.mobilenet_v3_large, 48, dropout=0.0),
             case("efficientnet_b0", models.efficientnet_b0, 64, dropout=0.0, stochastic_depth_prob=0.0)]
    lines = ",\n".join(json.dumps(c) for c in cases)
    (HERE / "cnn.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
