#!/usr/bin/env python3
"""Writes reference numbers of PyTorch: functions.* (element-wise functions, reductions, norms and losses) or
more_functions.* (those that Tern had later); the argument names the file. Without one it writes both."""
import argparse
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from golden_ops import Cases

HERE = pathlib.Path(__file__).resolve().parent
INF = math.inf


def pointwise(cases):
    """Inputs within the domain, then in a case of its own 0, -0, infinities, NaN and numbers outside the domain."""
    special = torch.tensor([0.0, -0.0, INF, -INF, math.nan, 1.0, -1.0, 2.0, -2.0, 6.0, -3.0, 3.0, 0.5, -0.5, 1.5, -2.5])

    def both(name, function, x, params=None):
        # PyTorch's gradients of these are NaN at infinity.
        ends = special[special.isfinite()] if name in ("softsign", "mish") else special
        for inputs in (x, ends):
            cases.add(name, function, {"x": inputs}, ["x"], params)

    for low, high, names in [
        (-3, 3, "neg abs exp expm1 exp2 square erf sin cos tan sinh cosh tanh asinh atan sigmoid"),
        (0.05, 9, "log log2 log10 sqrt rsqrt reciprocal"), (-0.9, 9, "log1p"), (-0.95, 0.95, "asin acos atanh erfinv"),
        (1.1, 9, "acosh"), (-3, 3, "sign floor ceil trunc round")]:
        for name in names.split():
            both(name, lambda x: getattr(torch, name)(x), torch.rand(13) * (high - low) + low)
    for name in "relu relu6 selu silu mish softplus logsigmoid softsign hardswish".split():
        both(name, lambda x: getattr(F, name)(x), torch.randn(13) * 3)
    both("hardsigmoid", lambda x: F.relu6(x + 3) / 6, torch.randn(13) * 3)  # F.hardsigmoid has 1/6 in float32
    for name, options in [("leaky_relu", {"negative_slope": 0.2}), ("elu", {"alpha": 1.3}), ("softshrink", {"lambd": 0.7}),
                          ("hardshrink", {"lambd": 0.7}), ("hardtanh", {"min_val": -0.5, "max_val": 1.5})]:
        both(name, lambda x: getattr(F, name)(x, **options), torch.randn(13) * 2, {"values": list(options.values())})
    cases.add("prelu", F.prelu, {"x": torch.randn(3, 4, 5), "weight": torch.rand(4)}, ["x", "weight"])
    for name in "atan2 remainder fmod pow".split():
        a, b = torch.randn(21) * 3, torch.rand(21) * 2 + 0.1
        a, b = (a.abs() + 0.1, b) if name == "pow" else (a, b * torch.randn(21).sign())
        cases.add(name, lambda a, b: getattr(torch, name)(a, b), {"a": a, "b": b}, ["a", "b"] if name in ("atan2", "pow") else ["a"])
    cases.add("lerp", lambda a, b, weight: torch.lerp(a, b, weight), {"a": torch.randn(3, 5), "b": torch.randn(5), "weight": torch.rand(3, 1)},
              ["a", "b", "weight"])


def reductions(cases):
    for shape, dims in [((7, 33), [1]), ((7, 33), [0]), ((3, 5, 6), [0, 2]), ((4, 9), []), ((2, 129), [1])]:
        x = {"x": torch.randn(shape) * 2 + 3}
        every = dims or list(range(len(shape)))
        for correction in (1, 0, 2.5):
            for name in ("var", "std"):
                cases.add(name, lambda x: getattr(torch, name)(x, every, correction=correction), x, ["x"],
                          {"dims": dims, "correction": correction})
        cases.add("logsumexp", lambda x: torch.logsumexp(x, every), x, ["x"], {"dims": dims})
        for order in (0.5, 1, 2, 3, INF, -INF, 0, -1):
            cases.add("vector_norm", lambda x: torch.linalg.vector_norm(x, order, every), x, ["x"] if order else [],
                      {"dims": dims, "order": str(order)})
    constant, zeros = torch.ones(2, 3), torch.tensor([[1.0, 0, -2], [0, 0, 3], [2, 5, 0.5]])
    cases.add("std", lambda x: torch.std(x, [1]), {"x": constant}, ["x"], {"dims": [1], "correction": 1})
    for x in (torch.tensor([[-INF, 1, 2], [-800, -900, -INF]]), torch.randn(3, 4) * 300):
        cases.add("logsumexp", lambda x: torch.logsumexp(x, 1), {"x": x}, ["x"], {"dims": [1]})
    for order in (1, 2, 3, 0.5):
        cases.add("vector_norm", lambda x: torch.linalg.vector_norm(x, order, [0, 1]), {"x": torch.zeros(2, 2)}, ["x"],
                  {"dims": [], "order": str(order)})
    for dim in (0, 1):
        cases.add("prod", lambda x: torch.prod(x, dim), {"x": zeros}, ["x"], {"dims": [dim]})
    for order in (1, 2, 3):
        cases.add("normalize", lambda x: F.normalize(x, order), {"x": torch.randn(5, 7)}, ["x"], {"order": order})
    cases.add("cosine_similarity", lambda a, b: F.cosine_similarity(a, b), {"a": torch.randn(4, 6), "b": torch.randn(1, 6)}, ["a", "b"])
    cases.add("pairwise_distance", lambda a, b: F.pairwise_distance(a, b), {"a": torch.randn(4, 6), "b": torch.randn(4, 6)}, ["a", "b"])


