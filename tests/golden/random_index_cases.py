"""Random calls of views, of ops that move elements, and of those with indices (random_ops.py)."""

import math

import torch
import torch.nn.functional as F

from random_op_cases import with_arguments
from random_ops import ALL, FLOATS, INTEGERS, Case, op

# Views.


def view(name, function, arguments, shape=(0, 4), dtypes=ALL, zeros=True, family="view"):
    with_arguments(family, name, function, arguments, dtypes, shape=shape, zeros=zeros)


def factors(d, n):
    """Sizes whose product is n."""
    found = []
    while n > 1 and len(found) < 3:
        divisor = d.pick(*[k for k in range(1, n + 1) if n % k == 0])
        found.append(divisor)
        n //= divisor
    found.append(n)
    if d.one_in(2) and math.prod(found):
        found[d.below(len(found))] = -1
    return found


view(
    "to",
    lambda x, dtype: x.to(getattr(torch, dtype)),
    lambda d, x: dict(
        dtype=d.pick(
            "float32",
            "float64",
            "bfloat16",
            "float16",
            *(["int64", "int32", "bool"] * (not x.is_floating_point())),
            "bool"
        )
    ),
)
view("channels_last", lambda x: x.clone(), lambda d, x: {}, (3, 4))
view("reshape", lambda x, sizes: x.reshape(sizes), lambda d, x: dict(sizes=factors(d, x.numel())))
view(
    "flatten", lambda x, start, end: x.flatten(start, end), lambda d, x: dict(start=d.dim(x.dim()), end=d.dim(x.dim()))
)
view("transpose", lambda x, a, b: x.transpose(a, b), lambda d, x: dict(a=d.dim(x.dim()), b=d.dim(x.dim())), (1, 4))
view(
    "permute",
    lambda x, order: x.permute(order),
    lambda d, x: dict(order=d.random.sample([k - x.dim() * d.one_in(3) for k in range(x.dim())], x.dim())),
    (1, 4),
)
view("movedim", lambda x, a, b: x.movedim(a, b), lambda d, x: dict(a=d.dim(x.dim()), b=d.dim(x.dim())), (1, 4))
view(
    "view",
    lambda x, dtype: x.view(getattr(torch, dtype)),
    lambda d, x: dict(dtype={8: "int64", 4: "int32", 2: "float16", 1: "uint8"}[x.element_size()]),
    dtypes=[torch.float32, torch.float64, torch.bool],
)
view(
    "unflatten",
    lambda x, dim, sizes: x.unflatten(dim, sizes),
    lambda d, x: (lambda dim: dict(dim=dim, sizes=factors(d, x.shape[dim])))(d.dim(x.dim())),
    (1, 3),
)
view(
    "squeeze",
    lambda x, dims: x.squeeze(dims) if dims is not None else x.squeeze(),
    lambda d, x: dict(dims=d.pick(None, d.dims(x.dim(), False))),
)
view("unsqueeze", lambda x, dim: x.unsqueeze(dim), lambda d, x: dict(dim=d.between(-x.dim() - 1, x.dim())))
view(
    "expand",
    lambda x, sizes: x.expand(sizes),
    lambda d, x: dict(
        sizes=[d.between(0, 3) for _ in range(d.below(2))]
        + [d.between(0, 4) if n == 1 and d.one_in(2) else d.pick(-1, n) for n in x.shape]
    ),
    (0, 3),
)
view(
    "slice",
    lambda x, dim, begin, end, step: x[(slice(None),) * (dim % x.dim()) + (slice(begin, end, step),)],
    lambda d, x: dict(dim=d.dim(x.dim()), begin=d.between(-9, 9), end=d.between(-9, 20), step=d.between(1, 4)),
    (1, 4),
)
view(
    "narrow",
    lambda x, dim, start, length: x.narrow(dim, start, length),
    lambda d, x: (lambda dim, start: dict(dim=dim, start=start, length=d.below(x.shape[dim] - start + 1)))(
        d.dim(x.dim()), d.below(2)
    ),
    (1, 4),
)
view(
    "diagonal",
    lambda x, offset, dim1, dim2: x.diagonal(offset, dim1, dim2),
    lambda d, x: dict(offset=d.between(-3, 3), dim1=d.dim(x.dim()), dim2=d.dim(x.dim())),
    (2, 4),
)
view(
    "select",
    lambda x, dim, index: x.select(dim, index),
    lambda d, x: dict(dim=d.dim(x.dim()), index=d.between(-4, 4)),
    (1, 4),
)
view(
    "split",
    lambda x, size, dim: x.split(size, dim),
    lambda d, x: dict(size=d.between(1, 9), dim=d.dim(x.dim())),
    (1, 3),
)
view(
    "chunk",
    lambda x, pieces, dim: x.chunk(pieces, dim),
    lambda d, x: dict(pieces=d.between(1, 9), dim=d.dim(x.dim())),
    (1, 3),
)
view(
    "tensor_split",
    lambda x, pieces, dim: x.tensor_split(pieces, dim),
    lambda d, x: dict(
        pieces=d.pick(d.between(1, 9), [d.between(-9, 9) for _ in range(d.between(1, 3))]), dim=d.dim(x.dim())
    ),
    (1, 3),
)
view("unbind", lambda x, dim: x.unbind(dim), lambda d, x: dict(dim=d.dim(x.dim())), (1, 3), zeros=False)

