"""A float graph that grows at random: for each operator, one with random attributes on a given tensor."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import constant
from npuflow.ir.op import OPS, Node, Op
from npuflow.ir.types import TensorType, Value

Array = npt.NDArray[Any]
Made = tuple[Op, tuple[str, ...]] | None     # an operator and what it reads; None: not on such a tensor
LARGEST = 240                                # elements of a tensor
TABLES = (
    "relu",
    "sigmoid",
    "tanh",
    "hardswish",
    "hardsigmoid",
    "leakyrelu",
    "elu",
    "gelu",
    "silu",
    "erf",
    "softplus",
    "abs",
    "neg",
    "mish",
    "celu",
    "selu",
    "softsign",
    "sin",
    "floor",
    "round",
    "sign",
    "thresholdedrelu",
)
WINDOWED = {2: (1,), 3: (1,), 4: (2,)}       # spatial ranks by rank


class Draw:
    """A graph as it grows, with the float values of one sample."""

    largest = LARGEST

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.values: dict[str, Value] = {}
        self.consts: dict[str, Array] = {}
        self.arrays: dict[str, Array] = {}
        self.inputs: list[str] = []
        self.nodes: list[Node] = []

    def shape(self, value: str) -> tuple[int, ...]:
        return tuple(self.arrays[value].shape)

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def array(self, shape: tuple[int, ...], scale: float = 1.0) -> Array:
        shift = self.rng.choice((0.0, 0.0, 0.5, -1.0))
        return np.asarray(self.numbers.normal(shift, 1.0, shape) * scale, np.float32)

    def input(self, shape: tuple[int, ...]) -> str:
        name = f"in{len(self.inputs)}"
        self.arrays[name] = self.array(shape)
        self.values[name] = Value(name, TensorType(shape))
        self.inputs.append(name)
        return name

    def const(self, shape: tuple[int, ...], scale: float = 1.0) -> str:
        name = f"c{len(self.values)}"
        self.arrays[name] = self.array(shape, scale)
        self.values[name], found = constant(name, self.arrays[name])
        self.consts.update(found)
        return name

    def other(self, fits: Callable[[tuple[int, ...]], bool]) -> str | None:
        """An activation made before."""
        found = [v for v in self.arrays if not v.startswith("c") and fits(self.shape(v))]
        return self.rng.choice(found) if found else None

    def clip(self) -> tuple[float, float] | None:
        return self.rng.choice((None, None, None, (0.0, float("inf")), (0.0, 1.0), (-0.5, 0.75)))

    def add(self, op: Op, inputs: tuple[str, ...]) -> bool:
        """Put an operator behind its inputs, unless its result is empty, large, or not finite."""
        kinds = [self.values[i].type for i in inputs]
        if not all(0 < t.size <= self.largest and min(t.shape, default=1) > 0 for t in op.infer(*kinds)):
            return False
        results = op.clipped(*[self.arrays[i] for i in inputs])
        if not all(np.isfinite(r).all() and np.abs(r).max() < 1e4 for r in results):
            return False
        names = tuple(f"v{len(self.nodes)}_{k}" for k in range(len(results)))
        for name, array in zip(names, results, strict=True):
            self.arrays[name], self.values[name] = array, Value(name, TensorType(array.shape))
        self.nodes.append(Node(op, inputs, names, (f"{type(op).__name__.lower()}_{len(self.nodes)}",)))
        return True


def _window(d: Draw, rank: int, dilated: bool = True) -> dict[str, Any]:
    def pick(most: int) -> tuple[int, ...]:
        return tuple(d.rng.randint(1, most) for _ in range(rank))

    kernel = pick(3)
    dilations = pick(2) if dilated and d.chance(0.3) else (1,) * rank
    pads = tuple(d.rng.randint(0, kernel[i % rank] - 1) for i in range(2 * rank))
    return {
        "kernel_shape": kernel,
        "strides": pick(2) if d.chance(0.5) else (1,) * rank,
        "dilations": dilations,
        "pads": pads,
    }


def conv(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if len(shape) not in (3, 4):
        return None
    settings, channels = _window(d, len(shape) - 2), shape[1]
    group = d.rng.choice(
        [g for g in range(1, channels + 1) if channels % g == 0] if d.chance(0.5) else [1, channels]
    )
    out = group * d.rng.randint(1, 1 + 6 // group)
    each = channels // group
    area = each * int(np.prod(settings["kernel_shape"]))
    weight = d.const((out, each, *settings["kernel_shape"]), area**-0.5)
    bias = (d.const((out,), 0.2),) if d.chance(0.7) else ()
    return OPS["conv"](**settings, group=group, clip=d.clip()), (x, weight, *bias)


def convtranspose(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if len(shape) not in (3, 4):
        return None
    settings, channels = _window(d, len(shape) - 2), shape[1]
    group = d.rng.choice([1, channels])
    extra = tuple(d.rng.randint(0, s - 1) for s in settings["strides"])
    each = d.rng.randint(1, 3)
    weight = d.const((channels, each, *settings["kernel_shape"]), (channels // group) ** -0.5)
    bias = (d.const((group * each,), 0.2),) if d.chance(0.6) else ()
    return OPS["convtranspose"](**settings, output_padding=extra, group=group, clip=d.clip()), (
        x,
        weight,
        *bias,
    )


def pool(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if len(shape) not in (3, 4):
        return None
    name = d.rng.choice(("maxpool", "averagepool"))
    more: dict[str, Any] = {"ceil_mode": d.rng.randint(0, 1), "clip": d.clip()}
    if name == "averagepool":
        more["count_include_pad"] = d.rng.randint(0, 1)
    return OPS[name](**_window(d, len(shape) - 2), **more), (x,)


def gemm(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if len(shape) != 2:
        return None
    ta, tb, n = d.rng.randint(0, 1), d.rng.randint(0, 1), d.rng.randint(1, 7)
    k = shape[0] if ta else shape[1]
    m = shape[1] if ta else shape[0]
    bias = (d.const(d.rng.choice(((n,), (1, n), (1,), (m, 1))), 0.2),) if d.chance(0.7) else ()
    alpha, beta = d.rng.choice((1.0, 1.0, 0.5)), d.rng.choice((1.0, 1.0, 0.25))
    op = OPS["gemm"](alpha=alpha, beta=beta, transA=ta, transB=tb, clip=d.clip())
    return op, (x, d.const((n, k) if tb else (k, n), k**-0.5), *bias)


def matmul(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if len(shape) < 2:
        return None
    k, n = shape[-1], d.rng.randint(1, 6)
    both = (
        d.other(lambda s: len(s) >= 2 and s[-2] == k and (len(s) == 2 or s[:-2] == shape[:-2]))
        if d.chance(0.6)
        else None
    )
    op = OPS["matmul"](clip=d.clip())
    if both is None and d.chance(0.2):
        return op, (d.const((n, shape[-2]), shape[-2] ** -0.5), x)
    return op, (x, both or d.const(((*shape[:-2], k, n) if d.chance(0.3) else (k, n)), k**-0.5))


def pair(d: Draw, x: str) -> Made:
    name = d.rng.choice(("add", "add", "sub", "mul", "min", "max", "prelu", "div"))
    shape = d.shape(x)
    if len(shape) > 4:
        return None
    thin = tuple(1 if d.chance(0.4) else s for s in shape)[d.rng.randint(0, len(shape)) :]
    if name == "prelu":
        return OPS[name](), (x, d.const(thin, 0.3))
    if name == "div":
        return OPS["mul"](clip=d.clip()), (x, d.const((), 0.5))

    def fits(s: tuple[int, ...]) -> bool:
        return len(s) <= 4 and all(a in (b, 1) or b == 1 for a, b in zip(s[::-1], shape[::-1], strict=False))

    y = (d.other(fits) if d.chance(0.6) else None) or d.const(thin if d.chance(0.7) else shape)
    op = OPS[name](clip=d.clip())
    return op, ((x, y) if d.chance(0.6) else (y, x))


def reduction(d: Draw, x: str) -> Made:
    rank = len(d.shape(x))
    if rank in (3, 4) and d.chance(0.3):
        return OPS[d.rng.choice(("globalaveragepool", "globalmaxpool"))](clip=d.clip()), (x,)
    if rank == 0:
        return None
    axes = tuple(sorted(d.rng.sample(range(rank), d.rng.randint(1, max(1, rank - 1)))))
    name = d.rng.choice(("reducemean", "reducesum", "reducemax"))
    return OPS[name](axes=axes, keepdims=int(d.chance(0.7)), clip=d.clip()), (x,)


def table(d: Draw, x: str) -> Made:
    name = d.rng.choice(TABLES)
    return OPS[name](), (x,)


def softmax(d: Draw, x: str) -> Made:
    rank = len(d.shape(x))
    return (OPS["softmax"](d.rng.randint(-1, rank - 1)), (x,)) if rank else None


def concat(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if not shape:
        return None
    axis = d.rng.randrange(len(shape))
    parts = [x]
    for _ in range(d.rng.randint(1, 2)):
        same = d.other(
            lambda s: (
                (*s[:axis], *s[axis + 1 :]) == (*shape[:axis], *shape[axis + 1 :]) and len(s) == len(shape)
            )
        )
        sized = (*shape[:axis], d.rng.randint(1, 3), *shape[axis + 1 :])
        parts.append(same if same and d.chance(0.7) else d.const(sized))
    d.rng.shuffle(parts)
    return OPS["concat"](axis), tuple(parts)


def split(d: Draw, x: str) -> Made:
    axes = [i for i, s in enumerate(d.shape(x)) if s > 1]
    if not axes:
        return None
    axis = d.rng.choice(axes)
    size = d.shape(x)[axis]
    cuts = sorted(d.rng.sample(range(1, size), d.rng.randint(1, min(2, size - 1))))
    return OPS["split"](tuple(b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)), axis), (x,)


def slice_(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if not shape:
        return None
    axes = tuple(sorted(d.rng.sample(range(len(shape)), d.rng.randint(1, min(2, len(shape))))))
    starts, ends, steps = [], [], []
    for a in axes:
        lo = d.rng.randrange(shape[a])
        hi = d.rng.randint(lo + 1, shape[a])
        back = d.chance(0.2)
        steps.append(d.rng.choice((-1, -2) if back else (1, 1, 2)))
        starts.append(hi - 1 if back else lo)
        ends.append((lo - 1 if lo else -shape[a] - 1) if back else hi)
    return OPS["slice"](tuple(starts), tuple(ends), axes, tuple(steps)), (x,)


def pad(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if not shape:
        return None
    mode = d.rng.choice(("constant", "constant", "edge", "reflect"))
    low = -1 if mode == "constant" and d.chance(0.3) else 0
    pads = [d.rng.randint(low, min(2, s - 1)) if d.chance(0.5) else 0 for s in (*shape, *shape)]
    return OPS["pad"](
        tuple(pads), mode, d.rng.choice((0.0, 0.0, 0.5, -3.0)) if mode == "constant" else 0.0
    ), (x,)


def resize(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if len(shape) != 4:
        return None
    new = tuple(d.rng.randint(1, 2 * s) for s in shape[2:])
    scales = tuple(float(np.float32(n) / np.float32(s)) for n, s in zip(new, shape[2:], strict=True))
    coordinate = d.rng.choice(("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"))
    rounding = d.rng.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    mode = d.rng.choice(("nearest", "linear"))
    return OPS["resize"]((*shape[:2], *new), (1.0, 1.0, *scales), mode, coordinate, rounding), (x,)


def reshape(d: Draw, x: str) -> Made:
    sizes = list(d.shape(x))
    if len(sizes) > 1 and d.chance(0.6):
        i = d.rng.randrange(len(sizes) - 1)
        sizes[i : i + 2] = [sizes[i] * sizes[i + 1]]
    elif len(sizes) < 4 and sizes:
        i = d.rng.randrange(len(sizes))
        part = d.rng.choice([p for p in range(1, sizes[i] + 1) if sizes[i] % p == 0])
        sizes[i : i + 1] = [part, sizes[i] // part]
    else:
        sizes.insert(0, 1)
    return OPS["reshape"](tuple(sizes[:5])) if len(sizes) <= 5 else None, (x,)  # type: ignore[return-value]


def transpose(d: Draw, x: str) -> Made:
    perm = list(range(len(d.shape(x))))
    d.rng.shuffle(perm)
    return (OPS["transpose"](tuple(perm)), (x,)) if perm else None


def blocks(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if len(shape) != 4:
        return None
    if shape[1] % 4 == 0 and d.chance(0.6):
        return OPS["depthtospace"](2, d.rng.choice(("DCR", "CRD"))), (x,)
    return (OPS["spacetodepth"](2), (x,)) if shape[2] % 2 == 0 and shape[3] % 2 == 0 else None


def gather(d: Draw, x: str) -> Made:
    shape = d.shape(x)
    if not shape:
        return None
    axis = d.rng.randrange(len(shape))
    index_shape = d.rng.choice(((), (2,), (3,), (2, 2))) if len(shape) < 4 else d.rng.choice(((), (2,)))
    return OPS["gather"](
        tuple(d.rng.randrange(shape[axis]) for _ in range(int(np.prod(index_shape)))), index_shape, axis
    ), (x,)


def expand(d: Draw, x: str) -> Made:
    shape = tuple(d.rng.randint(1, 3) if s == 1 else s for s in d.shape(x))
    return OPS["expand"](shape), (x,)


MAKERS = (
    conv,
    conv,
    conv,
    conv,
    convtranspose,
    pool,
    pool,
    gemm,
    gemm,
    matmul,
    pair,
    pair,
    pair,
    reduction,
    table,
    table,
    softmax,
    concat,
    concat,
    split,
    slice_,
    pad,
    resize,
    reshape,
    transpose,
    blocks,
    blocks,
    gather,
    expand,
)