REDUCTIONS = ("mean", "sum", "none")


def losses(cases):
    def add(op, function, inputs, differentiable=("x",), constants=None, weights=(), **params):
        """`weights`: of the inputs, those that have no gradient."""
        for reduction in REDUCTIONS:
            cases.add(op, lambda **tensors: function(**tensors, reduction=reduction), inputs,
                      [key for key in differentiable if key not in weights], params | {"reduction": reduction}, constants)

    import torchvision  # only here, so that more_functions can be written without it

    rows, classes = 7, 5
    target = torch.randint(0, classes, (rows,))
    target[2] = -100
    weight = torch.rand(classes) + 0.2
    for smoothing in (0.0, 0.3):
        add("cross_entropy", lambda x, weight, target, reduction: F.cross_entropy(
            x, target, weight, label_smoothing=smoothing, reduction=reduction),
            {"x": torch.randn(rows, classes), "weight": weight}, constants={"target": target}, label_smoothing=smoothing)
        add("cross_entropy", lambda x, weight, target, reduction: F.cross_entropy(
            x, target, weight, label_smoothing=smoothing, reduction=reduction),
            {"x": torch.randn(rows, classes, 3), "weight": weight, "target": torch.rand(rows, classes, 3)},
            label_smoothing=smoothing)
        add("cross_entropy", lambda x, target, reduction: F.cross_entropy(
            x, target, label_smoothing=smoothing, reduction=reduction),
            {"x": torch.randn(3, classes, 2, 4)}, constants={"target": torch.randint(0, classes, (3, 2, 4))},
            label_smoothing=smoothing)
    add("nll_loss", lambda x, weight, target, reduction: F.nll_loss(x, target, weight, reduction=reduction),
        {"x": F.log_softmax(torch.randn(rows, classes), 1), "weight": weight}, constants={"target": target})
    add("nll_loss", lambda x, target, reduction: F.nll_loss(x, target, reduction=reduction),
        {"x": torch.randn(2, classes, 3)}, constants={"target": torch.randint(0, classes, (2, 3))})

    x, labels = torch.randn(4, 6) * 3, (torch.rand(4, 6) > 0.5).float()
    add("binary_cross_entropy_with_logits", lambda x, target, weight, pos_weight, reduction:
        F.binary_cross_entropy_with_logits(x, target, weight, reduction=reduction, pos_weight=pos_weight),
        {"x": x, "target": torch.rand(4, 6), "weight": torch.rand(6), "pos_weight": torch.rand(6) * 3}, ("x", "target"))
    add("binary_cross_entropy_with_logits", lambda x, target, reduction: F.binary_cross_entropy_with_logits(
        x, target, reduction=reduction), {"x": torch.tensor([200.0, -200, 50, 0]), "target": torch.tensor([1.0, 0, 0, 1])})
    add("binary_cross_entropy", lambda x, target, weight, reduction: F.binary_cross_entropy(x, target, weight,
        reduction=reduction), {"x": torch.rand(4, 6), "target": torch.rand(4, 6), "weight": torch.rand(4, 1)})
    for alpha, gamma in ((0.25, 2.0), (-1.0, 1.5)):
        add("sigmoid_focal_loss", lambda x, target, reduction: torchvision.ops.sigmoid_focal_loss(
            x, target, alpha, gamma, reduction), {"x": x, "target": labels}, alpha=alpha, gamma=gamma)

    pair = {"x": torch.randn(4, 6), "target": torch.randn(4, 6)}
    both = ("x", "target")
    add("mse_loss", F.mse_loss, {"input": pair["x"], "target": pair["target"]}, ("input", "target"))
    add("l1_loss", F.l1_loss, {"input": pair["x"], "target": pair["target"]}, ("input", "target"))
    for width in (0.5, 1.7):
        add("smooth_l1_loss", lambda x, target, reduction: F.smooth_l1_loss(x, target, reduction=reduction, beta=width),
            pair, both, width=width)
        add("huber_loss", lambda x, target, reduction: F.huber_loss(x, target, reduction=reduction, delta=width),
            pair, both, width=width)
    for log_input in (True, False):
        add("poisson_nll_loss", lambda x, target, reduction: F.poisson_nll_loss(
            x, target, log_input, full=True, reduction=reduction),
            {"x": torch.rand(4, 6) + 0.1, "target": torch.randint(0, 5, (4, 6)).float()}, log_input=log_input)
    add("gaussian_nll_loss", lambda x, target, variance, reduction: F.gaussian_nll_loss(
        x, target, variance, full=True, reduction=reduction),
        pair | {"variance": torch.tensor([[0.5], [2.0], [0.0], [1.0]])}, ("x", "target", "variance"))
    probabilities = F.softmax(torch.randn(4, 6), 1)
    probabilities[1, 2] = 0
    for log_target in (False, True):
        add("kl_div", lambda x, target, reduction: F.kl_div(x, target, reduction=reduction, log_target=log_target),
            {"x": F.log_softmax(torch.randn(4, 6), 1), "target": torch.randn(4, 6) if log_target else probabilities},
            log_target=log_target)

    signs = torch.tensor([1.0, -1, -1, 1])
    add("cosine_embedding_loss", lambda a, b, target, reduction: F.cosine_embedding_loss(
        a, b, target, 0.1, reduction=reduction), {"a": torch.randn(4, 6), "b": torch.randn(4, 6), "target": signs},
        ("a", "b"), margin=0.1)
    add("margin_ranking_loss", lambda a, b, target, reduction: F.margin_ranking_loss(
        a, b, target, 0.4, reduction=reduction), {"a": torch.randn(4), "b": torch.randn(4), "target": signs}, ("a", "b"),
        margin=0.4)
    add("hinge_embedding_loss", lambda x, target, reduction: F.hinge_embedding_loss(
        x, target, 1.2, reduction=reduction), {"x": torch.randn(4), "target": signs}, margin=1.2)
    add("soft_margin_loss", lambda x, target, reduction: F.soft_margin_loss(x, target, reduction=reduction),
        {"x": torch.randn(4) * 5, "target": signs})
    for order, swap in ((2.0, False), (1.0, True)):
        add("triplet_margin_loss", lambda a, b, c, reduction: F.triplet_margin_loss(
            a, b, c, margin=2.0, p=order, swap=swap, reduction=reduction),
            {key: torch.randn(4, 6) for key in "abc"}, ("a", "b", "c"), order=order, swap=swap)


