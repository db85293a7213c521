"""Random calls of losses, products, norms and ops on images (random_ops.py)."""

import math

import torch
import torch.nn.functional as F

from random_ops import ALL, FLOATS, Case, op

REDUCTIONS = ("mean", "sum", "none")


# Losses.


def elementwise_loss(name, function, arguments=lambda d: {}, x=(-3, 3), target=(-3, 3), signs=False, least=0, dtypes=FLOATS):
    @op("loss", name)
    def draw_case(d):
        shape, dtype = d.shape(least, 4, zeros=False), d.dtype(dtypes)
        drawn = dict(reduction=d.pick(*REDUCTIONS)) | arguments(d)
        a = d.tensor(shape, dtype, *x, finite=True)
        b = d.tensor(shape, dtype, *target, finite=True)
        if signs:
            b = torch.where(b > 0, 1, -1).to(dtype)
        return Case([a, b], drawn, lambda a, b: function(a, b, **drawn), [0])


elementwise_loss("mse_loss", F.mse_loss)
elementwise_loss("l1_loss", F.l1_loss)
elementwise_loss("smooth_l1_loss", F.smooth_l1_loss, lambda d: dict(beta=d.pick(0, 0.5, 1, 2)))
elementwise_loss("huber_loss", F.huber_loss, lambda d: dict(delta=d.pick(0.5, 1, 2)))
elementwise_loss(
    "poisson_nll_loss",
    lambda x, t, log, full, reduction: F.poisson_nll_loss(x, t, log, full=full, reduction=reduction),
    lambda d: dict(log=d.one_in(2), full=d.one_in(2)),
    (0.1, 3),
    (0, 5),
)
elementwise_loss(
    "kl_div",
    lambda x, t, log, reduction: F.kl_div(x, t, reduction=reduction, log_target=log),
    lambda d: dict(log=d.one_in(2)),
    (-3, 0),
    (0, 1),
)
# PyTorch's least divisor of the gradient, 1e-12, is rounded to float32.
elementwise_loss(
    "binary_cross_entropy",
    F.binary_cross_entropy,
    x=(0, 1),
    target=(0, 1),
    dtypes=[torch.float32, torch.bfloat16, torch.float16],
)
elementwise_loss("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, x=(-20, 20), target=(0, 1))
elementwise_loss("soft_margin_loss", F.soft_margin_loss, signs=True)
elementwise_loss("hinge_embedding_loss", F.hinge_embedding_loss, lambda d: dict(margin=d.pick(0.5, 1, 2)), signs=True)
elementwise_loss("multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, target=(0, 1), least=1)


@op("loss", "gaussian_nll_loss")
def gaussian_nll_loss(d):
    shape, dtype = d.shape(1, 3, zeros=False), d.dtype(FLOATS)
    drawn = dict(full=d.one_in(2), reduction=d.pick(*REDUCTIONS))
    variance = d.tensor(d.pick(shape, [*shape[:-1], 1]), dtype, 0.1, 3, finite=True)
    return Case(
        [d.tensor(shape, dtype, finite=True), d.tensor(shape, dtype, finite=True), variance],
        drawn,
        lambda x, t, v: F.gaussian_nll_loss(x, t, v, **drawn),
        [0, 2],
    )


def classes_of(d):
    """Logits and targets of rows, images or one row."""
    classes, rest = d.between(1, 7), d.pick([], [d.between(1, 5)], [d.between(1, 5), d.between(1, 4)])
    shape = [rest[0], classes, *rest[1:]] if rest else [classes]
    return shape, classes, d.indices(rest, classes)


for kind in ("cross_entropy", "nll_loss"):

    @op("loss", kind)
    def class_loss(d, kind=kind):
        shape, classes, target = classes_of(d)
        dtype = d.dtype([torch.float32, torch.float64])
        drawn = dict(
            reduction=d.pick(*REDUCTIONS),
            ignore_index=d.pick(-100, 0) if target.numel() > 0 and bool((target != 0).any()) else -100,
        )
        if kind == "cross_entropy":
            drawn["label_smoothing"] = d.pick(0, 0.1)
        weight = d.tensor([classes], dtype, 0.2, 2, finite=True) if d.one_in(2) else None  # never 0
        return Case(
            [d.tensor(shape, dtype, -9, 9, finite=True), target, weight],
            drawn,
            lambda x, t, w: getattr(F, kind)(x, t, w, **drawn),
            [0],
        )


@op("loss", "multi_margin_loss")
def multi_margin_loss(d):
    classes, rows = d.between(1, 7), d.between(1, 5)
    dtype = d.dtype([torch.float32, torch.float64])
    drawn = dict(p=d.pick(1, 2), margin=d.pick(0.5, 1), reduction=d.pick(*REDUCTIONS))
    weight = d.tensor([classes], dtype, 0.1, 2, finite=True) if d.one_in(2) else None
    return Case(
        [d.tensor([rows, classes], dtype, finite=True), d.indices([rows], classes), weight],
        drawn,
        lambda x, t, w: F.multi_margin_loss(x, t, weight=w, **drawn),
        [0],
    )


@op("loss", "multilabel_margin_loss")
def multilabel_margin_loss(d):
    classes, rows = d.between(1, 7), d.between(1, 5)
    targets = torch.stack([torch.randperm(classes, generator=d.generator) for _ in range(rows)])
    for row in targets:
        row[d.between(0, classes) :] = -1
    drawn = dict(reduction=d.pick(*REDUCTIONS))
    return Case(
        [d.tensor([rows, classes], d.dtype([torch.float32, torch.float64]), finite=True), targets],
        drawn,
        lambda x, t: F.multilabel_margin_loss(x, t, **drawn),
        [0],
    )


@op("loss", "cosine_embedding_loss")
def cosine_embedding_loss(d):
    shape, dtype = d.shape(1, 2, zeros=False), d.dtype(FLOATS)
    drawn = dict(margin=d.pick(0, 0.3), reduction=d.pick(*REDUCTIONS))
    target = torch.where(d.tensor(shape[:-1], torch.bool), 1, -1).to(dtype)
    # PyTorch adds 1e-12 to the squares of the norms.
    return Case(
        [d.tensor(shape, dtype, 1, 3, finite=True), d.tensor(shape, dtype, -3, -1, finite=True), target],
        drawn,
        lambda a, b, t: F.cosine_embedding_loss(a, b, t, **drawn),
        [0, 1],
    )


@op("loss", "margin_ranking_loss")
def margin_ranking_loss(d):
    shape, dtype = d.shape(1, 2, zeros=False), d.dtype(FLOATS)
    drawn = dict(margin=d.pick(0, 0.3), reduction=d.pick(*REDUCTIONS))
    target = torch.where(d.tensor(shape, torch.bool), 1, -1).to(dtype)
    return Case(
        [d.tensor(shape, dtype, finite=True), d.tensor(shape, dtype, finite=True), target],
        drawn,
        lambda a, b, t: F.margin_ranking_loss(a, b, t, **drawn),
        [0, 1],
    )


for kind in ("triplet_margin_loss", "triplet_margin_with_distance_loss"):

    @op("loss", kind)
    def triplets(d, kind=kind):
        shape, dtype = d.shape(2, 3, zeros=False), d.dtype(FLOATS)
        drawn = dict(margin=d.pick(0.5, 1), swap=d.one_in(2), reduction=d.pick(*REDUCTIONS))
        return Case(
            [d.tensor(shape, dtype, finite=True) for _ in range(3)],
            drawn,
            lambda a, p, n: getattr(F, kind)(a, p, n, **drawn),
        )


@op("loss", "ctc_loss")
def ctc_loss(d):
    frames, batch, classes, labels = d.between(1, 9), d.between(1, 3), d.between(2, 5), d.between(1, 4)
    targets = d.indices([batch, labels], classes, 1)
    inputs, counts = d.indices([batch], frames + 1, 1), d.indices([batch], labels + 1, 0)
    drawn = dict(reduction=d.pick(*REDUCTIONS), zero_infinity=True)
    logits = d.tensor([frames, batch, classes], d.dtype([torch.float32, torch.float64]), finite=True)
    return Case(
        [logits, targets, inputs, counts],
        drawn,
        lambda x, t, i, c: F.ctc_loss(F.log_softmax(x, 2), t, i, c, **drawn),
        [0],
    )


# Products.

NUMBERS = FLOATS + [torch.int64, torch.int32]


def sizes(d, n):
    return [d.pick(0, 1, 2, 3, 5, 8, 17) if d.one_in(4) else d.between(1, 9) for _ in range(n)]


def product(name, shapes, function, arguments=lambda d: {}, dtypes=NUMBERS):
    @op("matmul", name)
    def draw_case(d):
        dtype, drawn = d.dtype(dtypes), arguments(d)
        inputs = [None if s is None else d.tensor(s, dtype, finite=True) for s in shapes(d)]
        return Case(inputs, drawn, lambda *x: function(*x, **drawn))


def matmul_shapes(d):
    m, k, n = sizes(d, 3)
    batch = d.shape(0, 2, zeros=False, most=12)
    a, b = d.broadcast(batch) + [m, k], d.broadcast(batch) + [k, n]
    return d.pick((a, b), ([k], b), (a, [k]), ([k], [k]), ([m, k], [k, n]))


def batched(d):
    batch, m, k, n = d.between(0, 3), *sizes(d, 3)
    return [batch, m, k], [batch, k, n]


def with_sum(d, batch):
    (b, m, k), (_, _, n) = batched(d)
    first = [b] * batch
    return d.broadcast([*first, m, n]), [*first, m, k], [*first, k, n]


def scales(d):
    return dict(beta=d.pick(0, 1, 2), alpha=d.pick(1, 3))


product("matmul", matmul_shapes, torch.matmul)
product("bmm", batched, torch.bmm)
product("mv", lambda d: (lambda m, k: ([m, k], [k]))(*sizes(d, 2)), torch.mv)
product("dot", lambda d: (lambda k: ([k], [k]))(*sizes(d, 1)), torch.dot)
product("addmm", lambda d: with_sum(d, 0), torch.addmm, scales)
product("baddbmm", lambda d: with_sum(d, 1), torch.baddbmm, scales)
product("outer", lambda d: [[n] for n in sizes(d, 2)], torch.outer)
product("kron", lambda d: [d.shape(0, 2, most=30), d.shape(0, 2, most=30)], torch.kron)
product(
    "linear",
    lambda d: (lambda k, n, rows: (rows + [k], [n, k], [n] if d.one_in(2) else None))(
        *sizes(d, 2), d.shape(0, 2, most=40)
    ),
    F.linear,
    dtypes=FLOATS,
)
product(
    "matrix_power",
    lambda d: [d.shape(0, 1, most=4) + [d.between(1, 5)] * 2],
    torch.linalg.matrix_power,
    lambda d: dict(n=d.between(0, 5)),
    FLOATS[:3],
)
product(
    "cdist",
    lambda d: (lambda m, n, k: ([m, k], [n, k]))(*sizes(d, 3)),
    lambda a, b, p: torch.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist"),
    lambda d: dict(p=d.pick(0.5, 1, 2, 3)),
    FLOATS[:3],
)
product("pdist", lambda d: [sizes(d, 2)], F.pdist, lambda d: dict(p=d.pick(1, 2, 3)), FLOATS[:3])
product(
    "tensordot", lambda d: (lambda a, b, c: ([c, a, b], [a, b, c]))(*sizes(d, 3)), lambda a, b: torch.tensordot(a, b, 2)
)


@op("matmul", "einsum")
def einsum(d):
    equation, names = (
        d.pick(
            ("ij,jk->ik", 2),
            ("bij,bjk->bik", 2),
            ("ii->i", 1),
            ("ij->ji", 1),
            ("i,j->ij", 2),
            ("ij,ij->", 2),
            ("bhid,bhjd->bhij", 2),
            ("ii", 1),
            ("ij,j", 2),
            ("ij,jk,kl->il", 3),
            ("...i,...i->...", 2),
        ),
        None,
    )
    equation, _ = equation
    size = {letter: d.between(1, 5) for letter in "abcdefghijklmnopqrstuvwxyz"}
    shapes = [[size[c] for c in term.replace("...", "b")] for term in equation.split("->")[0].split(",")]
    dtype = d.dtype(NUMBERS)
    return Case(
        [d.tensor(s, dtype, finite=True) for s in shapes], {"equation": equation}, lambda *x: torch.einsum(equation, *x)
    )


for kind in ("vecdot", "cross"):

    @op("matmul", kind)
    def vectors(d, kind=kind):
        shape, dtype = d.shape(1, 3), d.dtype(NUMBERS)
        dim = d.dim(len(shape))
        if kind == "cross":
            shape[dim] = 3
        return Case(
            [d.tensor(shape, dtype, finite=True) for _ in range(2)],
            {"dim": dim},
            lambda a, b: getattr(torch.linalg, kind)(a, b, dim=dim),
        )


# Norms.


@op("norm", "layer_norm")
def layer_norm(d):
    shape, dtype = d.shape(0, 2) + [d.between(1, 33)], d.dtype(FLOATS)
    weights = [d.tensor(shape[-1:], dtype, finite=True) if d.one_in(2) else None for _ in range(2)]
    drawn = dict(eps=d.pick(1e-5, 1e-3, 0.1))
    return Case(
        [d.tensor(shape, dtype, finite=True), *weights],
        drawn,
        lambda x, w, b: F.layer_norm(x, shape[-1:], w, b, **drawn),
    )


@op("norm", "rms_norm")
def rms_norm(d):
    shape, dtype = d.shape(0, 2) + [d.between(1, 33)], d.dtype(FLOATS)
    drawn = dict(eps=d.pick(None, 1e-5, 0.1))
    return Case(
        [d.tensor(shape, dtype, finite=True), d.tensor(shape[-1:], dtype, finite=True) if d.one_in(2) else None],
        drawn,
        lambda x, w: F.rms_norm(x, shape[-1:], w, **drawn),
    )


@op("norm", "group_norm")
def group_norm(d):
    groups, dtype = d.between(1, 3), d.dtype(FLOATS)
    channels = groups * d.between(1, 3)
    shape = [d.between(0, 3), channels, *d.shape(0, 2, zeros=False, most=40)]
    weights = [d.tensor([channels], dtype, finite=True) if d.one_in(2) else None for _ in range(2)]
    return Case(
        [d.tensor(shape, dtype, finite=True), *weights],
        dict(groups=groups, eps=d.pick(1e-5, 0.1)),
        lambda x, w, b: F.group_norm(x, groups, w, b, 0.1),
    )._replace(arguments=dict(groups=groups, eps=0.1))


@op("norm", "instance_norm")
def instance_norm(d):
    dtype, channels = d.dtype(FLOATS), d.between(1, 4)
    shape = [d.between(1, 3), channels, *d.shape(1, 2, zeros=False, most=40)]
    weights = [d.tensor([channels], dtype, finite=True) if d.one_in(2) else None for _ in range(2)]
    return Case(
        [d.tensor(shape, dtype, finite=True), *weights],
        {"eps": 0.1},
        lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=0.1),
    )


@op("norm", "batch_norm")
def batch_norm(d):
    dtype, channels, training = d.dtype(FLOATS), d.between(1, 5), d.one_in(2)
    shape = [d.between(1, 4), channels, *d.shape(0, 2, zeros=False, most=40)]
    running = [d.tensor([channels], dtype, -1, 1, finite=True), d.tensor([channels], dtype, 0.1, 2, finite=True)]
    weights = [d.tensor([channels], dtype, finite=True) if d.one_in(2) else None for _ in range(2)]

    def run(x, mean, var, w, b):
        mean, var = mean.clone(), var.clone()
        y = F.batch_norm(x, mean, var, w, b, training, 0.2, 0.1)
        return (y, mean, var)

    return Case([d.tensor(shape, dtype, finite=True), *running, *weights], {"training": training}, run, [0, 3, 4])


@op("norm", "local_response_norm")
def local_response_norm(d):
    dtype = d.dtype(FLOATS)
    shape = [d.between(1, 3), d.between(1, 6), *d.shape(1, 2, zeros=False, most=40)]
    drawn = dict(size=d.between(1, 5), alpha=d.pick(1e-4, 0.5), beta=0.75, k=d.pick(1, 2))
    return Case([d.tensor(shape, dtype, finite=True)], drawn, lambda x: F.local_response_norm(x, **drawn))


# Images.


def image(d, dims, batch=True, most=200, channels=4):
    spatial = d.shape(dims, dims, zeros=False, most=most)
    return ([d.between(1, 2)] if batch else []) + [d.between(1, channels)] + spatial


def numbers(d, dims, low, high):
    return d.between(low, high) if d.one_in(2) else [d.between(low, high) for _ in range(dims)]


def pooling(name, function, arguments, batch=None, low=-3, special=True):
    for dims in (1, 2, 3):

        @op("image", f"{name}{dims}d")
        def draw_case(d, dims=dims):
            x = d.tensor(
                image(d, dims, not d.one_in(3) if batch is None else batch), d.dtype(FLOATS), low, 3, finite=not special
            )
            drawn = arguments(d, dims, x)
            return Case([x], drawn, lambda x: function(dims, x, **drawn))


def windows(d, dims, dilation=False):
    if dilation and d.one_in(2):  # in padding alone a window has no element, which PyTorch's index and gradient name
        return windows(d, dims) | dict(padding=0, dilation=numbers(d, dims, 1, 2))
    if dilation:
        return windows(d, dims) | dict(dilation=1)
    return dict(
        kernel=numbers(d, dims, 1, 4),
        stride=d.pick(None, numbers(d, dims, 1, 3)),
        padding=numbers(d, dims, 0, 2),
        ceil_mode=d.one_in(3),
    )


def of_dims(name):
    return lambda dims: getattr(F, f"{name}{dims}d")


pooling(
    "max_pool",
    lambda dims, x, kernel, **rest: of_dims("max_pool")(dims)(x, kernel, **rest),
    lambda d, dims, x: windows(d, dims, True),
)
for count in (1, 2, 3):

    @op("image", f"max_pool{count}d_with_indices")
    def indexed_pool(d, dims=count):
        x = d.tensor(image(d, dims, not d.one_in(3)), d.dtype(FLOATS), finite=True)
        drawn = windows(d, dims, True)
        return Case(
            [x],
            drawn,
            lambda x, kernel=0: getattr(F, f"max_pool{dims}d")(
                x, drawn["kernel"], return_indices=True, **{k: v for k, v in drawn.items() if k != "kernel"}
            ),
        )


pooling(
    "avg_pool",
    lambda dims, x, kernel, divisor=None, **rest: of_dims("avg_pool")(dims)(
        x, kernel, **rest, **({"divisor_override": divisor} if divisor else {})
    ),
    lambda d, dims, x: windows(d, dims)
    | dict(count_include_pad=d.one_in(2))
    | (dict(divisor=d.pick(None, 3)) if dims > 1 else {}),
    special=False,
)
pooling(
    "lp_pool",
    lambda dims, x, power, kernel, stride, ceil_mode: of_dims("lp_pool")(dims)(x, power, kernel, stride, ceil_mode),
    lambda d, dims, x: dict(
        power=d.pick(2, 3),
        kernel=numbers(d, dims, 1, 3),
        stride=d.pick(None, numbers(d, dims, 1, 3)),
        ceil_mode=d.one_in(3),
    ),
    True,
    0.1,
    False,
)
for kind in ("adaptive_avg_pool", "adaptive_max_pool"):
    pooling(
        kind,
        lambda dims, x, size, f=of_dims(kind): f(dims)(x, size),
        lambda d, dims, x: dict(size=numbers(d, dims, 1, 5)),
        special=kind == "adaptive_max_pool",
    )
for count in (1, 2, 3):

    @op("image", f"max_unpool{count}d")
    def unpool(d, dims=count):
        x = d.tensor(image(d, dims), d.dtype([torch.float32, torch.float64]), finite=True)
        drawn = dict(kernel=numbers(d, dims, 1, 3), stride=d.pick(None, numbers(d, dims, 1, 3)), padding=0)
        values, places = getattr(F, f"max_pool{dims}d")(
            x, drawn["kernel"], drawn["stride"] or drawn["kernel"], return_indices=True
        )
        drawn["size"] = list(x.shape[2:])
        return Case(
            [values, places],
            drawn,
            lambda v, p: getattr(F, f"max_unpool{dims}d")(v, p, drawn["kernel"], drawn["stride"], 0, x.shape[2:]),
            False,
        )

    for transposed in (False, True):

        @op("image", f"conv_transpose{count}d" if transposed else f"conv{count}d")
        def convolution(d, dims=count, transposed=transposed):
            dtype, groups = d.dtype(FLOATS), d.pick(1, 1, 2)
            channels, out = groups * d.between(1, 3), groups * d.between(1, 3)
            spatial, kernel = d.shape(dims, dims, zeros=False, most=100), [d.between(1, 3) for _ in range(dims)]
            x = ([d.between(1, 2)] if not d.one_in(3) else []) + [channels] + spatial
            drawn = dict(
                stride=numbers(d, dims, 1, 3),
                padding=numbers(d, dims, 0, 0 if transposed else 2),
                dilation=numbers(d, dims, 1, 2),
                groups=groups,
            )
            if transposed:
                drawn["output_padding"] = numbers(d, dims, 0, 1)
            weight = [channels, out // groups, *kernel] if transposed else [out, channels // groups, *kernel]
            function = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")
            return Case(
                [
                    d.tensor(x, dtype, finite=True),
                    d.tensor(weight, dtype, finite=True),
                    d.tensor([out], dtype, finite=True) if d.one_in(2) else None,
                ],
                drawn,
                lambda x, w, b: function(x, w, b, **drawn),
            )


@op("image", "unfold")
def unfold(d):
    drawn = dict(
        kernel=numbers(d, 2, 1, 3),
        dilation=numbers(d, 2, 1, 2),
        padding=numbers(d, 2, 0, 2),
        stride=numbers(d, 2, 1, 3),
    )
    return Case(
        [d.tensor(image(d, 2, not d.one_in(3)), d.dtype(FLOATS))],
        drawn,
        lambda x: F.unfold(x, drawn["kernel"], drawn["dilation"], drawn["padding"], drawn["stride"]),
    )


@op("image", "fold")
def fold(d):
    size, kernel = [d.between(1, 6), d.between(1, 6)], [d.between(1, 3), d.between(1, 3)]
    drawn = dict(
        size=size, kernel=kernel, dilation=numbers(d, 2, 1, 2), padding=numbers(d, 2, 0, 1), stride=numbers(d, 2, 1, 3)
    )
    columns = F.unfold(
        torch.zeros(1, d.between(1, 2), *size), kernel, drawn["dilation"], drawn["padding"], drawn["stride"]
    )
    return Case(
        [d.tensor([d.between(1, 2), *columns.shape[1:]], d.dtype(FLOATS), finite=True)],
        drawn,
        lambda x: F.fold(x, size, kernel, drawn["dilation"], drawn["padding"], drawn["stride"]),
    )


def images_of(name, shape, arguments, function, dtypes=ALL):
    @op("image", name)
    def draw_case(d):
        drawn = arguments(d)
        return Case([d.tensor(shape(d, drawn), d.dtype(dtypes))], drawn, lambda x: function(x, **drawn))


images_of(
    "pixel_shuffle",
    lambda d, a: d.shape(0, 2, most=6) + [a["factor"] ** 2 * d.between(1, 2), d.between(1, 4), d.between(1, 4)],
    lambda d: dict(factor=d.between(1, 3)),
    lambda x, factor: F.pixel_shuffle(x, factor),
)
images_of(
    "pixel_unshuffle",
    lambda d, a: d.shape(0, 2, zeros=False, most=6)  # of an empty batch PyTorch keeps the shape
    + [d.between(1, 2), a["factor"] * d.between(1, 3), a["factor"] * d.between(1, 3)],
    lambda d: dict(factor=d.between(1, 3)),
    lambda x, factor: F.pixel_unshuffle(x, factor),
)
images_of(
    "channel_shuffle",
    lambda d, a: [d.between(1, 2), a["groups"] * d.between(1, 3), d.between(1, 4), d.between(1, 4)],
    lambda d: dict(groups=d.between(1, 3)),
    lambda x, groups: F.channel_shuffle(x, groups),
    FLOATS,
)


@op("image", "grid_sample")
def grid_sample(d):
    dims, dtype = d.pick(2, 2, 3), d.dtype([torch.float32, torch.float64])
    x = image(d, dims, most=60)
    drawn = dict(
        mode=d.pick("bilinear", "nearest", *(["bicubic"] * (dims == 2))),
        padding_mode=d.pick("zeros", "border", "reflection"),
        align_corners=d.one_in(2),
    )
    grid = d.tensor([x[0], *d.shape(dims, dims, zeros=False, most=30), dims], dtype, -1.6, 1.6, finite=True)
    return Case([d.tensor(x, dtype, finite=True), grid + 0.0123], drawn, lambda x, g: F.grid_sample(x, g, **drawn))


@op("image", "affine_grid")
def affine_grid(d):
    dims, batch = d.pick(2, 3), d.between(1, 2)
    drawn = dict(size=[batch, 1, *d.shape(dims, dims, zeros=False, most=60)], align_corners=d.one_in(2))
    return Case(
        [d.tensor([batch, dims, dims + 1], d.dtype(FLOATS[:3]), finite=True)],
        drawn,
        lambda x: F.affine_grid(x, **drawn),
    )


@op("image", "interpolate")
def interpolate(d):
    dims, dtype = d.between(1, 3), d.dtype([torch.float32, torch.float64])
    linear = ("linear", "bilinear", "trilinear")[dims - 1]
    mode = d.pick("nearest", "nearest-exact", linear, linear, "area", *(["bicubic"] * 2 * (dims == 2)))
    drawn = dict(
        mode=mode, size=[d.between(1, 7) for _ in range(dims)], scale_factor=None, align_corners=None, antialias=False
    )
    if d.one_in(2):
        drawn |= dict(size=None, scale_factor=[d.pick(0.5, 0.75, 1, 1.5, 2, 2.25) for _ in range(dims)])
    if mode in (linear, "bicubic"):
        drawn["align_corners"] = d.one_in(2)
        drawn["antialias"] = dims == 2 and d.one_in(3)
    shape = image(d, dims, most=100)
    drawn["antialias"] &= shape[-1] > 1  # where the width stays 1, PyTorch repeats a row
    return Case([d.tensor(shape, dtype, finite=True)], drawn, lambda x: F.interpolate(x, **drawn))


@op("attention", "attention")
def attention(d):
    """[sequences, heads, length, head dimension] in PyTorch, all of one length."""
    batch, kv_heads, size = d.between(1, 2), d.between(1, 2), d.pick(1, 3, 8, 16)
    heads, causal = kv_heads * d.pick(1, 1, 2), d.one_in(2)
    queries = d.between(1, 7)
    keys = queries if causal else d.between(1, 7)
    dtype = d.dtype(FLOATS)
    drawn = dict(causal=causal, scale=d.pick(None, 0.3))
    inputs = [
        d.tensor([batch, h, n, size], dtype, finite=True)
        for h, n in ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    ]
    return Case(
        inputs,
        drawn,
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=drawn["scale"], enable_gqa=True
        ),
    )
