#!/usr/bin/env python3
"""Writes nn.safetensors and nn.json: PyTorch's numbers for RMS norm and modules. Deterministic by seed."""
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations

from golden_ops import Cases

HERE = pathlib.Path(__file__).resolve().parent


def norm_cases(cases):
    for shape, affine, eps in [((5, 7), True, None), ((3, 4, 37), True, 1e-6), ((3, 2), True, 0.5), ((2, 1), True, 0.1),
                               ((9, 129), False, None)]:
        x = {"x": torch.randn(shape) * 3 + 1}
        if affine:
            x["weight"] = torch.randn(shape[-1])
        cases.add("rms_norm", lambda x, weight=None: F.rms_norm(x, x.shape[-1:], weight, eps), x, list(x), {"eps": eps})


def add_module(cases, op, make, tensors, call, params, constants=None):
    """make() -> module, whose parameters are drawn; call(run, tensors..., constants...) -> out, run the module."""
    drawn = {name: torch.randn(value.shape) * 0.5 for name, value in make().named_parameters()}

    def function(**given):
        module = make().to(given[next(iter(drawn))].dtype)
        own = {name: given.pop(name) for name in drawn}
        return call(lambda *x, **options: functional_call(module, own, x, options), **given)
    cases.add(op, function, tensors | drawn, list(tensors | drawn), params, constants)


def joined(found):
    return torch.cat([t.flatten() for t in found if t is not None])


def attention_cases(cases):
    def case(tensors, constants, weights, embed=12, heads=3, **options):
        def call(run, x=None, q=None, k=None, v=None, **masks):
            return joined(run(*((x, x, x) if q is None else (q, k, v)), **masks, need_weights=weights != "none",
                              average_attn_weights=weights == "average"))
        params = {"embed": embed, "heads": heads, "weights": weights} | options
        add_module(cases, "multihead_attention", lambda: nn.MultiheadAttention(embed, heads, **options), tensors, call,
                   params, constants)

    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    causal = torch.ones(5, 5).triu(1).bool()
    x, batch_first = torch.randn(5, 2, 12), torch.randn(2, 5, 12)
    case({"x": x}, {"key_padding_mask": padding, "attn_mask": causal}, "average")
    case({"x": batch_first}, {"key_padding_mask": padding}, "per_head", batch_first=True)
    case({"x": batch_first}, {"key_padding_mask": padding, "attn_mask": causal}, "none", batch_first=True)
    other = {"q": torch.randn(4, 2, 12), "k": torch.randn(5, 2, 7), "v": torch.randn(5, 2, 3)}
    for weights in ("per_head", "none"):
        case(other | {"attn_mask": torch.randn(6, 4, 5)}, {}, weights, kdim=7, vdim=3)
    case({"x": torch.randn(5, 12), "attn_mask": torch.randn(5, 5)}, {}, "average", bias=False)
    case({"q": x[:3], "k": torch.randn(5, 2, 12), "v": torch.randn(5, 2, 12)}, {}, "none", embed=12, heads=2)


def transformer_cases(cases):
    causal = torch.full((5, 5), -torch.inf).triu(1)
    padding = torch.tensor([[False] * 5, [False, False, False, False, True]])
    x, memory = torch.randn(5, 2, 8), torch.randn(3, 2, 8)
    for norm_first, activation, layers in [(False, "relu", 0), (True, "gelu", 0), (False, "gelu", 2),
                                           (True, "relu", 2)]:
        options = {"dim_feedforward": 11, "dropout": 0.0, "activation": activation, "norm_first": norm_first}
        params = {"layers": layers, "activation": activation, "norm_first": norm_first}

        def encoder():
            layer = nn.TransformerEncoderLayer(8, 2, **options)
            return nn.TransformerEncoder(layer, layers, nn.LayerNorm(8), False) if layers else layer

        def decoder():
            layer = nn.TransformerDecoderLayer(8, 2, **options)
            return nn.TransformerDecoder(layer, layers, nn.LayerNorm(8)) if layers else layer
        add_module(cases, "transformer_encoder", encoder, {"x": x},
                   lambda run, x, padding: run(x, src_key_padding_mask=padding), params, {"padding": padding})
        add_module(cases, "transformer_decoder", decoder, {"x": x, "memory": memory},
                   lambda run, x, memory, causal: run(x, memory, tgt_mask=causal.to(x.dtype)), params,
                   {"causal": causal})