def margin_losses(cases):
    def add(op, function, inputs, constants, **params):
        for reduction in REDUCTIONS:
            cases.add(op, lambda **tensors: function(**tensors, reduction=reduction), inputs, ["x"],
                      params | {"reduction": reduction}, constants)

    def of_two(function):
        return lambda x, target, reduction: function(x, target, reduction=reduction)

    rows, classes = 6, 5
    for p, margin in ((1, 1.0), (2, 0.6)):
        add("multi_margin_loss", lambda x, weight, target, reduction: F.multi_margin_loss(
            x, target, p, margin, weight, reduction=reduction),
            {"x": torch.randn(rows, classes), "weight": torch.rand(classes) + 0.2},
            {"target": torch.randint(0, classes, (rows,))}, p=p, margin=margin)
        add("multi_margin_loss", lambda x, target, reduction: F.multi_margin_loss(
            x, target, p, margin, reduction=reduction), {"x": torch.randn(classes)}, {"target": torch.tensor(3)}, p=p,
            margin=margin)
    labels = torch.tensor([[3, 0, -1, 1, -1], [-1, 2, 2, 2, 2], [4, 2, 0, 1, 3], [1, 1, -1, 0, 0]])
    add("multilabel_margin_loss", of_two(F.multilabel_margin_loss), {"x": torch.randn(4, classes)}, {"target": labels})
    add("multilabel_margin_loss", of_two(F.multilabel_margin_loss), {"x": torch.randn(classes)}, {"target": labels[0]})
    add("multilabel_soft_margin_loss", lambda x, weight, target, reduction: F.multilabel_soft_margin_loss(
        x, target, weight, reduction=reduction), {"x": torch.randn(rows, classes), "weight": torch.rand(classes)},
        {"target": (torch.rand(rows, classes) > 0.5).float()})
    add("multilabel_soft_margin_loss", of_two(F.multilabel_soft_margin_loss), {"x": torch.randn(2, 3, classes)},
        {"target": (torch.rand(2, 3, classes) > 0.5).float()})


