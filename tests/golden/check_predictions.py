#!/usr/bin/env python3
"""Compares Tern with the expected.jsonl of folders that make_random_distilbert.py wrote: ids, labels and logits.

  for i in $(seq 20); do tests/golden/make_random_distilbert.py build/random/$i $i; done
  tests/golden/check_predictions.py build/release/bin/tern build/random/*
Prints the largest difference of a logit for each folder; fails above 2e-5 times the largest logit (at least 1).
"""
import json
import pathlib
import subprocess
import sys


def run(command, texts):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"check_predictions: {' '.join(command)}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(program, folder):
    expected = [json.loads(line) for line in (pathlib.Path(folder) / "expected.jsonl").open()]
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    texts = [row["text"] for row in expected]
    ids = run([program, "tokenize", "--jsonl", "--special", "--vocab", f"{folder}/vocab.txt", "--max-length",
               str(config["max_position_embeddings"])], texts)
    predictions = run([program, "predict", folder, "--jsonl"], texts)
    wrong, worst, largest = [], 0.0, 1.0
    if not len(ids) == len(predictions) == len(expected):
        return [f"{len(expected)} texts, {len(ids)} lines of ids, {len(predictions)} predictions"], worst
    for row, own_ids, own in zip(expected, ids, predictions):
        if own_ids["ids"] != row["ids"]:
            wrong.append(f"ids of {row['text'][:40]!r}")
        if own["label"] != row["label"]:
            wrong.append(f"label of {row['text'][:40]!r}: {own['label']}, expected {row['label']}")
        worst = max([worst] + [abs(a - b) for a, b in zip(own["logits"], row["logits"], strict=True)])
        largest = max([largest] + [abs(x) for x in row["logits"]])
    if not worst <= 2e-5 * largest:
        wrong.append(f"logits differ by {worst:.1e}")
    return wrong, worst


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    failed = 0
    for folder in sys.argv[2:]:
        wrong, worst = check(sys.argv[1], folder)
        failed += bool(wrong)
        print(f"{folder}: {worst:.1e}" + "".join(f"; {text}" for text in wrong))
    if failed:
        raise SystemExit(f"check_predictions: {failed} of {len(sys.argv) - 2} folders differ")


if __name__ == "__main__":
    main()
