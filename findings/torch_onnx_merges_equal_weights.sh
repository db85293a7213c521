#!/usr/bin/env bash
# PyTorch's ONNX exporter stores parameters that are equal at the time as one.
#
# Packages: torch 2.15.0, onnxscript 0.7.2, onnx 1.23.2, numpy 2.4.6 (PyPI), Python 3, x86-64.
# Seen: of a new model of two LayerNorms and two Linear layers whose biases are 0 the file has 4 initializers for the 8
# parameters: 0.weight is the weight of both norms, and 0.bias the bias of all four layers. Of the same model with other
# values each parameter is there, as it is with optimize=False (the default is True). Nothing is reported.
# Expected: an initializer for each parameter, whatever its values are, as state_dict() has them.
# Why it matters: who trains the file, or replaces a weight in it by its name, changes several layers at once. A reader
# that is to train such files has to take equal weights apart again, by what the file says of its nodes' modules.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.15.0 onnxscript==0.7.2 onnx==1.23.2 numpy==2.4.6
cat >"$work/run.py" <<'PYTHON'
import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import onnx
import onnxscript
import torch

os.chdir(sys.argv[1])
torch.manual_seed(0)


def initializers(net, optimize):
    program = torch.onnx.export(net.eval(), (torch.ones(2, 8),), dynamo=True, verbose=False, optimize=optimize)
    program.save("net.onnx")
    return sorted(i.name for i in onnx.load("net.onnx").graph.initializer)


net = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8))
with torch.no_grad():
    net[1].bias.zero_()
    net[3].bias.zero_()
print("torch", torch.__version__.split("+")[0], "onnxscript", onnxscript.__version__, "onnx", onnx.__version__)
print(len(list(net.parameters())), "parameters")
for optimize in (True, False):
    print("new, optimize", optimize, *initializers(net, optimize))
with torch.no_grad():
    for parameter in net.parameters():
        parameter += torch.rand_like(parameter)
print("other values", *initializers(net, True))
PYTHON
"$work/venv/bin/python" "$work/run.py" "$work" | tee "$work/out"
diff "$work/out" - <<'SEEN'
torch 2.15.0 onnxscript 0.7.2 onnx 1.23.2
8 parameters
new, optimize True 0.bias 0.weight 1.weight 3.weight
new, optimize False 0.bias 0.weight 1.bias 1.weight 2.bias 2.weight 3.bias 3.weight
other values 0.bias 0.weight 1.bias 1.weight 2.bias 2.weight 3.bias 3.weight
SEEN
echo "as seen"