def ctc_losses(cases):
    """The inputs are logits: the gradient of PyTorch's ctc_loss by log-probabilities is only right below log_softmax."""
    def add(x, target, input_lengths, target_lengths, blank=0, zero_infinity=False):
        lengths = {"input_lengths": torch.tensor(input_lengths), "target_lengths": torch.tensor(target_lengths)}
        for reduction in REDUCTIONS:
            cases.add("ctc_loss", lambda x, target, input_lengths, target_lengths: F.ctc_loss(
                F.log_softmax(x, -1), target, input_lengths, target_lengths, blank, reduction, zero_infinity),
                {"x": x}, ["x"], {"blank": blank, "zero_infinity": zero_infinity, "reduction": reduction},
                {"target": target} | lengths)

    add(torch.randn(12, 4, 6), torch.randint(1, 6, (4, 5)), [12, 11, 12, 10], [5, 3, 0, 1])
    add(torch.randn(9, 3, 4) * 3, torch.tensor([0, 0, 2, 2, 0, 1, 2]), [9, 4, 6], [4, 1, 2], blank=3)
    add(torch.randn(8, 3, 5), torch.tensor([[1, 1, 1, 2], [1, 2, 3, 4], [3, 3, 0, 0]]), [6, 3, 2], [4, 4, 2],
        zero_infinity=True)
    add(torch.randn(30, 7), torch.randint(0, 6, (11,)), 28, 11, blank=6)
    add(torch.randn(60, 2, 20), torch.randint(1, 20, (2, 25)), [60, 55], [25, 20])


def further_pointwise(cases):
    special = torch.tensor([0.0, -0.0, INF, -INF, math.nan, 1.0, -2.0])
    a, b = special.repeat_interleave(7), special.repeat(7)
    for name in ("logaddexp", "hypot", "copysign"):
        function = getattr(torch, name)
        cases.add(name, lambda a, b: function(a, b), {"a": torch.randn(21) * 3, "b": torch.randn(21) * 3}, ["a", "b"])
        cases.add(name, lambda a, b: function(a, b), {"a": torch.randn(3, 1), "b": torch.randn(4)}, ["a", "b"])
        # A NaN's sign is not defined.
        keep = b.isfinite() if name == "copysign" else torch.ones_like(b, dtype=torch.bool)
        cases.add(name, lambda a, b: function(a, b), {"a": a[keep], "b": b[keep]}, [])
    # The greatest numbers differ between dtypes.
    for x, values in ((special[~special.isinf()], [0.5]), (special, [1.5, 7.0, -9.0])):
        cases.add("nan_to_num", lambda x: torch.nan_to_num(x, *values), {"x": x}, ["x"], {"values": values})
    cases.add("clamp", lambda x, low, high: torch.clamp(x, low, high),
              {"x": torch.randn(4, 5) * 2, "low": torch.randn(5), "high": torch.randn(4, 1) + 0.5}, ["x", "low", "high"])
    abc = {"x": torch.randn(3, 5), "a": torch.randn(3, 1), "b": torch.randn(5)}
    for name in ("addcmul", "addcdiv"):
        cases.add(name, lambda x, a, b: getattr(torch, name)(x, a, b, value=-1.5), abc, ["x", "a", "b"])
    near = torch.tensor([1.0, 1.00001, 1.1, INF, -INF, INF, math.nan, 0.0, 1e-9])
    cases.add("isclose", lambda a, b: torch.isclose(a, b).double(),
              {"a": near, "b": torch.tensor([1.0, 1.0, 1.0, INF, INF, 3.0, math.nan, 1e-9, 0.0])}, [])
    eighths = torch.randint(-40, 41, (2, 60)) / 8
    for a, b in (eighths, (a, b)):
        cases.add("floor_divide", lambda a, b: torch.floor_divide(a, b), {"a": a, "b": b}, [])


def gates(cases):
    for shape in ((3, 7), (1, 70), (2, 3, 5)):
        cases.add("swiglu", lambda a, b: F.silu(a) * b, {"a": torch.randn(shape) * 3, "b": torch.randn(shape)}, ["a", "b"])
    far = torch.tensor([0.0, 90, -90, 300, -300, INF, 1e-30])
    cases.add("swiglu", lambda a, b: F.silu(a) * b, {"a": far, "b": torch.full((7,), 2.0)}, ["a", "b"])
    for dim in (0, 1, -1):
        cases.add("glu", lambda x: F.glu(x, dim), {"x": torch.randn(4, 6, 2)}, ["x"], {"dim": dim})


