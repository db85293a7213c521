#!/usr/bin/env python3
"""Runs Tern and PyTorch in turn on the same rows, threads and cores; prints a table and saves it. See README.md.

compare.sh prepares both sides and calls this. Standard library only.
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
GOALS = {  # row: (goal, minimum), ratios Tern / PyTorch in the same run
    "train-base-8x128": (1.05, 1.0), "train-base-4x512": (1.4, 1.2), "train-small-16x256": (1.8, 1.4),
    "train-tiny-32x256": (2.5, 1.8), "infer-base-8x128": (1.2, 1.2), "infer-tiny-32x256": (1.5, 1.5),
    "train-vit-64": (1.8, 1.4), "infer-vit-64": (1.5, 1.5), "imdb-tiny": (2.0, 2.0), "imdb-small": (2.0, 2.0),
    "tokenizer": (8.0, 8.0), "jpeg-folder": (1.3, 1.3), "cifar-augment": (10.0, 10.0)}
NO_MODEL = ("tokenizer", "jpeg-folder", "cifar-augment")
RATES = {"wall": "per_second", "cpu": "per_cpu_second"}
GPU_ROWS = ("train-base-32x512", "train-base-12x512", "infer-base-128x128", "imdb-base")  # for --device cuda: no goals
WHOLE = "tern_full_last_layer"  # Tern with all rows of the last layer, also those that the classifier does not read


def run_child(command, threads, cores, timeout, value="per_second"):
    """One measurement in a process of its own; returns its JSON line, or {"error": ...}. `value` must be in it."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout,
                              preexec_fn=lambda: os.sched_setaffinity(0, cores))
    except (OSError, subprocess.TimeoutExpired) as problem:
        return {"error": str(problem)}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        reason = (done.stderr.strip().splitlines() or ["no result"])[-1]
        return {"error": f"status {done.returncode}: {reason}"}
    try:
        result = json.loads(lines[-1])
    except ValueError as problem:
        return {"error": f"not JSON: {problem}"}
    if not 0 < result.get(value, 0) < math.inf:
        return {"error": f"no {value}: {lines[-1]}"}
    return result


def unit(row):
    return "images" if "-vit-" in row or row in ("jpeg-folder", "cifar-augment") else "tokens"


def measure(sides, rows, options):
    """All rounds of a row before the next row, the sides in turn, so that both see the same state of the machine."""
    cores = sorted(os.sched_getaffinity(0))[:options.threads]
    timeout = 60 + 30 * options.seconds
    results, rate = {}, RATES[options.clock]
    for row in rows:
        wanted = {name: command for name, command in sides.items() if name != WHOLE or row not in NO_MODEL}
        results[row] = {name: [] for name in wanted}
        for turn in range(options.rounds):
            for name, command in wanted.items():
                arguments = [row, "--seconds", str(options.seconds), "--threads", str(options.threads)]
                result = run_child(command + arguments, options.threads, cores, timeout)
                results[row][name].append(result)
                shown = result.get("error") or f"{result[rate]:,.0f} {unit(row)}/s"
                print(f"{row}  {turn + 1}/{options.rounds}  {name}: {shown}", file=sys.stderr, flush=True)
    return results


def table(results, options):
    """One line a row: medians over the rounds, their ratio, the spread of each side, the goal and whether it is met."""
    lines = []
    for row, sides in results.items():
        rates = {name: [r[RATES[options.clock]] for r in runs if "error" not in r] for name, runs in sides.items()}
        line = {"row": row}
        for name, values in rates.items():
            line[name] = statistics.median(values) if values else None
            line[f"{name}_spread"] = [min(values), max(values)] if values else None
        line["ratio"] = line["tern"] / line["pytorch"] if line["tern"] and line["pytorch"] else None
        line["ratio_full_last_layer"] = line[WHOLE] / line["pytorch"] if line.get(WHOLE) and line["pytorch"] else None
        line["goal"], line["least"] = GOALS.get(row, (0.0, 0.0)) if options.device == "cpu" else (0.0, 0.0)
        line["met"] = line["ratio"] is not None and line["ratio"] >= line["goal"]
        lines.append(line)
    return lines


def show(lines):
    def number(value):
        return "-" if value is None else f"{value:,.0f}"

    def spread(values):
        return "-" if values is None else f"{values[0]:,.0f} - {values[1]:,.0f}"

    def times(value):
        return "-" if value is None else f"{value:.2f}"

    text = ["| row | Tern, per second | PyTorch, per second | ratio | ratio, whole last layer | Tern min - max "
            "| PyTorch min - max | goal (least) | |",
            "|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for line in lines:
        verdict = "met" if line["met"] else "least" if line["ratio"] and line["ratio"] >= line["least"] else "missed"
        if not line["goal"]:
            verdict = ""
        text.append(f"| {line['row']}, {unit(line['row'])} | {number(line['tern'])} | {number(line['pytorch'])} | "
                    f"{times(line['ratio'])} | {times(line['ratio_full_last_layer'])} | "
                    f"{spread(line['tern_spread'])} | {spread(line['pytorch_spread'])} | "
                    f"{line['goal']:.2f} ({line['least']:.2f}) | {verdict if line['ratio'] else 'no result'} |")
    return "\n".join(text) + "\n"


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


def gpu_name(options):
    if options.device == "cpu":
        return ""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "GPU"
    return done.stdout.strip().split("\n")[0] or "GPU"


def about_machine():
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": git("rev-parse", "--short", "HEAD") or "none", "uncommitted": bool(git("status", "--porcelain")),
            "cpu": processor(), "system": platform.platform()}


