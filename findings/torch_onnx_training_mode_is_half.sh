#!/usr/bin/env bash
# PyTorch's ONNX exporter writes a network that is in training mode as one half in each mode, and what onnxruntime
# computes of it depends on its level of optimization.
#
# Packages: torch 2.15.0, onnxscript 0.7.2, onnx 1.23.2, onnxruntime 1.32.0, numpy 2.4.6 (PyPI), Python 3, x86-64.
# Seen: of a convolution, batch norm, dropout and a linear layer in train() the file has the dropout with training_mode
# true, but the batch norm with its running statistics, folded into the convolution; with optimize=False it is a node
# without training_mode. onnxruntime leaves the dropout out, although training_mode is true, and gives what eval() gives;
# with all optimizations disabled it drops at random, as onnx.reference does.
# Expected: both layers in the mode that the network is in, and one result for one file at every level.
# Why it matters: a file that was exported without eval() passes every comparison in onnxruntime and is random elsewhere;
# and one that was exported in train() on purpose does not train as the network does, since its statistics are constants.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 onnxscript==0.7.2 onnx==1.23.2 \
  onnxruntime==1.32.0 numpy==2.4.6
cat >"$work/run.py" <<'PYTHON'
import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import numpy
import onnx
import onnx.reference
import onnxruntime
import onnxscript
import torch

os.chdir(sys.argv[1])
torch.manual_seed(0)
nn = torch.nn
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 2))
x = torch.randn(64, 3, 6, 6) * 3 + 1
print("torch", torch.__version__.split("+")[0], "onnxscript", onnxscript.__version__, "onnx", onnx.__version__,
      "onnxruntime", onnxruntime.__version__)
for optimize in (True, False):
    program = torch.onnx.export(net.train(), (x,), dynamo=True, verbose=False, optimize=optimize)
    program.save(f"net{optimize}.onnx")
    graph = onnx.load(f"net{optimize}.onnx").graph
    shown = [n.op_type for n in graph.node if n.op_type in ("Conv", "BatchNormalization", "Dropout", "Gemm")]
    modes = [a.i for n in graph.node if n.op_type == "BatchNormalization" for a in n.attribute
             if a.name == "training_mode"]
    print("optimize", optimize, *shown, "training_mode of the batch norm:", modes or "absent")
    if optimize:
        mode = next(n.input[2] for n in graph.node if n.op_type == "Dropout")
        values = [onnx.numpy_helper.to_array(i) for i in graph.initializer if i.name == mode]
        print("training_mode of the dropout:", *values)
with torch.no_grad():
    expected = net.eval()(x).numpy()


def say(name, run):
    a, b = run(), run()
    far = lambda p, q: bool(numpy.abs(p - q).max() > 1e-3)
    print(name, "| two runs differ:", far(a, b), "| differs from eval():", far(a, expected))


for level in ("ORT_ENABLE_ALL", "ORT_ENABLE_BASIC", "ORT_DISABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession("netTrue.onnx", options)
    feed = {session.get_inputs()[0].name: x.numpy()}
    say(level, lambda: session.run(None, feed)[0])
reference = onnx.reference.ReferenceEvaluator("netTrue.onnx")
say("onnx.reference", lambda: reference.run(None, feed)[0])
PYTHON
"$work/venv/bin/python" "$work/run.py" "$work" | tee "$work/out"
diff "$work/out" - <<'SEEN'
torch 2.15.0 onnxscript 0.7.2 onnx 1.23.2 onnxruntime 1.32.0
optimize True Conv Dropout Gemm training_mode of the batch norm: absent
training_mode of the dropout: True
optimize False Conv BatchNormalization Dropout Gemm training_mode of the batch norm: absent
ORT_ENABLE_ALL | two runs differ: False | differs from eval(): False
ORT_ENABLE_BASIC | two runs differ: False | differs from eval(): False
ORT_DISABLE_ALL | two runs differ: True | differs from eval(): True
onnx.reference | two runs differ: True | differs from eval(): True
SEEN
echo "as seen"
