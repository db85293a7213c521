#!/usr/bin/env python3
"""Trains the same Vision Transformer with Tern and with PyTorch, each seed in turn; prints a table and saves it.

  compare.sh cifar [--seeds 1,2,3]
compare.sh prepares both sides and calls this. --join makes the table from the lines of earlier runs, for instance of
several seeds on a core each. See README.md. Standard library only.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MIN_TIME = 1.4  # PyTorch's time / Tern's
MAX_POINTS = 1.0  # difference of the mean accuracies
RECIPE = ("--images", "10000", "--epochs", "3", "--batch-size", "64", "--lr", "0.0003", "--dropout", "0")


def run(command, threads, cores):
    """The JSON lines of a side's run; shows them as they come."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment,
                          preexec_fn=lambda: os.sched_setaffinity(0, cores)) as child:
        for text in child.stdout:
            print(text, end="", file=sys.stderr, flush=True)
            lines.append(json.loads(text))
    if child.returncode != 0 or not lines or "test_accuracy" not in lines[-1]:
        raise SystemExit(f"cifar: {command[0]} ended with status {child.returncode} and no result")
    return lines


def table(lines):
    """Text, and whether both goals are met."""
    ends = {side: sorted((line for line in lines if line["side"] == side and "test_accuracy" in line),
                         key=lambda line: line["seed"]) for side in ("tern", "pytorch")}
    seeds = [[line["seed"] for line in side] for side in ends.values()]
    if seeds[0] != seeds[1] or not seeds[0]:
        raise SystemExit(f"cifar: the sides have the seeds {seeds[0]} and {seeds[1]}")
    text = ["| seed | side | test accuracy | test loss | last epoch's loss | processor seconds of training | seconds |",
            "|--:|---|--:|--:|--:|--:|--:|"]
    for pair in zip(*ends.values()):
        for end in pair:
            epochs = [line for line in lines if "epoch" in line and
                      (line["side"], line["seed"]) == (end["side"], end["seed"])]
            text.append(f"| {end['seed']} | {end['side']} | {100 * end['test_accuracy']:.2f} % | "
                        f"{end['test_loss']:.4f} | {epochs[-1]['loss']:.4f} | {end['train_cpu_seconds']:.0f} | "
                        f"{end['train_seconds']:.0f} |")

    def mean(side, name):
        return statistics.mean(end[name] for end in ends[side])

    points = 100 * (mean("tern", "test_accuracy") - mean("pytorch", "test_accuracy"))
    ratio = mean("pytorch", "train_cpu_seconds") / mean("tern", "train_cpu_seconds")
    wall = mean("pytorch", "train_seconds") / mean("tern", "train_seconds")
    met = abs(points) <= MAX_POINTS and ratio >= MIN_TIME
    several = len(seeds[0]) > 1
    spread = {side: statistics.stdev(100 * end["test_accuracy"] for end in own) if several else math.nan
              for side, own in ends.items()}
    text.append("")
    text.append(f"Mean test accuracy: Tern {100 * mean('tern', 'test_accuracy'):.2f} % (standard deviation "
                f"{spread['tern']:.2f}), PyTorch {100 * mean('pytorch', 'test_accuracy'):.2f} % "
                f"({spread['pytorch']:.2f}): {points:+.2f} points (goal: within {MAX_POINTS:g}). PyTorch's training "
                f"takes {ratio:.2f} x Tern's processor time (goal: {MIN_TIME:g}), {wall:.2f} x its time on the "
                f"clock. {'Met' if met else 'Missed'}.")
    return "\n".join(text) + "\n", met


def processor():
    info = pathlib.Path("/proc/cpuinfo").read_text()

    def field(name):
        found = re.search(rf"^{name}\s*:\s*(.*)$", info, re.MULTILINE)
        return found.group(1).strip() if found else ""

    flags = set(field("flags").split())
    kept = [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16") if f in flags]
    return {"name": field("model name"), "family": field("cpu family"), "model": field("model"), "features": kept,
            "visible_cores": len(os.sched_getaffinity(0))}


def git(*arguments):
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def about_machine():
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": git("rev-parse", "--short", "HEAD") or "none", "uncommitted": bool(git("status", "--porcelain")),
            "cpu": processor(), "system": platform.platform()}


def file_word(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def save(folder, lines, text, options, load):
    folder.mkdir(parents=True, exist_ok=True)
    about = about_machine() | {"threads": options.threads, "recipe": " ".join(RECIPE), "load_before": load,
                                       "note": options.note}
    stem = folder / f"{about['date'][:10]}-{file_word(about['cpu']['name'])}-cifar"
    stem.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in [about, *lines]))
    stem.with_suffix(".md").write_text(
        f"# CIFAR-10, three epochs over 10,000 images: Tern and PyTorch, {about['date'][:10]}\n\n"
        f"{about['cpu']['name']} (family {about['cpu']['family']}, model {about['cpu']['model']}), {options.threads} "
        f"thread{'s' if options.threads > 1 else ''}; commit {about['commit']}"
        f"{' with uncommitted changes' if about['uncommitted'] else ''}; `{about['recipe']}`, fp32; load before "
        f"{load:.1f}. {options.note}\n\n{text}")
    return stem


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", required=True, help="the program tern-bench-cifar")
    parser.add_argument("--python", required=True, help="a Python with the packages of requirements.txt")
    parser.add_argument("--data", help="the folder cifar-10-batches-bin; default: the one in $TERN_DATA")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--join", type=pathlib.Path, nargs="+", metavar="FILE",
                        help="lines of earlier runs: run nothing")
    parser.add_argument("--note", default="", help="what else ran, for the record")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    if options.join:
        lines = [json.loads(text) for path in options.join for text in path.read_text().splitlines()]
    else:
        data = options.data or os.path.join(os.environ.get("TERN_DATA", "data"), "cifar-10-batches-bin")
        cores = sorted(os.sched_getaffinity(0))[:options.threads]
        sides = ([options.tern], [options.python, str(HERE / "cifar_pytorch.py")])
        lines = [line for seed in options.seeds.split(",") for side in sides
                 for line in run([*side, "--data", data, "--seed", seed, "--threads", str(options.threads), *RECIPE],
                                 options.threads, cores)]
    text, met = table(lines)
    stem = save(options.results, lines, text, options, load)
    print(text + f"\nsaved: {stem}.jsonl and .md")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