def parametrization_cases(cases):
    inputs = {"x": torch.randn(4, 5), "weight": torch.randn(3, 5), "bias": torch.randn(3)}
    for dim in (0, 1, None):
        def weighted(x, weight, bias, **g):
            layer = parametrizations.weight_norm(nn.Linear(5, 3).to(x.dtype), dim=dim)
            norm = g["weight_norm.g"] if dim is not None else g["weight_norm.g"].reshape(())
            return functional_call(layer, {"parametrizations.weight.original0": norm,
                                           "parametrizations.weight.original1": weight, "bias": bias}, (x,))
        given = inputs | {"weight_norm.g": torch.rand(3 if dim == 0 else 1, 5 if dim == 1 else 1) + 0.5}
        cases.add("weight_norm", weighted, given, list(given), {"dim": dim})
    for training in (True, False):
        def spectral(x, weight, bias, **vectors):
            layer = parametrizations.spectral_norm(nn.Linear(5, 3).to(x.dtype), n_power_iterations=2).train(training)
            names = {f"parametrizations.weight.0._{name}": vectors[f"spectral_norm.{name}"].to(x.dtype, copy=True)
                     for name in ("u", "v")}
            return functional_call(layer, names | {"parametrizations.weight.original": weight, "bias": bias}, (x,))
        vectors = {f"spectral_norm.{name}": F.normalize(torch.randn(size), dim=0)
                   for name, size in (("u", 3), ("v", 5))}
        cases.add("spectral_norm", spectral, inputs, list(inputs), {"training": training}, vectors)


def convolution_parametrization_cases(cases):
    """Layers of 4 channels to 6, kernels of 3 or, in three dimensions, 2."""
    def case(op, kind, parametrize, groups=1, training=True, dim=0):
        dims = int(kind[-2])
        inputs = {"x": torch.randn([2, 4, 6, 4, 3][:dims + 2])}

        def make():
            layer = parametrize(getattr(nn, kind)(4, 6, 2 if dims == 3 else 3, groups=groups))
            return layer.double().train(training)
        first = "parametrizations.weight.original" + ("1" if op == "weight_norm_conv" else "")
        drawn = {name: torch.randn(value.shape) * 0.5 for name, value in make().named_parameters()}
        inputs |= {"weight": drawn[first], "bias": drawn["bias"]}
        constants = {}
        if op == "weight_norm_conv":  # Tern's g has a dimension for each of the weight's, also where PyTorch's has none
            g = drawn["parametrizations.weight.original0"].abs() + 0.5
            inputs["weight_norm.g"] = g if dim is not None else g.reshape([1] * (dims + 2))
        else:
            constants = {f"spectral_norm.{name}": F.normalize(torch.randn(value.shape), dim=0)
                         for name, value in (("u", make().parametrizations.weight[0]._u),
                                             ("v", make().parametrizations.weight[0]._v))}

        def function(x, weight, bias, **others):
            own = {first: weight, "bias": bias}
            for name, value in others.items():
                if name == "weight_norm.g":
                    own["parametrizations.weight.original0"] = value if dim is not None else value.reshape(())
                else:
                    own["parametrizations.weight.0._" + name[-1]] = value.to(x.dtype, copy=True)
            return functional_call(make().to(x.dtype), own, (x,))
        cases.add(op, function, inputs, list(inputs),
                  {"layer": kind, "groups": groups, "training": training, "dim": dim}, constants)

    for kind, groups, dim in [("Conv1d", 1, 0), ("Conv2d", 2, 0), ("Conv3d", 1, 0), ("Conv2d", 1, 1), ("Conv1d", 1, 2),
                              ("Conv2d", 1, None), ("ConvTranspose1d", 1, 0), ("ConvTranspose2d", 2, 0),
                              ("ConvTranspose3d", 1, 1)]:
        case("weight_norm_conv", kind, lambda layer: parametrizations.weight_norm(layer, dim=dim), groups, True, dim)
    for kind, groups, training in [("Conv1d", 1, True), ("Conv2d", 2, True), ("Conv3d", 1, False),
                                   ("ConvTranspose1d", 1, True), ("ConvTranspose2d", 2, False),
                                   ("ConvTranspose3d", 1, True)]:
        case("spectral_norm_conv", kind, lambda layer: parametrizations.spectral_norm(layer, n_power_iterations=2),
             groups, training)


def main():
    torch.set_num_threads(1)  # the order of sums does not depend on the machine
    torch.manual_seed(1)
    norms, modules = Cases(), Cases()
    norm_cases(norms)
    for add in (attention_cases, transformer_cases, parametrization_cases,
                convolution_parametrization_cases):
        add(modules)
    save_file(norms.tensors | modules.tensors, str(HERE / "nn.safetensors"))
    index = {"made_with": torch.__version__.split("+")[0],
             "tolerances": {"norms": {"floor": 1e-3}, "modules": {"floor": 1e-3}},
             "norms": {"file": "nn.safetensors", "cases": norms.cases},
             "modules": {"file": "nn.safetensors", "cases": modules.cases}}
    (HERE / "nn.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
