#!/usr/bin/env python3
"""How much longer a training step takes next to other programs than on a quiet machine. See README.md.

Runs tern-bench-train quiet, next to one and two busy loops, and at nice 10 next to one, in turn. Standard library only.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROWS = ["train-base-8x128", "train-base-4x512", "train-small-16x256", "train-tiny-32x256", "train-lstm-32x64",
        "infer-base-8x128", "infer-tiny-32x256", "train-vit-64", "infer-vit-64", "imdb-tiny", "imdb-small", "tokenizer",
        "jpeg-folder", "cifar-augment"]
NEED_DATA = ("imdb-tiny", "imdb-small", "tokenizer", "jpeg-folder", "cifar-augment")
# Name: (busy loops, nice value of the program, maximum of a step's time relative to "quiet").
SETTINGS = {"quiet": (0, 0, None), "one": (1, 0, 2.0), "two": (2, 0, 2.5), "nice": (1, 10, 2.5)}
HEADINGS = {"quiet": "quiet", "one": "next to one busy loop", "two": "next to two", "nice": "at nice 10 next to one"}
CONTROLS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")


def before_others():
    """Continues in a session whose programs get nearly all of the processors' time."""
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.setsid()
    pathlib.Path("/proc/self/autogroup").write_text("-20")


def measure(command, setting, cores, timeout):
    """Seconds of an item (token, image), or a text that says what went wrong."""
    loops, nice, _ = SETTINGS[setting]
    environment = {k: v for k, v in os.environ.items() if k not in CONTROLS}

    def prepare():
        os.sched_setaffinity(0, cores)

    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=prepare) for _ in range(loops)]
    try:
        time.sleep(0.3 if busy else 0)
        done = subprocess.run(["nice", "-n", str(nice), *command], capture_output=True, text=True, env=environment,
                              timeout=timeout, preexec_fn=prepare)
    except subprocess.TimeoutExpired:
        return f"not done after {timeout:.0f} s"
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()
    if done.returncode != 0:
        return ((done.stderr or done.stdout).strip().splitlines() or ["no result"])[-1]
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])["seconds"]


def table(times, settings):
    lines = ["| row | " + " | ".join(HEADINGS[s] for s in settings) + " |", "|---" + "|--:" * len(settings) + "|"]
    failed = False
    for row, of_row in times.items():
        quiet = None
        cells = []
        for setting in settings:
            values = [v for v in of_row[setting] if not isinstance(v, str)]
            if not values:
                failed = True
                cells.append("; ".join(dict.fromkeys(of_row[setting])))
                continue
            middle = statistics.median(values)
            if setting == "quiet":
                quiet = middle
            limit = SETTINGS[setting][2]
            ratio = middle / quiet if quiet and limit else None
            over = ratio is not None and ratio > limit
            failed |= over
            cells.append(f"{1e6 * middle:,.3f} us{f', {ratio:.2f}' if ratio else ''}{' (too long)' if over else ''}")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tern", required=True, action="append",
                        help="the program tern-bench-train; a second one is measured in turn with the first")
    parser.add_argument("--rows", default="", help=f"comma-separated (default: {','.join(ROWS)}; those with data "
                                                   "only where TERN_DATA is set)")
    parser.add_argument("--settings", default=",".join(SETTINGS), help=f"of {','.join(SETTINGS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="per measurement")
    parser.add_argument("--threads", type=int, default=2, help="and cores")
    parser.add_argument("--before-others", action="store_true",
                        help="measure on a machine that is not quiet (root; the kernel's autogroups)")
    parser.add_argument("--json", type=pathlib.Path, help="where all measurements go")
    options = parser.parse_args()
    rows = [row for row in ROWS if "TERN_DATA" in os.environ or row not in NEED_DATA]
    if options.rows:
        rows = options.rows.split(",")
    settings = options.settings.split(",")
    unknown = [r for r in rows if r not in ROWS] + [s for s in settings if s not in SETTINGS]
    if unknown:
        parser.error(f"unknown row or setting {unknown[0]}")
    if options.before_others:
        before_others()
    cores = sorted(os.sched_getaffinity(0))[:options.threads]
    timeout = 60 + 30 * options.seconds
    times = {program: {row: {setting: [] for setting in settings} for row in rows} for program in options.tern}
    for row in rows:
        for turn in range(options.rounds):
            for setting in settings:
                for program in options.tern:
                    command = [program, "--rows", row, "--seconds", str(options.seconds), "--threads",
                               str(options.threads), "--json", "-"]
                    result = measure(command, setting, cores, timeout)
                    times[program][row][setting].append(result)
                    shown = result if isinstance(result, str) else f"{1e6 * result:,.3f} us"
                    print(f"{row}  {turn + 1}/{options.rounds}  {setting}: {shown}", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(times, indent=1) + "\n")
    failed = False
    for program, of_program in times.items():
        text, bad = table(of_program, settings)
        failed |= bad
        print((f"{program}\n" if len(times) > 1 else "") + text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
