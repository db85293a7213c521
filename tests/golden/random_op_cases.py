"""Random calls of pointwise ops, reductions, sorting, views and indexing (random_ops.py)."""

import math

import torch
import torch.nn.functional as F

from random_ops import ALL, FLOATS, INTEGERS, Case, op

INF = math.inf


def simple(family, names, low=-3, high=3, dtypes=ALL, of=torch, finite=False, differentiable=True):
    """Ops of one tensor with no argument."""
    for name in names.split():

        def draw_case(d, function=getattr(of, name)):
            wide = 1 if d.one_in(2) else d.pick(1, 4, 20)
            x = d.tensor(d.shape(), d.dtype(dtypes), low * wide, high * wide, finite)
            return Case([x], {}, function, differentiable)

        op(family, name)(draw_case)


simple("pointwise", "neg", dtypes=FLOATS + INTEGERS)
simple(
    "pointwise", "abs exp expm1 exp2 erf sign sin cos tan asin acos atan sinh cosh tanh asinh atanh sigmoid sinc square"
)
simple("pointwise", "log log1p log2 log10 sqrt rsqrt acosh reciprocal", -1, 9)
simple("pointwise", "erfinv", -1.1, 1.1)
simple("pointwise", "floor ceil trunc round", dtypes=FLOATS + INTEGERS)
simple("pointwise", "isnan isinf isfinite logical_not")
simple(
    "pointwise",
    "relu leaky_relu elu celu selu silu mish softplus logsigmoid softsign softshrink hardshrink hardtanh "
    "relu6 gelu",
    dtypes=FLOATS,
    of=F,
)
simple("pointwise", "hardswish", dtypes=FLOATS, of=F, finite=True)  # PyTorch multiplies by 6 first, which overflows
# F.hardsigmoid takes the gradient 1/6 in float32.
simple("pointwise", "hardsigmoid", dtypes=FLOATS, of=type("of", (), {"hardsigmoid": lambda x: F.relu6(x + 3) / 6}))
# PyTorch's i1 is NaN at infinity. The gradient of entr below 0 is that of a constant in Tern, NaN in PyTorch.
simple("pointwise", "i0e i1 i1e", of=torch.special, finite=True)
simple("pointwise", "entr", 0.2, 3, of=torch.special, finite=True)
simple("pointwise", "erfcx log_ndtr", of=torch.special)
# PyTorch's float32 has no digits far below 0.
simple("pointwise", "ndtr", -0.2, 3, dtypes=FLOATS, of=torch.special, finite=True)
simple("pointwise", "erfc")
simple("pointwise", "i0", finite=True)  # NaN in PyTorch at -infinity
# At poles PyTorch gives these the limits from one side, or large numbers. Its polygamma of order 1 has 9 digits.
simple("pointwise", "lgamma", -4, 9)
simple("pointwise", "digamma", 0.2, 9, [torch.float32, torch.bfloat16, torch.float16], finite=True)
simple("pointwise", "bitwise_not", dtypes=INTEGERS + [torch.bool])
simple(
    "view",
    "contiguous clone",
    of=type(
        "of",
        (),
        {
            "contiguous": lambda x: x.clone(),
            "clone": lambda x: x.clone(),
        },
    ),
)


def with_arguments(
    family,
    name,
    function,
    arguments,
    dtypes=FLOATS,
    low=-3,
    high=3,
    shape=(0, 4),
    finite=False,
    differentiable=True,
    zeros=True,
):
    """An op of one tensor, whose arguments are drawn for it."""

    def draw_case(d):
        x = d.tensor(d.shape(*shape, zeros), d.dtype(dtypes), low, high, finite)
        drawn = arguments(d, x)
        return Case([x], drawn, lambda x: function(x, **drawn), differentiable)

    op(family, name)(draw_case)


def sign_of(d, value):
    return -value if d.one_in(2) else value