# Rearranged elements.


def rearranged(name, function, arguments, shape=(0, 4), dtypes=ALL, zeros=True):
    view(name, function, arguments, shape, dtypes, zeros, "indexing")


rearranged("flip", lambda x, dims: torch.flip(x, dims), lambda d, x: dict(dims=d.dims(x.dim())))
rearranged(
    "rot90",
    lambda x, k, a, b: torch.rot90(x, k, (a, b)),
    lambda d, x: dict(k=d.between(-5, 5), a=d.dim(x.dim()), b=d.dim(x.dim())),
    (2, 4),
)
rearranged(
    "roll",
    lambda x, shifts, dims: torch.roll(x, shifts, dims) if dims else torch.roll(x, shifts[0]),
    lambda d, x: (lambda dims: dict(dims=dims, shifts=[d.between(-20, 20) for _ in dims] or [d.between(-20, 20)]))(
        d.dims(x.dim())
    ),
)
rearranged(
    "repeat",
    lambda x, repeats: x.repeat(repeats),
    lambda d, x: dict(repeats=[d.between(0, 3) for _ in range(x.dim() + d.below(2))]),
    (0, 3),
)
rearranged(
    "tile",
    lambda x, repeats: torch.tile(x, repeats),
    lambda d, x: dict(repeats=[d.between(0, 3) for _ in range(d.below(4))]),
    (0, 3),
)
rearranged(
    "repeat_interleave",
    lambda x, repeats, dim: torch.repeat_interleave(x, repeats, dim),
    lambda d, x: dict(repeats=d.between(0, 3), dim=d.pick(None, d.dim(x.dim()))),
    (0, 3),
)
rearranged(
    "pad",
    lambda x, padding, mode, value: F.pad(x, padding, mode, value) if mode == "constant" else F.pad(x, padding, mode),
    lambda d, x: (
        lambda mode: dict(
            mode=mode,
            value=d.pick(0, 2) if mode == "constant" else 0,
            padding=[d.between(-1 if mode == "constant" else 0, 3) for _ in range(2 * d.between(1, max(1, x.dim())))],
        )
    )(d.pick("constant", "constant", "reflect", "replicate", "circular")),
    (1, 4),
    FLOATS,
)
rearranged("tril", torch.tril, lambda d, x: dict(diagonal=d.between(-4, 4)), (2, 4))
rearranged("triu", torch.triu, lambda d, x: dict(diagonal=d.between(-4, 4)), (2, 4))
rearranged(
    "diag_embed",
    lambda x, offset, dim1, dim2: torch.diag_embed(x, offset, dim1, dim2),
    lambda d, x: dict(offset=d.between(-3, 3), dim1=d.dim(x.dim() + 1), dim2=d.dim(x.dim() + 1)),
    (1, 3),
)
rearranged("diag", torch.diag, lambda d, x: dict(diagonal=d.between(-3, 3)), (1, 2))
rearranged("trace", torch.trace, lambda d, x: {}, (2, 2), FLOATS + INTEGERS)
rearranged(
    "combinations",
    lambda x, r, again: torch.combinations(x, r, again),
    lambda d, x: dict(r=d.between(1, 3), again=d.one_in(2)),
    (1, 1),
)
rearranged(
    "vander",
    lambda x, columns, increasing: torch.vander(x, columns, increasing),
    lambda d, x: dict(columns=d.pick(None, d.below(5)), increasing=d.one_in(2)),
    (1, 1),
    [torch.float32, torch.float64, torch.int64, torch.int32],
)
with_arguments("indexing", "nonzero", torch.nonzero, lambda d, x: {}, ALL, differentiable=False)