def file_word(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def describe(results, options, gemm, load):
    versions = next((r["versions"] for sides in results.values() for r in sides["pytorch"] if "versions" in r), {})
    return about_machine() | {
            "threads": options.threads, "rounds": options.rounds, "seconds": options.seconds, "device": options.device,
            "dtype": options.dtype, "gpu": gpu_name(options), "clock": options.clock, "load_before": load,
            "note": options.note, "versions": versions,
            "pytorch_gemm_gflops": gemm.get("gflops" if options.clock == "wall" else "cpu_gflops")}


def save(folder, name, about, lines, results):
    folder.mkdir(parents=True, exist_ok=True)
    device = file_word(about["cpu"]["name"] if about["device"] == "cpu" else about["gpu"].split(",")[0]) or "cpu"
    stem = folder / f"{about['date'][:10]}-{device}{'-' + name if name else ''}"
    stem.with_suffix(".json").write_text(json.dumps({"about": about, "table": lines, "runs": results}, indent=1) + "\n")
    gemm = about["pytorch_gemm_gflops"]
    where = "the CPU" if about["device"] == "cpu" else about["gpu"]
    text = (f"# Tern and PyTorch on {where}, {about['date'][:10]}\n\n"
            f"{about['cpu']['name']} (family {about['cpu']['family']}, model {about['cpu']['model']}; "
            f"{', '.join(about['cpu']['features'])}), {about['threads']} thread{'s' * (about['threads'] > 1)}; "
            f"commit {about['commit']}"
            f"{' with uncommitted changes' if about['uncommitted'] else ''}; "
            f"{', '.join(f'{k} {v}' for k, v in about['versions'].items())}; "
            f"torch.mm {about['dtype']} {'-' if gemm is None else f'{gemm:.0f}'} GFLOP/s; "
            f"load before {about['load_before']:.1f}. {about['note']}\n"
            f"{about['dtype']}, median of {about['rounds']} rounds of {about['seconds']:g} s in turn; "
            f"real tokens, or images, a second{' of processor time' if about['clock'] == 'cpu' else ''}. "
            "Whole last layer: with --full-last-layer (see bench/compare/README.md).\n\n")
    stem.with_suffix(".md").write_text(text + show(lines))
    return stem


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", required=True, help="the program tern-bench-train")
    parser.add_argument("--python", required=True, help="a Python with the packages of requirements.txt")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast on both sides")
    parser.add_argument("--compile", action="store_true", help="torch.compile PyTorch's model")
    parser.add_argument("--rows", help="comma-separated (default: those of the table in README.md for the device)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="per measurement")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--clock", choices=tuple(RATES), default="wall",
                        help="cpu: items a second of the processor's time, where others want the same cores")
    parser.add_argument("--no-gemm", action="store_true", help="do not measure PyTorch's own matrix rate")
    parser.add_argument("--note", default="", help="what else ran, for the record")
    parser.add_argument("--name", default="", help="added to the names of the files of results")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    options = parser.parse_args()
    default = GOALS if options.device == "cpu" else GPU_ROWS
    rows = options.rows.split(",") if options.rows else list(default)
    known = [*GOALS, *GPU_ROWS]
    unknown = [row for row in rows if row not in known]
    if unknown or options.rounds < 1 or not 1 <= options.threads <= len(os.sched_getaffinity(0)):
        parser.error(f"unknown row {unknown[0]}; known: {', '.join(known)}" if unknown
                     else "--rounds must be 1 or more, --threads between 1 and the number of cores")
    load = os.getloadavg()[0]
    if load > 0.5 and options.device == "cpu" and options.clock == "wall":
        print(f"compare: the machine is busy (load {load:.1f}): the numbers will not mean much", file=sys.stderr)
    setting = ["--device", options.device, "--dtype", options.dtype]
    pytorch = [options.python, str(HERE / "pytorch_side.py"), *setting, *["--compile"] * options.compile]
    tern = [options.tern, *setting]
    cores = sorted(os.sched_getaffinity(0))[:options.threads]
    gemm = {} if options.no_gemm else run_child(
        pytorch + ["gemm", "--seconds", "3", "--threads", str(options.threads)], options.threads, cores, timeout=120,
        value="gflops")
    sides = {"tern": tern, WHOLE: [*tern, "--full-last-layer"], "pytorch": pytorch}
    results = measure(sides, rows, options)
    lines = table(results, options)
    stem = save(options.results, options.name, describe(results, options, gemm, load), lines, results)
    print(show(lines) + f"\nsaved: {stem}.json and .md")
    return 0 if all(line["ratio"] is not None for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