def further_reductions(cases):
    gaps = torch.tensor([[1.0, math.nan, 3, -2, 1], [math.nan] * 5, [4, 4, math.nan, 2, 9], [0, 1, INF, 1, 7]])
    zeros = torch.tensor([[2.0, 0, -3, 0, 1.5], [1, 2, 3, 0.5, -1], [0, 0, 0, 1, 2]])
    x3 = torch.randn(3, 4, 5)
    for dim in (0, 1):
        for x in (zeros, torch.randn(4, 33), gaps):
            finite = bool(x.isfinite().all())
            cases.add("cumprod", lambda x: torch.cumprod(x, dim), {"x": x}, ["x"] if finite else [], {"dim": dim})
            cases.add("logcumsumexp", lambda x: torch.logcumsumexp(x, dim), {"x": x}, ["x"] if finite else [], {"dim": dim})
            for name in ("cummax", "cummin"):
                function = getattr(torch, name)
                cases.add(name, lambda x: function(x, dim).values, {"x": x}, ["x"], {"dim": dim})
                cases.add(name + "_indices", lambda x: function(x, dim).indices, {"x": x}, [], {"dim": dim})
            for name in ("nansum", "nanmean"):
                # PyTorch's gradient of the mean of no numbers is NaN.
                cases.add(name, lambda x: getattr(torch, name)(x, dim), {"x": x},
                          ["x"] if name == "nansum" or dim == 0 or finite else [], {"dims": [dim]})
        often = torch.randint(0, 3, (6, 7)).float()
        cases.add("mode", lambda x: torch.mode(x, dim).values, {"x": often}, ["x"], {"dim": dim})
        cases.add("mode_indices", lambda x: torch.mode(x, dim).indices, {"x": often}, [], {"dim": dim})
        q = torch.tensor([0.0, 0.3, 0.5, 1.0])
        for way in ("linear", "lower", "higher", "midpoint", "nearest"):
            cases.add("nanquantile", lambda x, q: torch.nanquantile(x, q.to(x.dtype), dim, interpolation=way),
                      {"x": gaps[:3]}, ["x"], {"dim": dim, "interpolation": way}, {"q": q})
    for n in (0, 1, 2, 6):
        cases.add("diff", lambda x: torch.diff(x, n, 1), {"x": x3}, ["x"] if n else [], {"n": n, "dim": 1})
    for x in (torch.randn(4, 9), torch.randn(7)):
        cases.add("cov", lambda x: torch.cov(x, correction=0), {"x": x}, ["x"], {"correction": 0})
        cases.add("cov", lambda x: torch.cov(x), {"x": x}, ["x"], {"correction": 1})
        cases.add("corrcoef", lambda x: torch.corrcoef(x), {"x": x},
                  ["x"] if x.dim() == 2 else [])
    cases.add("trapezoid", lambda x: torch.trapezoid(x, dx=0.3, dim=1), {"x": x3}, ["x"], {"dx": 0.3, "dim": 1})
    for places in (torch.randn(4).sort().values, torch.randn(3, 4, 1)):
        cases.add("trapezoid", lambda x, at: torch.trapezoid(x, at, dim=1), {"x": x3, "at": places}, ["x", "at"], {"dim": 1})
    for order in (0.5, 1, 2, 3, INF, 0):
        name, grads = str(order), order != 0
        cases.add("cdist", lambda a, b: torch.cdist(a, b, order), {"a": torch.randn(2, 3, 4), "b": torch.randn(5, 4)},
                  ["a", "b"] if grads else [], {"order": name})
        cases.add("pdist", lambda x: F.pdist(x, order), {"x": torch.randn(5, 3)}, ["x"] if grads else [], {"order": name})
    for order, dim in ((2, 0), (1, 1), (3, -1)):
        cases.add("renorm", lambda x: torch.renorm(x, order, dim, 1.5), {"x": torch.randn(3, 4, 2)}, ["x"],
                  {"order": order, "dim": dim})


def further_rearrangements(cases):
    x3 = torch.randn(3, 4, 5)
    for k, dims in ((1, (0, 1)), (2, (1, 2)), (3, (2, 0)), (-3, (0, 1)), (4, (0, 1))):
        cases.add("rot90", lambda x: torch.rot90(x, k, dims), {"x": x3}, ["x"], {"k": k, "dims": dims})
    abc = {"a": torch.randn(2, 3), "b": torch.randn(4), "c": torch.randn(3, 1)}
    cases.add("block_diag", lambda a, b, c: torch.block_diag(a, b, c), abc, list(abc))
    vectors = {"a": torch.randn(2), "b": torch.randn(3), "c": torch.randn(4)}
    cases.add("cartesian_prod", lambda a, b, c: torch.cartesian_prod(a, b, c), vectors, list(vectors))
    for name in ("tril_indices", "triu_indices"):
        for rows, cols, offset in ((3, 4, 0), (4, 3, -1), (4, 4, 2), (2, 0, 0)):
            cases.add(name, lambda: getattr(torch, name)(rows, cols, offset), {}, [],
                      {"rows": rows, "cols": cols, "offset": offset})
    index = torch.tensor([[3, -1], [7, 3]])
    for accumulate in (False, True):
        source = {"x": x3, "source": torch.randn(2, 2)}
        places = index if accumulate else torch.tensor([[3, -1], [7, 0]])
        cases.add("put", lambda x, source, index: x.put(index, source, accumulate), source, ["x", "source"], {"accumulate": accumulate},
                  {"index": places})
    slices = torch.randint(0, 2, (7, 2, 2)).float()
    for part, key in ((0, "unique_slices"), (1, "unique_slices_inverse"), (2, "unique_slices_counts")):
        for dim in (0, 2):
            cases.add(key, lambda x: torch.unique(x, dim=dim, return_inverse=True, return_counts=True)[part],
                      {"x": slices}, [], {"dim": dim})
            cases.add(key.replace("unique", "unique_consecutive"), lambda x: torch.unique_consecutive(
                x, dim=dim, return_inverse=True, return_counts=True)[part], {"x": slices}, [], {"dim": dim})


