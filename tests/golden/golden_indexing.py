#!/usr/bin/env python3
"""Writes indexing.safetensors: what PyTorch makes of views, paddings, indices, orders and products of small tensors.

A case CASE has inputs CASE/NAME, results CASE/out (or out0, out1, ...) and, if it is differentiable, the gradients
CASE/d_NAME for the gradient CASE/d_out of its first result. tests/core/indexing_golden_test.cpp has the same calls.
"""
import argparse
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

nan = float("nan")


def floats(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def ids(high, *shape, low=0):
    return torch.randint(low, high, shape)


def put(x, at, values, accumulate=False):
    y = x.clone()
    if accumulate:
        y.index_put_(at, values, accumulate=True)
    else:
        y[at] = values
    return y


def ordered(values):
    return torch.tensor(values, dtype=torch.float64)


def cases():
    x4, x3, x2 = floats(1, 2, 4, 5), floats(3, 2, 4), floats(4, 5)
    yield "pad_constant", {"x": x3}, lambda x: F.pad(x, (1, -2, 0, 2, -1, 1), value=1.5)
    for mode in ("reflect", "replicate", "circular"):
        yield f"pad_{mode}", {"x": x4}, lambda x: F.pad(x, (2, 4, 3, 0), mode=mode)
    yield "roll", {"x": x2}, lambda x: torch.roll(x, (2, -6), (0, 1))
    yield "roll_flat", {"x": x2}, lambda x: torch.roll(x, 7)
    yield "flip", {"x": x3}, lambda x: x.flip([0, -1])
    yield "repeat", {"x": x2}, lambda x: x.repeat(2, 1, 3)
    yield "tile", {"x": x3}, lambda x: torch.tile(x, (2,))
    yield "repeat_interleave", {"x": x3, "repeats": torch.tensor([1, 0, 3])}, \
        lambda x, repeats: x.repeat_interleave(repeats, 0)
    yield "diagonal", {"x": x3}, lambda x: x.diagonal(1, 2, 0)
    yield "diag_embed", {"x": x3}, lambda x: torch.diag_embed(x, -2, 1, -1)
    yield "tril", {"x": x3}, lambda x: torch.tril(x, 1)
    yield "triu", {"x": x2}, lambda x: torch.triu(x, -1)
    yield "movedim", {"x": x4}, lambda x: x.movedim((0, -1), (2, 0))
    yield "meshgrid", {"x": floats(3), "y": floats(2), "z": floats(2)}, \
        lambda x, y, z: torch.stack(torch.meshgrid(x, y, z, indexing="xy"))
    yield "linspace", {}, lambda: torch.linspace(-1.3, 2.9, 8, dtype=torch.float64)

    index, source = ids(4, 3, 5), floats(3, 5)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include_self in (True, False):
            yield f"scatter_{reduce}_{int(include_self)}", {"x": x2, "index": index, "source": source}, \
                lambda x, index, source: x.scatter_reduce(0, index, source, reduce, include_self=include_self)
    zero = source.clone()
    zero[0, 0] = zero[1, 2] = 0
    yield "scatter_prod_of_0", {"x": x2, "index": index, "source": zero}, \
        lambda x, index, source: x.scatter_reduce(0, index, source, "prod")
    yield "scatter_mean_of_ints", {"x": ids(9, 4, 5, low=-9), "index": index, "source": ids(9, 3, 5, low=-9)}, \
        lambda x, index, source: x.scatter_reduce(0, index, source, "mean")
    distinct = torch.stack([torch.randperm(4)[:3] for _ in range(5)], 1)
    yield "scatter", {"x": x2, "index": distinct, "source": source}, \
        lambda x, index, source: x.scatter(0, index, source)
    yield "gather", {"x": x2, "index": ids(5, 3, 7)}, lambda x, index: x.gather(1, index)
    some, rows = torch.tensor([2, 0, 2]), torch.tensor([3, 0, 1])
    yield "index_add", {"x": x2, "index": some, "source": floats(4, 3)}, \
        lambda x, index, source: x.index_add(1, index, source, alpha=-2)
    yield "index_copy", {"x": x2, "index": rows, "source": floats(3, 5)}, \
        lambda x, index, source: x.index_copy(0, index, source)
    yield "index_fill", {"x": x2, "index": some}, lambda x, index: x.index_fill(1, index, 2.5)
    yield "take", {"x": x2, "index": ids(20, 2, 3, low=-20)}, lambda x, index: x.take(index)
    yield "take_along_dim", {"x": x2, "index": ids(5, 1, 3)}, lambda x, index: x.take_along_dim(index, 1)
    yield "one_hot", {"x": ids(3, 2, 4)}, lambda x: F.one_hot(x, 4)
    mask = torch.rand(4, 5) < 0.5
    yield "masked_scatter", {"x": x2, "mask": mask, "source": floats(25)}, \
        lambda x, mask, source: x.masked_scatter(mask, source)

    x5, a, b = floats(3, 4, 5, 2), ids(3, 2, 1, low=-3), ids(4, 3, low=-4)
    yield "index_adjacent", {"x": x5, "a": a, "b": b}, lambda x, a, b: x[a, b]
    yield "index_second", {"x": x5, "a": ids(4, 6), "b": ids(5, 2, 6)}, lambda x, a, b: x[:, a, b]
    yield "index_apart", {"x": x5, "a": a, "b": b}, lambda x, a, b: x[a, :, b]
    yield "index_number_between", {"x": x5, "a": a, "b": b}, lambda x, a, b: x[b % 3, 1, a]
    yield "index_sliced", {"x": x5, "a": a}, lambda x, a: x[1:, ::2, None, a, -1]
    yield "index_last", {"x": x5, "a": ids(2, 3)}, lambda x, a: x[..., a]
    yield "index_mask", {"x": x5, "a": torch.rand(4, 5) < 0.4}, lambda x, a: x[:, a]
    yield "index_mask_and_ids", {"x": x5, "a": torch.tensor([True, False, True]), "b": torch.tensor([1, -1])}, \
        lambda x, a, b: x[a, :, b]
    yield "index_put", {"x": x5, "a": rows % 3, "values": floats(3, 5, 2)}, \
        lambda x, a, values: put(x, (torch.tensor([0, 1, 2]), a), values)
    yield "index_put_sliced", {"x": x5, "a": rows, "values": floats(2)}, \
        lambda x, a, values: put(x, (1, a, slice(1, None, 2)), values)
    yield "index_put_view", {"x": x5, "values": floats(4, 1, 2)}, \
        lambda x, values: put(x, (slice(0, 2), Ellipsis, slice(0, 3), slice(None)), values)
    yield "index_put_added", {"x": x5, "a": a, "b": b, "values": floats(3, 1, 1)}, \
        lambda x, a, b, values: put(x, (a, b), values, True)
    yield "index_put_mask", {"x": x2, "a": mask, "values": floats(1)}, lambda x, a, values: put(x, (a,), values)

    q = torch.tensor([0.0, 0.3, 0.5, 0.77, 1.0], dtype=torch.float64)
    for mode in ("linear", "lower", "higher", "midpoint", "nearest"):
        yield f"quantile_{mode}", {"x": x3}, lambda x: x.quantile(q, 2, interpolation=mode)
    yield "quantile_all", {"x": x3}, lambda x: x.quantile(0.4, keepdim=True)
    gaps = ordered([[3, nan, 1, 2, 5], [nan] * 5, [4, 4, 4, 2, 9], [7, 1, 7, 3, 7]])
    yield "quantile_nan", {"x": gaps}, lambda x: x.quantile(q, 1, keepdim=True)
    yield "median", {"x": x2}, lambda x: tuple(x.median(0))
    yield "median_nan", {"x": gaps}, lambda x: x.median(1).values
    yield "nanmedian", {"x": gaps}, lambda x: x.detach().nanmedian(1).values
    yield "median_all", {"x": ordered([1, 3, 2, 2, 2, 5])}, lambda x: x.median()
    yield "nanmedian_all", {"x": ordered([1, nan, 3, 2])}, lambda x: x.nanmedian()
    yield "kthvalue", {"x": x2}, lambda x: tuple(x.kthvalue(3, 0, keepdim=True))
    pairs = ordered([2, nan, 1, 2, 2, 0, -0.0, nan, 1, 1])
    yield "unique", {"x": ids(5, 3, 7)}, lambda x: x.unique(return_inverse=True, return_counts=True)
    yield "unique_nan", {"x": pairs}, lambda x: (x.unique().detach(),)
    yield "unique_consecutive", {"x": ordered([[1, 1, 2], [2, 1, 1]])}, \
        lambda x: [y.detach() for y in x.unique_consecutive(return_inverse=True, return_counts=True)]
    yield "bincount", {"x": ids(5, 9)}, lambda x: x.bincount(minlength=8)
    yield "bincount_weights", {"x": ids(5, 9), "weights": floats(9)}, \
        lambda x, weights: x.bincount(weights.detach()).detach()
    for right in (False, True):
        yield f"searchsorted_{int(right)}", {"x": ids(6, 2, 5).sort(-1).values, "values": ids(6, 2, 4)}, \
            lambda x, values: torch.searchsorted(x, values, right=right)
    yield "histc", {"x": x3}, lambda x: x.detach().histc(7, -1, 0.5)
    yield "histc_all", {"x": x3}, lambda x: x.detach().histc(4)
    yield "bucketize", {"x": ordered([1, 2.5, -3, 9, 2]), "edges": ordered([0, 1, 2, 4])}, torch.bucketize
    yield "isin", {"x": pairs, "candidates": ordered([nan, 2, 0, 7])}, torch.isin

    m, n, v = floats(2, 3, 4), floats(4, 5), floats(3)
    for i, (equation, operands) in enumerate((
            ("bij,jk->bik", (m, n)), ("bij,jk", (m, n)), ("ii->i", (floats(3, 3),)), ("iji->j", (floats(3, 2, 3),)),
            ("ij->ji", (n,)), ("ij", (n,)), ("ba", (n,)), ("...ij,...jk->...ik", (m, floats(2, 1, 4, 2))),
            ("i,j->ij", (v, floats(2))), ("i,i->", (v, v)), ("ij,jk,kl->il", (n, floats(5, 2), floats(2, 3))),
            ("a...,...a->...", (floats(3, 2), floats(4, 1, 3))), ("ij,ij->i", (n, floats(4, 1))),
            ("i...->...", (m,)), ("bhqd,bhkd->bhqk", (floats(2, 2, 3, 4), floats(2, 2, 5, 4))),
            ("abc,cd,bd->ad", (m, n, floats(3, 5))), (" i j , j -> i ", (n, floats(5))), ("iij,jB->iB", (
                floats(2, 2, 3), floats(3, 2))))):
        yield f"einsum_{i}", dict(zip("xyz", operands)), lambda *operands: torch.einsum(equation, *operands)
    yield "tensordot", {"x": floats(2, 3, 4), "y": floats(4, 5, 2)}, \
        lambda x, y: torch.tensordot(x, y, ([0, 2], [2, 0]))
    yield "tensordot_last", {"x": m, "y": floats(3, 4, 2)}, torch.tensordot
    yield "kron", {"x": n, "y": floats(2, 3, 2)}, torch.kron
    yield "cdist", {"x": m, "y": floats(2, 5, 4)}, torch.cdist
    yield "cross", {"x": floats(2, 3, 4), "y": floats(1, 3, 4)}, lambda x, y: torch.linalg.cross(x, y, dim=1)
    yield "addmm", {"x": floats(5), "y": floats(3, 4), "z": n}, lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=-2)
    yield "baddbmm", {"x": floats(3, 5), "y": m, "z": floats(2, 4, 5)}, torch.baddbmm
    yield "matmul_of_ints", {"x": ids(9, 2, 3, 4), "y": ids(9, 4, 2)}, torch.matmul


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    torch.manual_seed(11)
    torch.set_num_threads(1)
    tensors = {}
    for name, inputs, call in cases():
        given = {k: v.clone().requires_grad_() if v.is_floating_point() else v for k, v in inputs.items()}
        outputs = call(*given.values())
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        for key, value in inputs.items():
            tensors[f"{name}/{key}"] = value.clone()
        for i, out in enumerate(outputs):
            tensors[f"{name}/out{i if i else ''}"] = out.detach().clone()
        if not outputs[0].requires_grad:
            continue
        tensors[f"{name}/d_out"] = torch.randn_like(outputs[0])
        outputs[0].backward(tensors[f"{name}/d_out"])
        tensors.update({f"{name}/d_{k}": v.grad.clone() for k, v in given.items() if v.grad is not None})
    path = parser.parse_args().out / "indexing.safetensors"
    save_file({name: value.contiguous() for name, value in tensors.items()}, str(path))
    path.chmod(0o644)


if __name__ == "__main__":
    main()
