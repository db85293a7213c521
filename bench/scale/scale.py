#!/usr/bin/env python3
"""Starts tern-bench-scale with 1, 2 and 4 processes, over a narrowed link, or in turn with PyTorch. See README.md.

scale.sh prepares what is needed and calls this. Standard library only.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])


def run(command, environment=None, timeout=1800):
    """The last JSON line that the command prints; ends the program with its output when there is none."""
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | (environment or {}),
                          timeout=timeout)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        said = "\n".join((done.stderr + done.stdout).strip().splitlines()[-12:])
        raise SystemExit(f"scale: {' '.join(command)}\nstatus {done.returncode}: {said}")
    return json.loads(lines[-1])


def tern(options, processes, mpi=()):
    command = [*MPIRUN, *mpi, "-n", str(processes), options.tern, "--model", options.model, "--batch",
               str(options.batch), "--steps", str(options.steps), "--threads", str(options.threads)]
    return run(command, {"OMP_NUM_THREADS": str(options.threads)})


def mib(size):
    return f"{size / 2**20:.0f} MiB"


def scaling(options):
    """Step time, exposed communication and memory with 1, 2 and 4 processes of the same batch each."""
    print(f"{options.model}, {options.batch} a process, {options.threads} threads a process, {os.cpu_count()} cores")
    print("| processes | step alone | with exchange | exposed | after backward: step | exposed | zero1: step "
          "| model state ddp / zero1 | peak |")
    print("|---|---|---|---|---|---|---|---|---|")
    results = []
    for processes in options.processes:
        r = tern(options, processes)
        results.append(r)
        seconds, peak = r["step_seconds"], mib(max(r["peak_memory_bytes"]))
        state = {way: mib(max(held)) for way, held in r["model_state_bytes"].items()}
        if processes == 1:
            print(f"| 1 | {seconds['none'] * 1e3:.0f} ms | - | - | - | - | - | {state['none']} | {peak} |", flush=True)
            continue
        exposed = r["exposed_seconds"]
        print(f"| {processes} | {seconds['none'] * 1e3:.0f} ms | {seconds['overlapped'] * 1e3:.0f} ms | "
              f"{exposed['overlapped'] * 1e3:.1f} ms | {seconds['after backward'] * 1e3:.0f} ms | "
              f"{exposed['after backward'] * 1e3:.1f} ms | "
              f"{seconds['zero1'] * 1e3:.0f} ms | {state['overlapped']} / {state['zero1']} | {peak} |", flush=True)
    return results


class Namespaces:
    """Two network namespaces, joined by a pair of virtual cards that let through so many bits a second."""
    NAMES, ADDRESSES = ("tern-a", "tern-b"), ("10.199.77.1", "10.199.77.2")

    def __init__(self, rate):
        self.rate = rate

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def __enter__(self):
        self.__exit__()
        for name in self.NAMES:
            self.ip("netns", "add", name)
        self.ip("link", "add", "tern-a", "netns", "tern-a", "type", "veth", "peer", "name", "tern-b", "netns", "tern-b")
        for name, address in zip(self.NAMES, self.ADDRESSES):
            self.ip("-n", name, "addr", "add", address + "/24", "dev", name)
            self.ip("-n", name, "link", "set", name, "up")
            self.ip("-n", name, "link", "set", "lo", "up")
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", name, "root", "tbf", "rate", self.rate, "burst",
                            "256k", "latency", "50ms"], check=True)
        return self

    def __exit__(self, *_):
        for name in self.NAMES:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)

    def mpirun_words(self):
        """The second process starts in the other namespace, under another host name: MPI then uses the network."""
        return ["--host", ",".join(a + ":1" for a in self.ADDRESSES), "--mca", "plm_rsh_agent", str(HERE / "in_namespace.sh"),
                "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "10.199.77.0/24", "--mca",
                "oob_tcp_if_include", "10.199.77.0/24"]


def link(options):
    """Two processes over a link of --link: what the exchange costs during backward and after it."""
    with Namespaces(options.link) as net:
        global MPIRUN
        MPIRUN = ["ip", "netns", "exec", net.NAMES[0], "unshare", "--uts", "sh", "-c",
                  f"hostname {net.ADDRESSES[0]} && exec \"$@\"", "sh", *MPIRUN]
        r = tern(options, 2, net.mpirun_words())
    print(f"{options.model}, {options.batch} a process, two processes over {options.link} ({r['transport']}), "
          f"{r['exchanged_bytes'] / 1e6:.1f} MB of gradients a step")
    for mode, seconds in r["step_seconds"].items():
        line = f"  {mode:15} {seconds * 1e3:8.1f} ms"
        if mode != "none":
            line += (f", exposed {r['exposed_seconds'][mode] * 1e3:.1f} ms, "
                     f"longer by {r['longer_seconds'][mode] * 1e3:.1f} ms")
        print(line)
    print(f"  exposed share {r['exposed_share'] * 100:.1f} % (at most 25 %), "
          f"longer share {r['longer_share'] * 100:.1f} %")
    return [r]


def against_pytorch(options):
    """Tern over MPI and PyTorch's DistributedDataParallel over Gloo in turn, two processes each."""
    results = {"tern": [], "pytorch": []}
    for turn in range(options.turns):
        results["tern"].append(tern(options, 2))
        results["pytorch"].append(run(
            [options.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             str(HERE / "gloo.py"), "--batch", str(options.batch), "--steps", str(options.steps),
             "--threads", str(options.threads)], {"OMP_NUM_THREADS": str(options.threads)}))
        ours = results["tern"][-1]["step_seconds"]["overlapped"]
        theirs = results["pytorch"][-1]["step_seconds"]
        print(f"{turn + 1}/{options.turns}: Tern {ours * 1e3:.0f} ms, PyTorch {theirs * 1e3:.0f} ms, {ours / theirs:.2f}",
              flush=True)
    ratios = [t["step_seconds"]["overlapped"] / p["step_seconds"] for t, p in zip(results["tern"], results["pytorch"])]
    print(f"step time Tern / PyTorch: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f} "
          "(goal: at most 0.8)")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tern", required=True, help="the program tern-bench-scale")
    parser.add_argument("--python", help="a Python that has torch and transformers")
    parser.add_argument("--model", choices=("text", "vit"), default="text")
    parser.add_argument("--batch", type=int, default=16, help="of each process")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processes", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--link", metavar="RATE", help="two processes over a link of this rate (1gbit); needs root")
    parser.add_argument("--pytorch", action="store_true", help="in turn with PyTorch, two processes")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="where to write everything measured")
    options = parser.parse_args()
    if options.pytorch and not options.python:
        parser.error("--pytorch needs --python")
    results = link(options) if options.link else against_pytorch(options) if options.pytorch else scaling(options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