def special_functions(cases):
    ends = torch.tensor([0.0, -0.0, INF, -INF, math.nan, 1.0, -2.0, 0.5])
    a, b = ends.repeat_interleave(8), ends.repeat(8)
    for name in ("xlogy", "xlog1py"):
        function = getattr(torch.special, name)
        cases.add(name, lambda a, b: function(a, b), {"a": torch.randn(3, 1), "b": torch.rand(4) * 3 + 0.1}, ["a", "b"])
        cases.add(name, lambda a, b: function(a, b), {"a": torch.zeros(3), "b": torch.rand(3) + 0.1}, ["a", "b"])
        cases.add(name, lambda a, b: function(a, b), {"a": a, "b": b}, [])
    for name, low, high in (("entr", 0.05, 3), ("sinc", -3, 3), ("ndtr", -3, 3), ("logit", 0.05, 0.95)):
        function = getattr(torch.special, name)
        cases.add(name, lambda x: function(x), {"x": torch.rand(13) * (high - low) + low}, ["x"])
        cases.add(name, lambda x: function(x), {"x": ends}, [])
    cases.add("logit", lambda x: torch.logit(x, 0.1), {"x": torch.rand(13) * 1.4 - 0.2}, ["x"], {"eps": 0.1})
    cases.add("heaviside", lambda a, b: torch.heaviside(a, b), {"a": a, "b": b}, [])
    # PyTorch's backward rounds 1 / alpha to float32, and its derivative at NaN depends on the number of elements.
    for alpha, x in ((0.5, torch.randn(13) * 2), (2.0, torch.randn(13) * 2), (-0.5, torch.randn(13)), (0.5, ends[~ends.isnan()])):
        cases.add("celu", lambda x: F.celu(x, alpha), {"x": x}, ["x"], {"alpha": alpha})
    for x in (torch.randn(13), ends):
        cases.add("threshold", lambda x: F.threshold(x, 0.5, -2), {"x": x}, ["x"])


def bits(cases):
    def integers(dtype, *shape):
        return torch.randint(0 if dtype == torch.uint8 else -200, 200, shape).to(dtype)

    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            cases.add(name, lambda a, b: getattr(torch, name)(a, b), {}, [], None,
                      {"a": integers(dtype, 5, 7), "b": integers(dtype, 7)})
        cases.add("bitwise_not", lambda a: torch.bitwise_not(a), {}, [], None, {"a": integers(dtype, 9)})
        if dtype != torch.bool:
            by = torch.arange(0 if dtype == torch.uint8 else -2, 67).to(dtype)
            for name in ("bitwise_left_shift", "bitwise_right_shift"):
                cases.add(name, lambda a, b: getattr(torch, name)(a, b), {}, [], None,
                          {"a": integers(dtype, 4, 1), "b": by})