def joined(name, shapes, function=None, arguments=lambda d, x: {}):
    @op("indexing", name)
    def draw_case(d):
        one = d.dtype()
        x = [
            d.tensor(s, one if d.one_in(2) else d.dtype()) if name != "block_diag" else d.tensor(s, one)
            for s in shapes(d)
        ]
        drawn = arguments(d, x[0])
        call = function or getattr(torch, name)
        return Case(x, drawn, lambda *x: call(list(x), **drawn))


def alike(d, least=0):
    shape = d.shape(least, 3, most=100)
    return [shape for _ in range(d.between(1, 4))]


joined("cat", lambda d: alike(d, 1), arguments=lambda d, x: dict(dim=d.dim(x.dim())))
joined("stack", alike, arguments=lambda d, x: dict(dim=d.dim(x.dim() + 1)))
for kind in "hstack vstack dstack column_stack".split():
    joined(kind, alike)
joined("block_diag", lambda d: [d.shape(0, 2, most=30) for _ in range(d.between(1, 3))], lambda x: torch.block_diag(*x))
joined(
    "meshgrid",
    lambda d: [[d.between(0, 4)] for _ in range(d.between(1, 3))],
    lambda x, indexing: torch.meshgrid(*x, indexing=indexing),
    lambda d, x: dict(indexing=d.pick("ij", "xy")),
)
joined(
    "cartesian_prod", lambda d: [[d.between(1, 4)] for _ in range(d.between(1, 3))], lambda x: torch.cartesian_prod(*x)
)
joined(
    "broadcast_tensors",
    lambda d: (lambda s: [s, d.broadcast(s), d.broadcast(s)])(d.shape(0, 3)),
    lambda x: torch.broadcast_tensors(*x),
)


# Indices.


def indexed(name, function, arguments=lambda d: {}, unique=False, source=None, dtypes=ALL):
    """A tensor, an index along dim with the shape that `source` says, and what goes there."""

    @op("indexing", name)
    def draw_case(d):
        shape, dtype = d.shape(1, 3), d.dtype(dtypes)
        dim, count = d.dim(len(shape)), d.between(0, 5)
        size = shape[dim]
        if size == 0:
            count = 0
        if source in (None, "slices"):
            index = torch.randperm(size, generator=d.generator)[:count] if unique else d.indices([count], size)
            there = list(shape)
            there[dim] = len(index)
        else:
            there = [d.between(0, n) for n in shape]
            there[dim] = min(count, size) if unique else count
            index = (
                torch.rand([*there[: dim % len(shape)], size, *there[dim % len(shape) + 1 :]], generator=d.generator)
                .argsort(dim)
                .narrow(dim, 0, there[dim])
                if unique
                else d.indices(there, size)
            )
        drawn = arguments(d) | dict(dim=dim)
        inputs = [d.tensor(shape, dtype), index] + ([d.tensor(there, dtype)] if source else [])
        return Case(inputs, drawn, lambda *x: function(*x, **drawn), True)