with_arguments("pointwise", "gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), lambda d, x: {})
with_arguments(
    "pointwise",
    "clamp",
    lambda x, low, high: torch.clamp(x, low, high),
    lambda d, x: (
        dict(low=d.pick(-2, 0, 1, -9), high=d.pick(2, 1, 9) if x.is_floating_point() else 2)
        if x.is_floating_point()
        else dict(low=0, high=d.pick(0, 2, 5))
    ),
    FLOATS + INTEGERS,
)
with_arguments(
    "pointwise",
    "pow_number",
    lambda x, exponent: torch.pow(x, exponent),
    lambda d, x: dict(
        exponent=d.pick(0, 1, 2, 3, 0.5, -1, -2, 2.5, -3, 7) if x.is_floating_point() else d.pick(0, 1, 2, 3, 5)
    ),
    FLOATS * 2 + INTEGERS,
)
with_arguments(
    "pointwise",
    "leaky_relu_slope",
    lambda x, slope: F.leaky_relu(x, slope),
    lambda d, x: dict(slope=d.pick(0, 0.2, 1.5)),
)
with_arguments("pointwise", "elu_alpha", lambda x, alpha: F.elu(x, alpha), lambda d, x: dict(alpha=d.pick(0.5, 1, 2)))
with_arguments("pointwise", "celu_alpha", lambda x, alpha: F.celu(x, alpha), lambda d, x: dict(alpha=d.pick(0.5, 1, 2)))
with_arguments(
    "pointwise",
    "threshold",
    lambda x, threshold, value: F.threshold(x, threshold, value),
    lambda d, x: dict(threshold=d.pick(-1, 0, 0.5), value=d.pick(-2, 0, 3)),
)
with_arguments(
    "pointwise",
    "softshrink_lambda",
    lambda x, value: F.softshrink(x, value),
    lambda d, x: dict(value=d.pick(0, 0.7, 2)),
)
with_arguments(
    "pointwise",
    "hardshrink_lambda",
    lambda x, value: F.hardshrink(x, value),
    lambda d, x: dict(value=d.pick(0, 0.7, 2)),
)
with_arguments(
    "pointwise",
    "hardtanh_bounds",
    lambda x, low, high: F.hardtanh(x, low, high),
    lambda d, x: dict(low=d.pick(-2, -0.5), high=d.pick(0.5, 1.5)),
)
with_arguments("pointwise", "glu", lambda x, dim: F.glu(x, dim), lambda d, x: dict(dim=d.dim(x.dim())), shape=(1, 4))
with_arguments(
    "pointwise",
    "nan_to_num",
    lambda x, nan, posinf, neginf: torch.nan_to_num(x, nan, posinf, neginf),
    lambda d, x: dict(nan=d.pick(0, 1), posinf=d.pick(None, 2), neginf=d.pick(None, -3)),
    ALL,
)
with_arguments(
    "pointwise",
    "logit",
    lambda x, eps: torch.logit(x, eps),
    lambda d, x: dict(eps=d.pick(None, 0.1, 0.0)),
    low=0.01,
    high=0.99,
    finite=True,
)
with_arguments(
    "pointwise",
    "polygamma",
    lambda x, n: torch.polygamma(n, x),
    lambda d, x: dict(n=d.between(2 if x.dtype == torch.float64 else 0, 4)),
    [torch.float32, torch.float64],
    0.3,
    9,
    finite=True,
)


def binary(name, function, dtypes=ALL, low=-3, high=3, differentiable=True, finite=False):
    def draw_case(d):
        shape = d.shape()
        a_shape, b_shape = (shape, d.broadcast(shape)) if d.one_in(2) else (d.broadcast(shape), shape)
        a_type = d.dtype(dtypes)
        b_type = a_type if d.one_in(2) else d.dtype(dtypes)
        a, b = d.tensor(a_shape, a_type, low, high, finite), d.tensor(b_shape, b_type, low, high, finite)
        if d.one_in(4) and a.shape == b.shape:
            b = torch.where(d.tensor(a_shape, torch.bool), a, b.to(a.dtype))  # equal elements
        return Case([a, b], {}, function, differentiable)

    op("pointwise", name)(draw_case)


for kind in "add mul maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor heaviside".split():
    binary(kind, getattr(torch, kind), differentiable=kind != "heaviside")
binary("div", torch.div, finite=True)  # reciprocals of denormal numbers overflow
# PyTorch's remainder is NaN where the quotient overflows.
for kind in "remainder fmod floor_divide".split():
    binary(kind, getattr(torch, kind), FLOATS + INTEGERS, finite=True)
binary("sub", torch.sub, FLOATS + INTEGERS)
binary("pow", torch.pow, FLOATS)
binary("atan2", torch.atan2, FLOATS)  # PyTorch squares uint8 in uint8 for the gradient
binary("logaddexp", torch.logaddexp, FLOATS)
binary("hypot", torch.hypot, FLOATS)
binary("copysign", torch.copysign)
# The gradient where the logarithm is infinite is 0 in Tern.
binary("xlogy", torch.xlogy, low=0.1, finite=True)
binary("xlog1py", torch.special.xlog1py, low=-0.9, finite=True)
binary("nextafter", torch.nextafter, [torch.float32, torch.float64], differentiable=False)
binary("igamma", torch.igamma, [torch.float32, torch.float64], 0.1, 9, [1], True)
binary("igammac", torch.igammac, [torch.float32, torch.float64], 0.1, 9, [1], True)
# PyTorch wraps a 0-dimensional integer to uint8 first.
binary("gcd", torch.gcd, [torch.int64, torch.int32], -30, 30)
binary("lcm", torch.lcm, [torch.int64, torch.int32], -30, 30)
binary("bitwise_left_shift", torch.bitwise_left_shift, INTEGERS, 0, 7, finite=True)
binary("bitwise_right_shift", torch.bitwise_right_shift, INTEGERS, 0, 7, finite=True)
for kind in "bitwise_and bitwise_or bitwise_xor".split():
    binary(kind, getattr(torch, kind), INTEGERS + [torch.bool], -30, 30)
binary("swiglu", lambda a, b: F.silu(a) * b, [torch.float32, torch.float64])


def with_number(name):
    @op("pointwise", name + "_number")
    def draw_case(d):
        x = d.tensor(d.shape(), d.dtype(FLOATS + INTEGERS))
        number = (
            d.pick(2, 3, 7) if not x.is_floating_point() else d.pick(-2, 0.25, 1, 7)
        )  # 0.1 in 16 bits is another number
        return Case([x], {"number": number}, lambda x: getattr(torch, name)(x, number))


for kind in "add sub mul div remainder fmod floor_divide eq ne lt le gt ge".split():
    with_number(kind)


@op("pointwise", "where")
def where(d):
    shape = d.shape()
    dtypes = [d.dtype()] * 2 if d.one_in(2) else [d.dtype(), d.dtype()]
    return Case(
        [d.tensor(d.broadcast(shape), torch.bool), d.tensor(shape, dtypes[0]), d.tensor(d.broadcast(shape), dtypes[1])],
        {},
        torch.where,
    )


@op("pointwise", "masked_fill")
def masked_fill(d):
    shape = d.shape()
    return Case(
        [d.tensor(shape, d.dtype(FLOATS + INTEGERS)), d.tensor(d.broadcast(shape), torch.bool)],
        {"value": 2},
        lambda x, mask: x.masked_fill(mask, 2),
    )


def ternary(name, function, arguments, dtypes=FLOATS, finite=False):
    @op("pointwise", name)
    def draw_case(d):
        shape, dtype = d.shape(), d.dtype(dtypes)
        drawn = arguments(d)
        inputs = [d.tensor(d.broadcast(shape), dtype, finite=finite) for _ in range(3)]
        return Case(inputs, drawn, lambda *x: function(*x, **drawn))


ternary("addcmul", torch.addcmul, lambda d: dict(value=d.pick(1, 0.5, -2)))
ternary("addcdiv", torch.addcdiv, lambda d: dict(value=d.pick(1, 0.5, -2)), finite=True)
ternary("lerp", torch.lerp, lambda d: {}, finite=True)
ternary(
    "clamp_tensors",
    lambda x, low, high: torch.clamp(x, low, high + 0.07 if high.is_floating_point() else high),
    lambda d: {},
    FLOATS + INTEGERS,
)  # equal bounds share a gradient in Tern


@op("pointwise", "isclose")
def isclose(d):
    shape, dtype = d.shape(), d.dtype(FLOATS + INTEGERS)
    a = d.tensor(shape, dtype)
    b = a.clone() if d.one_in(2) else d.tensor(d.broadcast(shape), dtype)
    if dtype.is_floating_point and a.shape == b.shape:
        b = (b * d.pick(1, 1.05, 1.2)).to(dtype)
    arguments = dict(rtol=d.pick(0.1, 1e-5), atol=d.pick(0.1, 0.0), equal_nan=d.one_in(2))
    return Case([a, b], arguments, lambda a, b: torch.isclose(a, b, **arguments), False)


@op("pointwise", "prelu")
def prelu(d):
    dtype, shape = d.dtype(FLOATS), d.shape(1, 4)
    channels = shape[1] if len(shape) > 1 else 1
    return Case([d.tensor(shape, dtype), d.tensor([d.pick(1, channels)], dtype, finite=True)], {}, F.prelu)


# Reductions.


def reduction(
    name,
    function,
    dtypes=ALL,
    empty_list=True,
    low=-3,
    high=3,
    options=None,
    differentiable=True,
    zeros=True,
    finite=False,
):
    def arguments(d, x):
        dims = [] if d.one_in(3) else d.dims(x.dim(), False) if x.dim() else [d.dim(0)]
        return dict(dims=dims, keepdim=d.one_in(2)) | (options(d) if options else {})

    def run(x, dims, **rest):
        return function(x, dims if dims else list(range(max(x.dim(), 1))), **rest)

    with_arguments("reduce", name, run, arguments, dtypes, low, high, (0, 4), finite, differentiable, zeros)


def in_turn(function):
    """A function of one dimension, for a list of them."""

    def run(x, dims, keepdim):
        for dim in sorted((d % max(x.dim(), 1) for d in dims), reverse=True):
            x = function(x, dim, keepdim)
        return x

    return run


reduction("sum", torch.sum)
reduction("mean", torch.mean, FLOATS)
reduction("nansum", torch.nansum)
reduction("nanmean", torch.nanmean, FLOATS)
reduction("max", torch.amax)
reduction("min", torch.amin)
reduction("prod", in_turn(torch.prod), low=-1.5, high=1.5, finite=True)
reduction("all", lambda x, dims, keepdim: torch.all(x != 0, dims, keepdim), differentiable=False)
reduction("any", lambda x, dims, keepdim: torch.any(x != 0, dims, keepdim), differentiable=False)
with_arguments(
    "reduce",
    "count_nonzero",
    lambda x, dims: torch.count_nonzero(x, dims) if dims else torch.count_nonzero(x),
    lambda d, x: dict(dims=d.dims(x.dim())),
    ALL,
    differentiable=False,
)


def deviation(x, dims, correction, function, **rest):
    """Over all dimensions PyTorch's gradient without degrees of freedom is not that of the formula."""
    if correction >= x.numel() and (x.dim() == 0 or not dims):
        raise ValueError("drawn again")
    return function(x, dims, correction=correction, **rest)


for kind in "var std var_mean std_mean".split():
    reduction(
        kind,
        lambda x, dims, f=getattr(torch, kind), **rest: deviation(x, dims, function=f, **rest),
        FLOATS,
        options=lambda d: dict(correction=d.pick(0, 1, 2)),
        finite=True,
    )
reduction("logsumexp", torch.logsumexp, FLOATS)
reduction(
    "vector_norm",
    lambda x, dims, order, keepdim: torch.linalg.vector_norm(x, order, dims, keepdim),
    FLOATS,
    options=lambda d: dict(order=d.pick(0, 0.5, 1, 2, 3, INF, -INF, -1)),
    finite=True,
)
reduction("norm", lambda x, dims, keepdim: torch.linalg.vector_norm(x, 2, dims, keepdim), FLOATS, finite=True)
with_arguments(
    "reduce",
    "aminmax",
    lambda x, dim, keepdim: torch.aminmax(x, dim=dim, keepdim=keepdim),
    lambda d, x: dict(dim=d.dim(x.dim()), keepdim=d.one_in(2)),
    ALL,
)
for kind in ("argmax", "argmin"):
    with_arguments(
        "reduce",
        kind,
        lambda x, dim, keepdim, f=getattr(torch, kind): f(x, dim, keepdim),
        lambda d, x: dict(dim=d.dim(x.dim()), keepdim=d.one_in(2)),
        FLOATS + INTEGERS,
        differentiable=False,
    )
for kind in ("softmax", "log_softmax"):
    with_arguments("reduce", kind, lambda x, dim, f=getattr(F, kind): f(x, dim), lambda d, x: dict(dim=d.dim(x.dim())))
with_arguments(
    "reduce",
    "matrix_norm",
    lambda x, order, rows, cols, keepdim: torch.linalg.matrix_norm(
        x, order if order is not None else "fro", (rows, cols), keepdim
    ),
    lambda d, x: dict(
        order=d.pick(None, 1, -1, INF, -INF), rows=d.dim(x.dim()), cols=d.dim(x.dim()), keepdim=d.one_in(2)
    ),
    shape=(2, 4),
)
with_arguments(
    "reduce",
    "normalize",
    lambda x, order, dim: F.normalize(x, order, dim),
    lambda d, x: dict(order=d.pick(1, 2, 3), dim=d.dim(x.dim())),
    shape=(1, 4),
    finite=True,
)
with_arguments(
    "reduce",
    "renorm",
    lambda x, order, dim, most: torch.renorm(x, order, dim, most),
    lambda d, x: dict(order=d.pick(1, 2, 3), dim=d.dim(x.dim()), most=d.pick(1, 5, 0.5)),
    shape=(2, 4),
    finite=True,
)


@op("reduce", "sum_to")
def sum_to(d):
    shape = d.shape()
    to = d.broadcast(shape)
    return Case([d.tensor(shape, d.dtype(FLOATS))], {"shape": to}, lambda x: x.sum_to_size(to))


for kind in ("cosine_similarity", "pairwise_distance"):

    @op("reduce", kind)
    def distance(d, kind=kind):
        shape, dtype = d.shape(1, 4), d.dtype(FLOATS)
        a, b = d.tensor(shape, dtype, finite=True), d.tensor(shape, dtype, finite=True)
        if kind == "cosine_similarity":
            dim = d.dim(len(shape))
            return Case([a, b], {"dim": dim}, lambda a, b: F.cosine_similarity(a, b, dim))
        order, keepdim = d.pick(1, 2, 3), d.one_in(2)
        return Case(
            [a, b], {"order": order, "keepdim": keepdim}, lambda a, b: F.pairwise_distance(a, b, order, keepdim=keepdim)
        )


@op("reduce", "cov")
def cov(d):
    x = d.tensor(d.shape(1, 2, zeros=False), d.dtype(FLOATS), finite=True)
    weights = [None, None]
    if d.one_in(2):
        weights[0] = d.indices(x.shape[-1:], 5, 1)
    if d.one_in(2):
        weights[1] = d.tensor(x.shape[-1:], x.dtype, 0.1, 2, finite=True)
    correction = d.pick(0, 1)
    return Case(
        [x, *weights],
        {"correction": correction},
        lambda x, f, a: torch.cov(x, correction=correction, fweights=f, aweights=a),
        [0],
    )


with_arguments("reduce", "corrcoef", torch.corrcoef, lambda d, x: {}, shape=(2, 2), zeros=False, finite=True)
for kind in ("trapezoid", "cumulative_trapezoid"):
    with_arguments(
        "reduce",
        kind,
        lambda x, dx, dim, f=getattr(torch, kind): f(x, dx=dx, dim=dim),
        lambda d, x: dict(dx=d.pick(1, 0.5), dim=d.dim(x.dim())),
        shape=(1, 4),
        finite=True,
    )

# Sorting.


def along(name, function, arguments=lambda d, x: {}, dtypes=ALL, **rest):
    with_arguments("sort", name, function, lambda d, x: dict(dim=d.dim(x.dim())) | arguments(d, x), dtypes, **rest)


along("cumsum", torch.cumsum)
along("cumprod", torch.cumprod, low=-1.5, high=1.5, finite=True)
along("logcumsumexp", torch.logcumsumexp, dtypes=FLOATS)
along("cummax", torch.cummax)
along("cummin", torch.cummin)
along("diff", lambda x, dim, n: torch.diff(x, n, dim), lambda d, x: dict(n=d.between(0, 4)))
along(
    "sort",
    lambda x, dim, descending: torch.sort(x, dim=dim, descending=descending, stable=True),
    lambda d, x: dict(descending=d.one_in(2)),
)
along(
    "argsort",
    lambda x, dim, descending: torch.argsort(x, dim=dim, descending=descending, stable=True),
    lambda d, x: dict(descending=d.one_in(2)),
    differentiable=False,
)
for kind in ("median", "nanmedian"):
    with_arguments("sort", kind + "_all", getattr(torch, kind), lambda d, x: {}, FLOATS + INTEGERS, zeros=False)


def positions(name, function, arguments=lambda d, x, dim: {}, dtypes=FLOATS + INTEGERS):
    """Of different elements values, indices and gradients; of others, whose indices PyTorch does not define, values."""

    @op("sort", name)
    def draw_case(d):
        shape, dtype = d.shape(), d.dtype(dtypes)
        distinct = d.one_in(2) and (dtype.is_floating_point or dtype == torch.int64) and math.prod(shape) < 300
        x = d.distinct(shape, dtype) if distinct else d.tensor(shape, dtype)
        dim = d.dim(x.dim())
        drawn = dict(dim=dim) | arguments(d, x, dim)
        run = lambda x: function(x, **drawn)  # noqa: E731
        return Case([x], drawn | {"values": not distinct}, run if distinct else lambda x: run(x)[0], distinct)


def size_along(x, dim):
    return x.shape[dim] if x.dim() else 1


positions(
    "topk",
    lambda x, k, dim, largest: torch.topk(x, k, dim, largest),
    lambda d, x, dim: dict(k=d.between(0 if x.dim() else 1, size_along(x, dim)), largest=d.one_in(2)),
)
positions(
    "kthvalue",
    lambda x, k, dim, keepdim: torch.kthvalue(x, k, dim, keepdim),
    lambda d, x, dim: dict(k=d.between(1, size_along(x, dim)), keepdim=d.one_in(2)),
)
for kind in ("median", "nanmedian", "mode"):
    positions(
        kind,
        lambda x, dim, keepdim, f=getattr(torch, kind): f(x, dim, keepdim),
        lambda d, x, dim: dict(keepdim=d.one_in(2)),
    )


def quantiles(function, x, dim, q, keepdim, mode):
    """Not of infinite elements, which PyTorch makes NaN, nor of equal ones, of which any may take the gradient."""
    numbers = x[~x.isnan()]
    if (numbers.abs() > 1e30).any() or numbers.unique().numel() < numbers.numel():
        raise ValueError("drawn again")
    return function(x, torch.tensor(q, dtype=x.dtype), dim, keepdim, interpolation=mode)


for kind in ("quantile", "nanquantile"):
    along(
        kind,
        lambda x, f=getattr(torch, kind), **rest: quantiles(f, x, **rest),
        lambda d, x: dict(
            q=[d.pick(0, 0.25, 0.5, 0.75, 1, 0.1) for _ in range(d.between(1, 3))],
            keepdim=d.one_in(2),
            mode=d.pick("linear", "lower", "higher", "midpoint", "nearest"),
        ),
        dtypes=[torch.float32, torch.float64],
    )
for kind in ("bincount", "histc"):

    @op("sort", kind)
    def counts(d, kind=kind):
        if kind == "histc":
            x = d.tensor(d.shape(0, 2), d.dtype([torch.float32, torch.float64]), finite=True)
            drawn = dict(bins=d.between(1, 9), low=d.pick(-2, -1), high=d.pick(1, 2))
            return Case([x], drawn, lambda x: torch.histc(x, drawn["bins"], drawn["low"], drawn["high"]), False)
        weighted = d.one_in(2)  # of no numbers PyTorch's result is int64 all the same
        x = d.tensor(d.shape(1, 1, zeros=not weighted), d.dtype(INTEGERS), 0, 9, finite=True)
        weights = d.tensor(x.shape, d.dtype([torch.float32, torch.float64]), finite=True) if weighted else None
        least = d.below(15)
        return Case([x, weights], {"minlength": least}, lambda x, w: torch.bincount(x, w, least), False)


@op("sort", "histogram")
def histogram(d):
    x = d.tensor(d.shape(0, 2), d.dtype([torch.float32, torch.float64]), finite=True)
    drawn = dict(bins=d.between(1, 9), low=d.pick(-2, -1), high=d.pick(1, 2), density=d.one_in(3))
    weights = d.tensor(x.shape, x.dtype, 0.1, 2, finite=True) if d.one_in(2) else None
    return Case(
        [x, weights],
        drawn,
        lambda x, w: torch.histogram(
            x, drawn["bins"], range=(drawn["low"], drawn["high"]), weight=w, density=drawn["density"]
        ),
        False,
    )


for kind in ("searchsorted", "bucketize"):

    @op("sort", kind)
    def search(d, kind=kind):
        dtype, right = d.dtype(FLOATS + INTEGERS), d.one_in(2)
        values = d.tensor(d.shape(0, 3), dtype)
        if kind == "searchsorted" and values.dim() and d.one_in(2):
            edges = d.tensor([*values.shape[:-1], d.between(0, 9)], dtype, finite=True).sort().values
        else:
            edges = d.tensor([d.between(0, 9)], dtype, finite=True).sort().values
        if kind == "bucketize":
            return Case([values, edges], {"right": right}, lambda v, e: torch.bucketize(v, e, right=right), False)
        return Case([edges, values], {"right": right}, lambda e, v: torch.searchsorted(e, v, right=right), False)


@op("sort", "isin")
def isin(d):
    dtype, invert = d.dtype(FLOATS + INTEGERS), d.one_in(2)
    return Case(
        [d.tensor(d.shape(), dtype), d.tensor(d.shape(1, 2), dtype)],
        {"invert": invert},
        lambda x, c: torch.isin(x, c, invert=invert),
        False,
    )


for kind in ("unique", "unique_consecutive"):

    @op("sort", kind)
    def unique(d, kind=kind):
        x = d.tensor(d.shape(), d.dtype(), finite=True)
        dim = d.dim(x.dim()) if d.one_in(2) and x.dim() and x.numel() else None
        return Case(
            [x],
            {"dim": dim},
            lambda x: getattr(torch, kind)(x, return_inverse=True, return_counts=True, dim=dim),
            False,
        )