def more_statistics(cases):
    x3, x2 = torch.randn(3, 4, 5), torch.randn(4, 9)
    for dim in (0, 1):
        for name in ("min", "max"):
            cases.add("aminmax_" + name, lambda x: getattr(torch.aminmax(x, dim=dim), name), {"x": x3}, ["x"], {"dim": dim})
        for name in ("var_mean", "std_mean"):
            for part in (0, 1):
                cases.add(f"{name}_{part}", lambda x: getattr(torch, name)(x, dim, correction=0.5)[part], {"x": x3}, ["x"],
                          {"dim": dim})
        sparse = torch.randint(-1, 2, (4, 6)).float()
        cases.add("count_nonzero", lambda x: torch.count_nonzero(x, dim), {"x": sparse}, [], {"dim": dim})
        cases.add("cumulative_trapezoid", lambda x: torch.cumulative_trapezoid(x, dx=0.3, dim=dim), {"x": x3}, ["x"],
                  {"dx": 0.3, "dim": dim})
        cases.add("vecdot", lambda a, b: torch.linalg.vecdot(a, b, dim=dim), {"a": x3, "b": torch.randn(3, 4, 1)}, ["a", "b"],
                  {"dim": dim})
    cases.add("cumulative_trapezoid", lambda x, at: torch.cumulative_trapezoid(x, at, dim=1),
              {"x": x3, "at": torch.randn(4).sort().values}, ["x", "at"], {"dim": 1})
    weights = {"fweights": torch.randint(0, 4, (9,))}
    for x in (x2, torch.randn(9)):
        for correction in (0, 1):
            cases.add("cov", lambda x, fweights: torch.cov(x, correction=correction, fweights=fweights), {"x": x}, ["x"],
                      {"correction": correction}, weights)
            cases.add("cov", lambda x, aweights: torch.cov(x, correction=correction, aweights=aweights),
                      {"x": x, "aweights": torch.rand(9)}, ["x"], {"correction": correction})
            cases.add("cov", lambda x, aweights, fweights: torch.cov(x, correction=correction, fweights=fweights,
                      aweights=aweights), {"x": x, "aweights": torch.rand(9)}, ["x"], {"correction": correction}, weights)
    for n in (1, 2):
        ends = {"prepend": torch.randn(3, 2, 5), "append": torch.randn(3, 1, 5)}
        cases.add("diff", lambda x, **ends: torch.diff(x, n, 1, **ends), {"x": x3} | ends, ["x", *ends], {"n": n, "dim": 1})
        cases.add("diff", lambda x, append: torch.diff(x, n, 1, append=append), {"x": x3, "append": ends["append"]},
                  ["x", "append"], {"n": n, "dim": 1})
    edges = {"edges": torch.tensor([-1.5, -0.5, 0.0, 0.0, 2.0])}
    values = torch.cat([torch.randn(40) * 2, edges["edges"]])
    for density in (False, True):
        for part, name in enumerate(("counts", "edges")):
            for extra in ({}, {"weight": torch.rand(45)}):
                cases.add("histogram_" + name, lambda x, edges, weight=None: torch.histogram(
                    x, edges, weight=weight, density=density)[part], {"x": values} | edges | extra, [], {"density": density})
                cases.add("histogram_" + name, lambda x, weight=None: torch.histogram(
                    x, 8, range=(-2, 2), weight=weight, density=density)[part], {"x": values} | extra, [],
                    {"density": density, "bins": 8, "range": [-2, 2]})
            cases.add("histogram_" + name, lambda x: torch.histogram(x, 7, density=density)[part], {"x": values}, [],
                      {"density": density, "bins": 7, "range": [0, 0]})
    for order in ("fro", 1, -1, INF, -INF):
        for dims in ((-2, -1), (1, 0)):
            cases.add("matrix_norm", lambda x: torch.linalg.matrix_norm(x, order, dims), {"x": x3}, ["x"],
                      {"order": str(order), "dims": dims})
    for exponent in (0, 1, 2, 5, 8):
        cases.add("matrix_power", lambda x: torch.linalg.matrix_power(x, exponent), {"x": torch.randn(2, 3, 3)},
                  ["x"] if exponent else [], {"exponent": exponent})


def more_stacks(cases):
    shapes = {"dstack": ((2, 3), (2, 3, 2)), "column_stack": ((4,), (4, 2))}
    for name, (a, b) in shapes.items():
        both = {"a": torch.randn(a), "b": torch.randn(b)}
        cases.add(name, lambda a, b: getattr(torch, name)((a, b)), both, ["a", "b"])
    cases.add("dstack", lambda a, b: torch.dstack((a, b)), {"a": torch.randn(3), "b": torch.randn(3)}, ["a", "b"])
    cases.add("dstack", lambda a, b: torch.dstack((a, b)), {"a": torch.randn(()), "b": torch.randn(1)}, ["a", "b"])
    for n, r in ((5, 2), (5, 1), (4, 4), (3, 4), (6, 3), (0, 2), (4, 0)):
        for replacement in (False, True):
            cases.add("combinations", lambda x: torch.combinations(x, r, replacement), {"x": torch.randn(n)},
                      ["x"] if n and r and (n >= r or replacement) else [], {"r": r, "replacement": replacement})
    for columns in (0, 1, 4, 7):
        for increasing in (False, True):
            # PyTorch's backward of vander is an error.
            cases.add("vander", lambda x: torch.vander(x, columns, increasing), {"x": torch.randn(4)}, [],
                      {"columns": columns, "increasing": increasing})
    cases.add("broadcast_tensors", lambda a, b, c: torch.stack(torch.broadcast_tensors(a, b, c)),
              {"a": torch.randn(3, 1), "b": torch.randn(4), "c": torch.randn(2, 1, 1)}, ["a", "b", "c"])
    cases.add("unravel_index", lambda index: torch.stack(torch.unravel_index(index, (3, 4, 5))), {}, [], None,
              {"index": torch.randint(0, 60, (4, 3))})


