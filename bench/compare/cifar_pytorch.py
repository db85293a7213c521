#!/usr/bin/env python3
"""PyTorch's half of the comparison of whole trainings (cifar.py): tern-bench-cifar's recipe, model and data.

  cifar_pytorch.py --data cifar-10-batches-bin --seed 1 --threads 1
timm's VisionTransformer (faster than Hugging Face's, see pytorch_side.py) with Tern's initialisation; torchvision's
transforms for each image in a DataLoader. Prints one JSON line for each epoch and one at the end.
"""
import argparse
import functools
import json
import math
import pathlib
import time

import numpy
import timm
import torch
from torchvision.transforms import v2

RECORD = 1 + 3 * 32 * 32  # bytes: the label and three planes
MEAN = STD = (0.5, 0.5, 0.5)


def read(paths):
    """Images uint8 [n, 3, 32, 32] and labels of CIFAR-10's binary records."""
    records = numpy.concatenate([numpy.fromfile(path, numpy.uint8).reshape(-1, RECORD) for path in paths])
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return images, torch.from_numpy(records[:, 0].astype("int64"))


class Images(torch.utils.data.Dataset):
    def __init__(self, images, labels, transform):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return self.transform(self.images[row]), self.labels[row]


def make_model(dropout):
    """Tern's preset tiny. Matrices, class token and positions normal(0, 0.02), biases 0."""
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=32, patch_size=4, num_classes=10, embed_dim=192, depth=9, num_heads=3, pos_drop_rate=dropout,
        proj_drop_rate=dropout, attn_drop_rate=dropout, norm_layer=functools.partial(torch.nn.LayerNorm, eps=1e-12))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02)
            elif name.endswith(".bias"):
                parameter.zero_()
    return model


def make_optimizer(model, lr):
    """Weight decay of everything but biases and norms, as Tern's program has it."""
    groups = [[p for p in model.parameters() if p.dim() > 1], [p for p in model.parameters() if p.dim() <= 1]]
    return torch.optim.AdamW([{"params": groups[0], "weight_decay": 0.01}, {"params": groups[1], "weight_decay": 0}],
                             lr=lr, fused=True)


def linear_schedule(optimizer, total):
    """Ten in a hundred steps of warmup, then down to 0."""
    warmup = math.ceil(0.1 * total)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: step / warmup if step < warmup else (total - step) / (total - warmup))


def train(options, model, images, labels):
    plain = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    augment = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), *plain])
    loader = torch.utils.data.DataLoader(Images(images, labels, augment), options.batch_size, shuffle=True)
    optimizer = make_optimizer(model, options.lr)
    schedule = linear_schedule(optimizer, options.epochs * len(loader))
    model.train()
    begin, cpu_begin = time.perf_counter(), time.process_time()
    for epoch in range(options.epochs):
        start, cpu_start, total = time.perf_counter(), time.process_time(), 0.0
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(json.dumps({"side": "pytorch", "seed": options.seed, "epoch": epoch + 1, "loss": total / len(loader),
                          "seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu_start}),
              flush=True)
    return {"steps": options.epochs * len(loader), "train_seconds": time.perf_counter() - begin,
            "train_cpu_seconds": time.process_time() - cpu_begin}


@torch.inference_mode()
def test(model, images, labels):
    model.eval()
    begin, cpu_begin = time.perf_counter(), time.process_time()
    plain = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    logits = torch.cat([model(plain(part)) for part in images.split(256)])
    return {"test_accuracy": (logits.argmax(1) == labels).double().mean().item(),
            "test_loss": torch.nn.functional.cross_entropy(logits, labels).item(), "test_images": len(labels),
            "test_seconds": time.perf_counter() - begin, "test_cpu_seconds": time.process_time() - cpu_begin}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="the folder cifar-10-batches-bin")
    parser.add_argument("--images", type=int, default=10000, help="the first so many of the training set")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--dropout", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    images, labels = read([options.data / f"data_batch_{i}.bin" for i in range(1, 6)])
    model = make_model(options.dropout)
    result = train(options, model, images[:options.images], labels[:options.images])
    result |= test(model, *read([options.data / "test_batch.bin"]))
    print(json.dumps({"side": "pytorch", "seed": options.seed, "threads": options.threads} | result))


if __name__ == "__main__":
    main()