indexed("index_select", lambda x, i, dim: torch.index_select(x, dim, i))
indexed("index_fill", lambda x, i, dim, value: torch.index_fill(x, dim, i, value), lambda d: dict(value=1))
indexed("index_copy", lambda x, i, s, dim: torch.index_copy(x, dim, i, s), unique=True, source="slices")
indexed(
    "index_add",
    lambda x, i, s, dim, alpha: torch.index_add(x, dim, i, s, alpha=alpha),
    lambda d: dict(alpha=d.pick(1, 2)),
    source="slices",
    dtypes=FLOATS + INTEGERS,
)
indexed(
    "index_reduce",
    lambda x, i, s, dim, mode, include_self: torch.index_reduce(x, dim, i, s, mode, include_self=include_self),
    lambda d: dict(mode=d.pick("prod", "mean", "amax", "amin"), include_self=d.one_in(2)),
    source="slices",
    dtypes=FLOATS + INTEGERS,
)
indexed("gather", lambda x, i, _, dim: torch.gather(x, dim, i), source="places")
indexed("scatter", lambda x, i, s, dim: torch.scatter(x, dim, i, s), unique=True, source="places")
indexed(
    "scatter_number",
    lambda x, i, _, dim, value: torch.scatter(x, dim, i, value),
    lambda d: dict(value=1),
    source="places",
)
indexed("scatter_add", lambda x, i, s, dim: torch.scatter_add(x, dim, i, s), source="places", dtypes=FLOATS + INTEGERS)
indexed(
    "scatter_reduce",
    lambda x, i, s, dim, mode, include_self: torch.scatter_reduce(x, dim, i, s, mode, include_self=include_self),
    lambda d: dict(mode=d.pick("sum", "prod", "mean", "amax", "amin"), include_self=d.one_in(2)),
    source="places",
    dtypes=FLOATS + INTEGERS,
)


@op("indexing", "take_along_dim")
def take_along_dim(d):
    shape = d.shape(1, 3, zeros=False)
    dim = d.dim(len(shape))
    there = d.broadcast(shape)
    there = [1] * (len(shape) - len(there)) + there
    there[dim] = d.between(0, 5)
    return Case(
        [d.tensor(shape, d.dtype()), d.indices(there, shape[dim])],
        {"dim": dim},
        lambda x, i: torch.take_along_dim(x, i, dim),
    )


@op("indexing", "embedding")
def embedding(d):
    count = d.between(1, 9)
    padding = d.between(-1, count - 1)
    return Case(
        [d.tensor([count, d.between(0, 9)], d.dtype(FLOATS), finite=True), d.indices(d.shape(0, 3), count)],
        {"padding_index": padding},
        lambda w, i: F.embedding(i, w, None if padding < 0 else padding),
    )


@op("indexing", "take")
def take(d):
    x = d.tensor(d.shape(0, 3, zeros=False), d.dtype())
    return Case([x, d.indices(d.shape(0, 3), x.numel(), -x.numel())], {}, torch.take)


@op("indexing", "put")
def put(d):
    x = d.tensor(d.shape(0, 3, zeros=False), d.dtype(FLOATS + INTEGERS))
    accumulate = d.one_in(2)
    count = d.between(0, min(9, x.numel()))
    index = (
        d.indices([count], x.numel(), -x.numel())
        if accumulate
        else torch.randperm(x.numel(), generator=d.generator)[:count]
    )
    return Case(
        [x, index, d.tensor([count], x.dtype)], {"accumulate": accumulate}, lambda x, i, s: x.put(i, s, accumulate)
    )


@op("indexing", "masked_select")
def masked_select(d):
    shape = d.shape()
    return Case([d.tensor(shape, d.dtype()), d.tensor(d.broadcast(shape), torch.bool)], {}, torch.masked_select)


