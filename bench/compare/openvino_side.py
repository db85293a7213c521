#!/usr/bin/env python3
"""OpenVINO's half of the comparison: a baseline of tern-bench-train with the rows of convolutional networks in
inference. The networks and images are those of pytorch_side.py, converted by openvino.convert_model.

  openvino_side.py --serve --threads 1           started by tern-bench-train --baseline (protocol: bench/side.h)
  openvino_side.py --rows ROW,... --seconds 10   measures alone, a line of JSON for each row
One stream on --threads threads. bf16 is the hint inference_precision; where the processor has no bf16 OpenVINO computes
in fp32, and the row is an error.
"""
import argparse
import json
import os
import pathlib
import sys

import pytorch_side

ROWS = {row: pytorch_side.ROWS[row][2:] for row in ("infer-resnet18-128", "infer-mobilenet-16")}


def prepare(row, threads, dtype):
    """The row's step."""
    if row not in ROWS:
        raise KeyError(f"there is no row {row}")
    name, batch, size = ROWS[row]
    import openvino
    import openvino.properties as properties
    import openvino.properties.hint as hint
    import torch
    model = pytorch_side.make_cnn(name, size, train=False).to(memory_format=torch.contiguous_format)
    images = [torch.randn(batch, 3, size, size) for _ in range(8)]
    with torch.inference_mode():
        expected = model(images[0])
    converted = openvino.convert_model(model, example_input=images[0], input=[("x", [batch, 3, size, size])])
    precision = {"fp32": openvino.Type.f32, "bf16": openvino.Type.bf16}[dtype]
    compiled = openvino.Core().compile_model(converted, "CPU", {
        hint.inference_precision: precision, hint.performance_mode: hint.PerformanceMode.LATENCY,
        properties.inference_num_threads: threads, properties.num_streams: 1})
    used = compiled.get_property(hint.inference_precision)
    if used != precision:
        raise RuntimeError(f"OpenVINO computes in {used.get_type_name()} on this processor")
    request = compiled.create_infer_request()
    batches = [openvino.Tensor(x.numpy()) for x in images]  # the images' own memory
    got = torch.from_numpy(request.infer([batches[0]])[0].copy())
    error = ((got - expected).norm() / expected.norm()).item()
    if not error < (1e-3 if dtype == "fp32" else 0.1):
        raise RuntimeError(f"the logits differ from PyTorch's by {error:.2g} of their norm")
    count = 0

    def step():
        nonlocal count
        count += 1
        request.infer([batches[count % len(batches)]], share_outputs=True)
        return batch

    return step


def serve(options):
    """Answers line by line what tern-bench-train asks (bench/side.h)."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(line):
        print(json.dumps(line), file=answers, flush=True)

    say({"setting": {"device": "cpu", "threads": options.threads, "tiny": False},
         "program": str(pathlib.Path(__file__).resolve()), "libraries": [], "rows": list(ROWS), "versions": versions()})
    timed = None
    for line in sys.stdin:
        word, _, row = line.strip().partition(" ")
        try:
            if word == "sample":
                say(timed.sample())
            else:
                timed = None
                timed = pytorch_side.Timed(prepare(row, options.threads, options.dtype))
                say({"work": {"unit": "images"}})
        except (Exception, SystemExit) as problem:
            say({"error": f"{type(problem).__name__}: {problem}"})


def versions():
    from importlib.metadata import version
    return {name: version(name) for name in ("openvino", "torch", "torchvision")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="answer tern-bench-train on standard input")
    parser.add_argument("--rows", default="", help=f"comma-separated, of {', '.join(ROWS)}")
    parser.add_argument("--seconds", type=float, default=10, help="measured, after two steps of warm-up")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", choices=("cpu",), default="cpu")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    for name in ("--full-last-layer", "--no-capture"):
        parser.add_argument(name, action="store_true", help="of other rows")
    options = parser.parse_args()
    # The libraries read these when they start.
    os.environ |= {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads)}
    if options.serve:
        return serve(options)
    rows = options.rows.split(",") if options.rows else list(ROWS)
    unknown = [row for row in rows if row not in ROWS]
    if unknown:
        parser.error(f"unknown row {unknown[0]}")
    for row in rows:
        try:
            step = prepare(row, options.threads, options.dtype)
            result = pytorch_side.measure(step, options.seconds) | {"unit": "images"}
        except (Exception, SystemExit) as problem:
            result = {"error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps({"name": row, "threads": options.threads, "device": "cpu", "dtype": options.dtype} | result |
                         {"versions": versions()}), flush=True)


if __name__ == "__main__":
    main()
