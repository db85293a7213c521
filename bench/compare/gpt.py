#!/usr/bin/env python3
"""Whole trainings of docs/examples/char_gpt.cpp and of the same model in PyTorch, seed by seed in turn, by one recipe:
the text are reviews of IMDB, batches are windows that begin anywhere, AdamW with a cosine schedule; fp32. Prints the
loss of each run's last tenth and its time, and what the two sides differ in. Started by compare.sh gpt.

  gpt.py --tern PROGRAM --python PYTHON [--seeds 1,2,3] [--steps 600] [--threads N]
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

RECIPE = {"batch": 16, "context": 128, "lr": 2e-3, "width": 128, "layers": 4, "heads": 4, "kv_heads": 2}


def train(text, seed, steps, threads):
    """PyTorch's side; the result is what char_gpt prints at its end."""
    import torch
    from pytorch_gpt import make_gpt
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    known = sorted(set(text))
    ids = torch.tensor([known.index(c) for c in text])
    batch, context = RECIPE["batch"], RECIPE["context"]
    model = make_gpt(len(known), RECIPE["width"], RECIPE["layers"], RECIPE["heads"], RECIPE["kv_heads"])
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0}],
                                  lr=RECIPE["lr"], betas=(0.9, 0.99), fused=True)
    warmup = math.ceil(0.05 * steps)

    def factor(step):  # Tern's cosine_schedule
        if step < warmup:
            return step / warmup
        share = (step - warmup) / max(1, steps - warmup)
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * share))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    losses, start = [], time.perf_counter()
    for _ in range(steps):
        at = torch.randint(0, len(ids) - context, (batch, 1)) + torch.arange(context)
        loss = torch.nn.functional.cross_entropy(model(ids[at]).flatten(0, 1), ids[at + 1].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    tenth = max(1, steps // 10)
    return {"loss": statistics.fmean(losses[-tenth:]), "seconds": time.perf_counter() - start}


def run_tern(program, path, seed, steps):
    words = [f"{name}={value}" for name, value in (RECIPE | {"steps": steps, "seed": seed, "low": 0, "length": 0,
                                                             "compare": 0}).items()]
    output = subprocess.run([program, path, *words], check=True, capture_output=True, text=True).stdout
    last = [line for line in output.splitlines() if line.startswith("step ")][-1]
    loss, speed = float(last.split("loss ")[1].split(",")[0]), float(last.split(", ")[1].split()[0])
    return {"loss": loss, "seconds": steps * RECIPE["batch"] * RECIPE["context"] / speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", required=True, help="a built example_char_gpt")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--train", nargs=2, metavar=("TEXT", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads)}
    if options.train:
        text = pathlib.Path(options.train[0]).read_bytes().decode("latin-1")
        return print(json.dumps(train(text, int(options.train[1]), options.steps, options.threads)))
    folder = pathlib.Path(os.environ.get("TERN_DATA", "data")) / "aclImdb/train/pos"
    if not folder.is_dir():
        parser.error(f"{folder} not found: set TERN_DATA to the folder that holds aclImdb")
    with tempfile.NamedTemporaryFile() as file:
        for path in sorted(folder.glob("*.txt"))[:400]:
            file.write(path.read_bytes() + b"\n")
        file.flush()
        runs = []
        for seed in options.seeds.split(","):
            here = run_tern(options.tern, file.name, seed, options.steps)
            words = ["--tern", options.tern, "--train", file.name, seed, "--steps", str(options.steps)]
            other = json.loads(subprocess.run([options.python, __file__, *words, "--threads", str(options.threads)],
                                              check=True, capture_output=True, text=True).stdout)
            runs.append((here, other))
            print(f"seed {seed}: Tern loss {here['loss']:.3f} in {here['seconds']:.1f} s, PyTorch "
                  f"{other['loss']:.3f} in {other['seconds']:.1f} s", flush=True)
    difference = statistics.fmean(here["loss"] - other["loss"] for here, other in runs)
    ratio = statistics.median(other["seconds"] / here["seconds"] for here, other in runs)
    print(f"{options.steps} steps, {options.threads} threads: mean difference of the losses {difference:+.3f}; "
          f"Tern is {ratio:.2f} times as fast (median)")


if __name__ == "__main__":
    main()