def gamma_functions(cases):
    ends = torch.tensor([0.0, -0.0, INF, math.nan, 1.0, 2.0, -0.5, -3.7, 30.0, 1e-3])
    for name, x in (("erfc", torch.randn(13) * 3), ("lgamma", torch.rand(13) * 9 + 0.1), ("digamma", torch.rand(13) * 9 + 0.1)):
        # PyTorch's second derivative of lgamma has 9 digits.
        cases.add(name, lambda x: getattr(torch, name)(x), {"x": x}, [] if name == "digamma" else ["x"])
        cases.add(name, lambda x: getattr(torch, name)(x), {"x": ends}, [])
    for order in (0, 2, 3, 7):
        cases.add("polygamma", lambda x: torch.polygamma(order, x), {"x": torch.rand(13) * 9 + 0.3}, ["x"] if order else [],
                  {"order": order})


def more_special_functions(cases):
    special, ends = torch.special, torch.tensor([0.0, -0.0, INF, -INF, math.nan, 1e-3, -1e-3, 8.0, -8.0, 40.0])
    for name in ("i0", "i0e", "i1", "i1e", "erfcx", "log_ndtr"):
        cases.add(name, lambda x: getattr(special, name)(x), {"x": torch.randn(13) * 2 + 0.01}, ["x"])
        # PyTorch gives NaN for Bessel functions of infinity.
        finite = ends if name in ("erfcx", "log_ndtr") else ends[[0, 1, 4, 5, 6, 7, 8, 9]]
        cases.add(name, lambda x: getattr(special, name)(x), {"x": finite}, [])
    # Of large a PyTorch's have nine digits.
    a, x = torch.rand(4, 1, 5) * 6 + 0.1, torch.rand(3, 5) * 9 + 0.05
    for name in ("igamma", "igammac"):
        function = getattr(torch, name)
        cases.add(name, lambda a, x: function(a, x), {"a": a, "x": x}, ["x"])
        cases.add(name, lambda a, x: function(a, x), {"a": torch.tensor([0.0, 0, 1, 1, 2, -1, INF, INF, 3, math.nan]),
                                                      "x": torch.tensor([0.0, 1, 0, INF, -1, 2, 3, INF, 1, 1])}, [])
    integers = {"a": torch.randint(-60, 60, (4, 1, 5)), "b": torch.randint(-60, 60, (3, 5))}
    for name in ("gcd", "lcm"):
        cases.add(name, lambda a, b: getattr(torch, name)(a, b), {}, [], None, integers)
    index = torch.tensor([2, 0, 2, 1])
    for reduce in ("prod", "mean", "amax", "amin"):
        for include_self in (True, False):
            cases.add("index_reduce", lambda x, source, index: x.index_reduce(
                1, index, source, reduce, include_self=include_self),
                      {"x": torch.randn(2, 4, 3), "source": torch.randn(2, 4, 3)}, ["x", "source"],
                      {"reduce": reduce, "include_self": include_self}, {"index": index})
    for swap in (False, True):
        for reduction in REDUCTIONS:
            cases.add("triplet_margin_with_distance_loss", lambda a, b, c: F.triplet_margin_with_distance_loss(
                a, b, c, distance_function=lambda x, y: 1 - F.cosine_similarity(x, y), margin=0.8, swap=swap,
                reduction=reduction), {key: torch.randn(4, 6) for key in "abc"}, ["a", "b", "c"],
                {"swap": swap, "reduction": reduction})


FILES = {
    "functions": (25, (pointwise, reductions, losses)),
    "more_functions": (26, (margin_losses, ctc_losses, further_pointwise, further_reductions, further_rearrangements, gates,
                            special_functions, bits, more_statistics, more_stacks,
                            gamma_functions, more_special_functions)),
}


def write(name):
    seed, sections = FILES[name]
    cases = Cases()
    torch.manual_seed(seed)
    for section in sections:
        if name != "functions":
            torch.manual_seed(seed)  # sections can be added without a change of the others
        section(cases)
    path = HERE / f"{name}.safetensors"
    save_file(cases.tensors, str(path))
    path.chmod(0o644)  # save_file makes it private
    floor = 1e-3  # no tensor counts as smaller than this part of the case's results together
    lines = ",\n".join(json.dumps(case) for case in cases.cases)
    (HERE / f"{name}.json").write_text(f'{{"tolerances": {{"functions": {{"floor": {floor}}}}},\n'
        f' "functions": {{"file": "{name}.safetensors", "cases": [\n{lines}\n]}}}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", choices=FILES)
    name = parser.parse_args().file
    torch.set_num_threads(1)
    for each in [name] if name else FILES:
        write(each)


if __name__ == "__main__":
    main()
