"""Reference numbers for single operations, attention, optimizers and schedules."""
import math

import torch
import torch.nn.functional as F


class Cases:
    """Collects named tensors for one safetensors file and the description of each case for the index.

    Inputs are exact float32 values and stored so; results are computed by PyTorch in float64 and stored as float64.
    `float32_error` is the largest relative error (in norm) of PyTorch's own float32 result: a floor for any tolerance.
    """

    def __init__(self):
        self.tensors, self.cases = {}, []

    def add(self, op, function, inputs, differentiable, params=None, constants=None):
        """function(**inputs, **constants) -> out; gradients of sum(out * d_out) by each of `differentiable`."""
        name = f"{op}.{sum(case['op'] == op for case in self.cases)}"
        constants = constants or {}
        results, error = None, 0.0
        d_out = None
        for dtype in (torch.float64, torch.float32):
            leaves = {key: value.to(dtype, copy=True).requires_grad_(key in differentiable)
                      for key, value in inputs.items()}
            out = function(**leaves, **constants)
            if d_out is None:
                d_out = torch.randn(out.shape)
            if differentiable:
                (out * d_out.to(dtype)).sum().backward()
            found = {"out": out.detach()} | {f"d_{key}": leaves[key].grad for key in differentiable}
            if dtype == torch.float64:
                results = found
            else:
                error = max(relative_error(found[key], results[key], results) for key in found)
        stored = inputs | constants | {"d_out": d_out}
        for key, value in (stored | results).items():
            self.tensors[f"{name}/{key}"] = value.contiguous().clone()
        self.cases.append({"name": name, "op": op, "params": params or {}, "inputs": sorted(inputs),
                           "constants": sorted(constants), "results": sorted(results), "float32_error": error})


def relative_error(value, reference, all_results):
    """The project's rule: norms per tensor, and no tensor counts as smaller than 1e-3 of all together. Elements that are
    not finite count as 0: tests compare them exactly."""
    def finite(tensor):
        return torch.where(reference.isfinite() & value.isfinite(), tensor.double(), 0.0)

    total = math.sqrt(sum(float(tensor.double().nan_to_num(0, 0, 0).pow(2).sum()) for tensor in all_results.values()))
    scale = max(float(finite(reference).norm()), 1e-3 * total, 1e-300)
    return float((finite(value) - finite(reference)).norm()) / scale


def attention_cases():
    """Layout of q, k, v and out: [batch, sequence, heads, head size]."""
    cases = Cases()

    def run(batch, queries, keys, heads, size, kv_heads=None, causal=False, window=None, lengths=None, bias=False,
            scale=None):
        kv_heads = kv_heads or heads
        inputs = {"q": torch.randn(batch, queries, heads, size), "k": torch.randn(batch, keys, kv_heads, size),
                  "v": torch.randn(batch, keys, kv_heads, size)}
        position = torch.arange(queries)[:, None] + (keys - queries)  # aligned at the end
        key = torch.arange(keys)[None, :]
        allowed = torch.ones(queries, keys, dtype=torch.bool)
        if causal:
            allowed &= key <= position
        if window is not None:
            allowed &= (key - position).abs() <= window
        allowed = allowed[None, None].expand(batch, 1, queries, keys)
        constants = {}
        if lengths:
            constants["key_mask"] = (key < torch.tensor(lengths)[:, None]).to(torch.uint8)
            allowed = allowed & constants["key_mask"].bool()[:, None, None, :]
        if bias:
            inputs["bias"] = torch.randn(1, heads, queries, keys)

        def function(q, k, v, bias=None, key_mask=None):
            mask = torch.zeros(allowed.shape, dtype=q.dtype).masked_fill(~allowed, -torch.inf)
            if bias is not None:
                mask = mask + bias
            out = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, scale=scale,
                enable_gqa=kv_heads != heads)
            return out.transpose(1, 2)

        cases.add("attention", function, inputs, sorted(inputs), constants=constants, params={
            "causal": causal, "window": -1 if window is None else window,
            "scale": size**-0.5 if scale is None else scale})

    run(1, 1, 1, 2, 8)
    run(2, 37, 37, 3, 16)
    run(2, 37, 37, 2, 8, lengths=[37, 5])
    run(3, 20, 20, 2, 16, lengths=[20, 1, 13])
    run(2, 19, 19, 4, 8, causal=True)
    run(2, 33, 33, 2, 64)
    run(1, 33, 33, 2, 64, causal=True)
    run(2, 7, 23, 2, 16, lengths=[23, 9])
    run(1, 5, 12, 2, 16, causal=True)
    run(1, 21, 21, 4, 16, kv_heads=2, causal=True)
    run(1, 30, 30, 2, 8, window=4)
    run(1, 30, 30, 2, 8, window=3, causal=True)
    run(2, 9, 9, 2, 12, bias=True)
    run(1, 9, 9, 2, 12, scale=0.7)
    return cases