@op("indexing", "masked_scatter")
def masked_scatter(d):
    shape, dtype = d.shape(), d.dtype()
    return Case(
        [d.tensor(shape, dtype), d.tensor(d.broadcast(shape), torch.bool), d.tensor([math.prod(shape)], dtype)],
        {},
        torch.masked_scatter,
    )


@op("indexing", "one_hot")
def one_hot(d):
    classes = d.pick(-1, d.between(1, 9))
    return Case(
        [d.indices(d.shape(0, 3, zeros=classes > 0), max(classes, 5))],
        {"classes": classes},
        lambda x: F.one_hot(x, classes),
    )


@op("indexing", "unravel_index")
def unravel_index(d):
    shape = d.shape(1, 4, zeros=False)
    return Case([d.indices(d.shape(0, 2), math.prod(shape))], {"shape": shape}, lambda i: torch.unravel_index(i, shape))


for kind in ("tril_indices", "triu_indices"):

    @op("indexing", kind)
    def triangle(d, kind=kind):
        drawn = dict(rows=d.below(6), cols=d.below(6), diagonal=d.between(-4, 4))
        return Case([], drawn, lambda: getattr(torch, kind)(drawn["rows"], drawn["cols"], drawn["diagonal"]))


def entries(d, shape):
    """What Python writes between brackets: as arguments, as PyTorch's index, and its tensors."""
    arguments, index, inputs, left = [], [], [], list(shape)
    while left and not d.one_in(4):
        size, kind = left.pop(0), d.pick("number", "slice", "tensor", "mask", "new", "slice")
        if kind == "number" and size > 0:
            index.append(d.between(-size, size - 1))
            arguments.append({"number": index[-1]})
        elif kind == "tensor" and size > 0:
            inputs.append(d.indices(d.pick([3], [1], [2, 3], [2, 1]), size, -size))
            index.append(len(inputs) - 1)
            arguments.append({"tensor": len(inputs)})
            index[-1] = inputs[-1]
        elif kind == "mask" and not inputs:
            inputs.append(d.tensor([size], torch.bool))
            index.append(inputs[-1])
            arguments.append({"tensor": len(inputs)})
        elif kind == "new":
            left.insert(0, size)
            index.append(None)
            arguments.append({"new": 1})
        else:
            index.append(slice(d.between(-5, 5), d.between(-5, 9), d.between(1, 3)))
            arguments.append({"slice": [index[-1].start, index[-1].stop, index[-1].step]})
        if len(index) > 6:
            break
    if d.one_in(3):
        index.append(...)
        arguments.append({"rest": 1})
    return arguments, tuple(index), inputs


@op("indexing", "index")
def index_op(d):
    shape = d.shape(1, 4)
    arguments, index, inputs = entries(d, shape)
    return Case([d.tensor(shape, d.dtype()), *inputs], {"entries": arguments}, lambda x, *_: x[index].clone())


@op("indexing", "index_put")
def index_put(d):
    shape, dtype = d.shape(1, 3), d.dtype(FLOATS + INTEGERS)
    x = d.tensor(shape, dtype)
    arguments, index, inputs = entries(d, shape)
    accumulate = d.one_in(2) or bool(inputs)  # of several values for one element PyTorch takes any
    values = d.tensor(d.broadcast(list(x[index].shape)), dtype)

    def run(x, values, *_):
        y = x.clone()
        if accumulate and any(isinstance(i, torch.Tensor) for i in index):
            places = torch.arange(x.numel()).reshape(x.shape)[index]
            return (
                y.view(-1)
                .index_put((places.reshape(-1),), values.expand(places.shape).reshape(-1), True)
                .reshape(shape)
            )
        if accumulate:
            y[index] = y[index] + values
        else:
            y[index] = values
        return y

    return Case([x, values, *inputs], {"entries": arguments, "accumulate": accumulate}, run)
