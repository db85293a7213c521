#!/usr/bin/env python3
"""Writes random calls of ops with PyTorch's results and gradients, for tests/core/random_ops_slow_test.cpp:

    tests/golden/random_ops.py --seed 1 --cases 20000 FOLDER
    TERN_RANDOM_OPS=FOLDER build/release/bin/core_random_ops_slow_test

A case is a function of seed and number. Each op is drawn as often as every other (random_op_cases.py,
random_index_cases.py, random_layer_cases.py). Arguments that PyTorch refuses are drawn again. Results are stored
twice: as PyTorch computes them in the inputs' dtype ("out"), and as it computes them in float64, rounded to that dtype
("exact")."""

import argparse
import collections
import json
import math
import pathlib
import random
import warnings

import torch
from safetensors.torch import save_file

FLOATS = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.uint8]
ALL = FLOATS * 2 + INTEGERS + [torch.bool]
REFUSED = (RuntimeError, IndexError, ValueError, TypeError, OverflowError)


class Draw:
    """The choices of one case."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(self.random.getrandbits(60))

    def below(self, n):
        return self.random.randrange(n)

    def between(self, low, high):
        return self.random.randint(low, high)

    def one_in(self, n):
        return self.below(n) == 0

    def pick(self, *values):
        return self.random.choice(values)

    def shape(self, low=0, high=4, zeros=True, most=600):
        while True:
            sizes = [0] * (zeros and self.one_in(3)) + [1, 1, 2, 3, 4, 5, 7, 8, 17, 33]
            shape = [self.random.choice(sizes) for _ in range(self.between(low, high))]
            if math.prod(shape) <= most:
                return shape

    def dtype(self, kinds=ALL):
        return self.random.choice(kinds)

    def broadcast(self, shape):
        """A shape that broadcasts to this one."""
        kept = [1 if self.one_in(4) else size for size in shape]
        return kept[self.below(len(kept) + 1) :] if self.one_in(3) else kept

    def tensor(self, shape, dtype=torch.float32, low=-3, high=3, finite=False):
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.generator).bool()
        if not dtype.is_floating_point:
            low, high = (max(0, int(low)), max(1, int(high))) if dtype == torch.uint8 else (int(low), int(high))
            if not finite and self.one_in(6):
                low, high = (0, 255) if dtype == torch.uint8 else (-1000, 1000)
            return torch.randint(low, high + 1, shape, generator=self.generator).to(dtype)
        x = torch.rand(shape, generator=self.generator, dtype=torch.float64) * (high - low) + low
        if self.one_in(4):
            x = (x * 4).round() / 4  # equal elements
        x = x.to(dtype)
        if not finite and self.one_in(3) and x.numel() > 0:
            info = torch.finfo(dtype)
            special = [
                math.inf,
                -math.inf,
                math.nan,
                0.0,
                -0.0,
                info.tiny,
                info.tiny / 4,
                -info.tiny,
                info.max,
                -info.max,
            ]
            for _ in range(self.between(1, 4)):
                x.view(-1)[self.below(x.numel())] = self.random.choice(special)
        return x

    def distinct(self, shape, dtype):
        """Numbers that are all different, also in 16 bits."""
        numbers = torch.randperm(math.prod(shape), generator=self.generator).reshape(shape)
        return (numbers if not dtype.is_floating_point else numbers - 100).to(dtype)

    def indices(self, shape, size, low=0):
        return (
            torch.randint(low, size, shape, generator=self.generator)
            if size > low
            else torch.zeros(shape, dtype=torch.int64)
        )

    def dim(self, dims):
        """A dimension, possibly from the end."""
        return self.between(-max(dims, 1), max(dims, 1) - 1)

    def dims(self, dims, none=True):
        """Different dimensions, possibly none."""
        chosen = self.random.sample(range(dims), self.between(0 if none or dims == 0 else 1, dims))
        return [d - dims if self.one_in(3) else d for d in chosen]

    def layout(self, x):
        """How the test lays an input out in memory."""
        kinds = ["plain"] * 3 + (["strided", "offset", "transposed"] if x is not None and x.dim() > 0 else [])
        return self.random.choice(kinds)


Case = collections.namedtuple("Case", "inputs arguments run differentiable", defaults=(True,))
OPS = {}  # name: (family, function of a Draw that gives a Case)


def op(family, name):
    def register(function):
        assert name not in OPS, name
        OPS[name] = (family, function)
        return function

    return register


def tensors(result):
    """The results of a call as a list of tensors."""
    return [result] if isinstance(result, torch.Tensor) else list(result)


def results(case, inputs, d_out, draw):
    """Outputs and gradients, or None for those that PyTorch does not have."""
    wanted = [i for i, x in enumerate(inputs) if x is not None and x.is_floating_point() and case.differentiable]
    if case.differentiable and case.differentiable is not True:
        wanted = [i for i in wanted if i in case.differentiable]
    leaves = [x.clone().requires_grad_(i in wanted) if i in wanted else x for i, x in enumerate(inputs)]
    outputs = tensors(case.run(*leaves))
    values = [y.detach().clone() for y in outputs]
    recorded = [i for i, y in enumerate(outputs) if y.requires_grad]
    if not recorded or not wanted:
        return values, {}, {}, wanted
    if d_out is None:
        d_out = {i: draw.tensor(outputs[i].shape, outputs[i].dtype, -2, 2, finite=True) + 0.3 for i in recorded}
    gradients = torch.autograd.grad(
        [outputs[i] for i in recorded],
        [leaves[i] for i in wanted],
        [d_out[i].to(outputs[i].dtype) for i in recorded],
        allow_unused=True,
    )
    filled = {i: torch.zeros_like(inputs[i]) if g is None else g.clone() for i, g in zip(wanted, gradients)}
    return values, d_out, filled, wanted


def has_gradient(case):
    """At NaN, beside infinities, and where a factor overflows first, gradients have no one value."""
    floats = [x for x in case.inputs if x is not None and x.is_floating_point()]
    return all(bool(x.isfinite().all()) and not bool((x.abs() == torch.finfo(x.dtype).max).any()) for x in floats)


def widened(x):
    return x.double() if x is not None and x.is_floating_point() else x


def make(name, draw):
    """The entry of a case and its tensors; REFUSED where PyTorch has no result."""
    case = OPS[name][1](draw)
    if not has_gradient(case):
        case = case._replace(differentiable=False)
    inputs = [None if x is None else x.contiguous() for x in case.inputs]
    found = {}
    narrow = next((x.dtype for x in inputs if x is not None and x.is_floating_point()), torch.float32)
    try:
        outputs, d_out, gradients, wanted = results(case, inputs, None, draw)
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise
        outputs, d_out, gradients, wanted = results(case, [widened(x) for x in inputs], None, draw)
        outputs = [y.to(narrow) if y.dtype == torch.float64 else y for y in outputs]
        d_out = {i: g.to(narrow) for i, g in d_out.items()}
    # What no floating input enters has no other result in float64.
    if narrow != torch.float64 and any(x is not None and x.is_floating_point() for x in inputs):
        try:
            exact, _, d_exact, _ = results(case, [widened(x) for x in inputs], d_out, draw)
            found |= {f"exact{i}": y.to(outputs[i].dtype) for i, y in enumerate(exact) if y.shape == outputs[i].shape}
            found |= {f"d_exact{i}": g.to(inputs[i].dtype) for i, g in d_exact.items()}
        except REFUSED:
            pass
    found |= {f"in{i}": x for i, x in enumerate(inputs) if x is not None}
    found |= {f"out{i}": y for i, y in enumerate(outputs)}
    found |= {f"d_out{i}": g for i, g in d_out.items()}
    found |= {f"d_in{i}": g.to(inputs[i].dtype) for i, g in gradients.items()}
    entry = {
        "op": name,
        "family": OPS[name][0],
        "inputs": len(inputs),
        "outputs": len(outputs),
        "differentiable": wanted if gradients else [],
        "layouts": [draw.layout(x) for x in inputs],
        "arguments": {
            k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in case.arguments.items()
        },
    }
    return entry, {k: v.contiguous().clone() for k, v in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=20000)
    parser.add_argument("--ops", default="", help="only these, separated by commas")
    parser.add_argument("--families", default="", help="only these, separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import random_index_cases  # noqa: F401, which registers its ops
    import random_layer_cases  # noqa: F401
    import random_op_cases  # noqa: F401

    names = sorted(
        n
        for n, (family, _) in OPS.items()
        if (not options.ops or n in options.ops.split(","))
        and (not options.families or family in options.families.split(","))
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    counts, refused = collections.Counter(), {}
    per_file = 500
    for first in range(0, options.cases, per_file):
        entries, stored = [], {}
        for number in range(first, min(first + per_file, options.cases)):
            name = names[number % len(names)]
            for attempt in range(40):
                draw = Draw(f"{options.seed}/{name}/{number}/{attempt}")
                try:
                    entry, found = make(name, draw)
                except REFUSED as error:
                    refused[name] = error
                    continue
                entry["number"] = number
                stored |= {f"{number}/{key}": value for key, value in found.items()}
                entries.append(entry)
                counts[name] += 1
                break
        path = options.folder / f"{options.seed}_{first // per_file:04}.safetensors"
        save_file(stored, path, {"cases": json.dumps(entries)})
    print(sum(counts.values()), "cases of", len(counts), "ops")
    for name in names:
        if counts[name] < options.cases // len(names):
            print(f"{name}: {counts[name]} cases; the last that was refused: {refused[name]}")


if __name__ == "__main__":
    import random_ops  # the one module that the tables of ops import

    random_ops.main()