def op_cases():
    cases = Cases()

    for shape, affine, eps in [((5, 7), True, 1e-5), ((3, 4, 37), True, 1e-12), ((3, 2), True, 0.5),
                               ((2, 1), True, 1e-5), ((9, 129), False, 1e-12), ((2, 768), True, 1e-12)]:
        x = {"x": torch.randn(shape) * 3 + 1}
        if affine:
            x |= {"weight": torch.randn(shape[-1]), "bias": torch.randn(shape[-1])}
        # With one column x - mean is 0: the other gradients are rounding noise.
        cases.add("layer_norm", lambda x, weight=None, bias=None: F.layer_norm(x, x.shape[-1:], weight, bias, eps),
                  x, list(x) if shape[-1] > 1 else ["bias"], {"eps": eps})

    # Far tails included: there erf's and tanh's own errors show.
    tails = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([0.0, 1e-30, -1e-30, 40.0, -40.0])])
    for approximate in ("none", "tanh"):
        for x in (tails, torch.randn(3, 11)):
            cases.add("gelu", lambda x: F.gelu(x, approximate=approximate), {"x": x}, ["x"],
                      {"approximate": approximate})

    for op, function in (("softmax", F.softmax), ("log_softmax", F.log_softmax)):
        for x in (torch.randn(5, 7), torch.randn(3, 1), torch.randn(2, 3, 130) * 10, torch.randn(4, 17) * 1e-3 + 100):
            cases.add(op, lambda x: function(x, dim=-1), {"x": x}, ["x"])

    for rows, classes, smoothing, ignored in [(6, 3, 0.0, 0), (7, 10, 0.1, 2), (1, 5, 0.0, 0), (33, 129, 0.2, 5)]:
        target = torch.randint(0, classes, (rows,))
        target[torch.randperm(rows)[:ignored]] = -100
        for reduction in ("mean", "sum", "none"):
            cases.add("cross_entropy", lambda x, target: F.cross_entropy(
                x, target, ignore_index=-100, label_smoothing=smoothing, reduction=reduction),
                {"x": torch.randn(rows, classes) * 2}, ["x"],
                {"ignore_index": -100, "label_smoothing": smoothing, "reduction": reduction}, {"target": target})

    for count, width, shape, padding in [(11, 5, (3, 7), None), (11, 5, (3, 7), 0), (3, 33, (64,), None),
                                         (1, 1, (1,), None)]:
        ids = torch.randint(0, count, shape)
        ids[..., -1] = 0
        cases.add("embedding", lambda weight, ids: F.embedding(ids, weight, padding_idx=padding),
                  {"weight": torch.randn(count, width)}, ["weight"],
                  {"padding_index": -1 if padding is None else padding}, {"ids": ids})

    for shape, outputs, bias in [((5, 7), 3, True), ((2, 3, 33), 17, True), ((1, 1), 1, True), ((13, 65), 31, False)]:
        x = {"x": torch.randn(shape), "weight": torch.randn(outputs, shape[-1])}
        if bias:
            x["bias"] = torch.randn(outputs)
        cases.add("linear", F.linear, x, list(x))
    return cases


OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}),
    "adamw_other_betas": (torch.optim.AdamW, {"lr": 3e-3, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.0}),
    "adam_l2": (torch.optim.Adam, {"lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 1e-2, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.0,
                                        "amsgrad": True}),
    "adamw_amsgrad_maximize": (torch.optim.AdamW, {"lr": 1e-2, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.01,
                                                   "amsgrad": True, "maximize": True}),
    "sgd": (torch.optim.SGD, {"lr": 1e-2}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "sgd_maximize": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.5, "maximize": True}),
    "nadam": (torch.optim.NAdam, {}),
    "nadam_l2_maximize": (torch.optim.NAdam, {"lr": 1e-2, "betas": [0.8, 0.95], "weight_decay": 0.1,
                                              "momentum_decay": 0.7, "maximize": True}),
    "nadam_decoupled": (torch.optim.NAdam, {"lr": 1e-2, "eps": 1e-6, "weight_decay": 0.1,
                                            "decoupled_weight_decay": True}),
    "radam": (torch.optim.RAdam, {"lr": 1e-2}),
    "radam_l2_maximize": (torch.optim.RAdam, {"lr": 1e-2, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1,
                                              "maximize": True}),
    "radam_decoupled": (torch.optim.RAdam, {"lr": 1e-2, "betas": [0.9, 0.99], "weight_decay": 0.1,
                                            "decoupled_weight_decay": True}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "rmsprop_centered": (torch.optim.RMSprop, {"lr": 1e-3, "alpha": 0.9, "eps": 1e-6, "centered": True,
                                               "maximize": True}),
    "rmsprop_momentum": (torch.optim.RMSprop, {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.1}),
    "rmsprop_all": (torch.optim.RMSprop, {"lr": 1e-3, "alpha": 0.95, "eps": 1e-6, "momentum": 0.5, "weight_decay": 0.1,
                                          "centered": True}),
    "adagrad": (torch.optim.Adagrad, {}),
    "adagrad_all": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.05, "eps": 1e-6, "weight_decay": 0.1,
                                          "initial_accumulator_value": 0.3, "maximize": True}),
    "adadelta": (torch.optim.Adadelta, {}),
    "adadelta_all": (torch.optim.Adadelta, {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1,
                                            "maximize": True}),
}


def optimizer_cases(steps=50, size=67, kept=(1, 2, 10, 50)):
    """Every optimizer sees the same gradients; those of the last element are zero, of the first shrink and jump."""
    weight, gradients = torch.randn(size), torch.randn(steps, size)
    gradients[:, -1] = 0
    gradients[:, 0] *= torch.logspace(0, -6, steps)
    gradients[30, 1] = 1e3
    tensors, index = {"weight": weight, "gradients": gradients}, []
    for name, (kind, options) in OPTIMIZERS.items():
        error = 0.0
        for dtype in (torch.float64, torch.float32):
            torch.set_default_dtype(dtype)  # NAdam keeps the product of its factors in it
            parameter = torch.nn.Parameter(weight.to(dtype).clone())
            optimizer = kind([parameter], **options)
            for step in range(1, steps + 1):
                parameter.grad = gradients[step - 1].to(dtype)
                optimizer.step()
                if step in kept and dtype == torch.float64:
                    tensors[f"{name}/step{step}"] = parameter.detach().clone()
                elif step in kept:
                    reference = tensors[f"{name}/step{step}"]
                    error = max(error, float((parameter.detach().double() - reference).norm() / reference.norm()))
        index.append({"name": name, "class": kind.__name__, "params": options, "steps": list(kept),
                      "float32_error": error})
    return tensors, index


def schedules():
    """Learning rates as factors of the base rate, as used by step 0, 1, ...: Hugging Face's definitions."""
    import transformers

    makers = {"linear_with_warmup": transformers.get_linear_schedule_with_warmup,
              "cosine_with_warmup": transformers.get_cosine_schedule_with_warmup,
              "constant_with_warmup": transformers.get_constant_schedule_with_warmup}
    found = []
    for name, maker in makers.items():
        for warmup, total in [(0, 10), (3, 20), (10, 100), (5, 5), (1, 2)]:
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
            schedule = maker(optimizer, warmup) if name.startswith("constant") else maker(optimizer, warmup, total)
            factors = []
            for _ in range(total + 3):  # three more: what happens after the end
                factors.append(schedule.get_last_lr()[0])
                optimizer.step()
                schedule.step()
            found.append({"schedule": name, "warmup": warmup, "total": total, "factors": factors})
    return found
