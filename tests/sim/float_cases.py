"""Random commands on floats: types, shapes and bounds; memory holds whatever bytes there are."""

from __future__ import annotations

import numpy as np

from npuflow.hw.elements import having
from npuflow.hw.floats import encoded
from tests.sim import block_cases, group_cases
from tests.sim.cases import SMALL, Case, resampled
from tests.sim.index_cases import topk

FLOATS = having("float")


def _bounds(c: Case) -> None:
    kind = c.fields["y_type"]
    ends = np.sort(c.rng.normal(0, 3, 2)) if c.rng.random() < 0.3 else [-np.inf, np.inf]
    c.fields.update(low=int(encoded(ends[0], kind)), high=int(encoded(ends[1], kind)))


def _patterns(c: Case, kind: str, count: int) -> np.ndarray:
    """Numbers of similar or very different sizes, zeros, or any patterns."""
    how = c.rng.random()
    if how < 0.2:
        return c.rng.integers(0, 1 << 16, count).astype(np.uint16)
    numbers = c.rng.normal(size=count) * (np.exp(c.rng.normal(0, 4, count)) if how < 0.6 else 1.0)
    return encoded(np.where(c.rng.random(count) < 0.2, 0.0, numbers), kind)


def _sum(c: Case, count: int) -> None:
    c.fields.update(acc=c.place(4 * count), acc_type="float32", accumulate=c.pick(0, 0, 1))
    c.fields["chunk"] = c.pick(1, 2, 4, 64)


def _tensor(c: Case, name: str, dims, kind: str = "", broadcast: bool = False) -> None:
    c.tensor(name, dims, kind or c.pick(*FLOATS), broadcast)


def _conv(c: Case) -> None:
    groups, per = c.pick((1, 3), (1, 5), (1, 6), (2, 2), (4, 1), (3, 1))
    out, (out_h, out_w), kind = groups * c.number(1, 3), c.window(), c.pick(*FLOATS)
    del c.fields["x_zero"]
    n, _, h, w = c.fields["x_dims"]
    c.fields["x_dims"] = dims = (n, groups * per, h, w)
    _tensor(c, "x", dims, kind)
    kernel = c.fields["kernel"]
    c.fields.update(w_type=kind, groups=groups, batch=n, out_channels=out, block=c.pick(1, 2, 64))
    c.fields["insert"] = c.pick((1, 1), (1, 1), (2, 2), (1, 3))
    c.fields["taps"] = c.pick(*(t for t in (1, 1, 2, 3, 5) if per % t == 0))
    c.const("w", _patterns(c, kind, out * per * kernel[0] * kernel[1]))
    if c.rng.random() < 0.5:
        c.const("bias", c.rng.normal(size=out).astype(np.float32))
    _sum(c, n * out * out_h * out_w)


def _matmul(c: Case) -> None:
    batch, m, k, n, kind = c.number(1, 3), c.number(1, 5), c.number(1, 9), c.number(1, 6), c.pick(*FLOATS)
    c.fields.update(batch=batch, m=m, k=k, n=n)
    _tensor(c, "a", (batch, m, k), kind)
    _tensor(c, "b", (batch, k, n), kind, broadcast=True)
    if c.rng.random() < 0.5:
        c.const("bias", c.rng.normal(size=n).astype(np.float32))
    _sum(c, batch * m * n)


def _round(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 5) for _ in range(4))
    numbers = c.rng.normal(size=int(np.prod(dims))) * np.exp(c.rng.normal(0, 20))
    c.const("acc", numbers.astype(np.float32))
    c.fields.update(acc_type="float32", channel_axis=c.number(0, 3), divisor=c.pick(1, 1, 3, 49, 1 << 20))
    _tensor(c, "y", dims)
    _bounds(c)
    for name in ("lows", "highs"):
        if c.rng.random() < 0.3:
            ends = c.rng.normal(0, 2, dims[c.fields["channel_axis"]])
            c.const(name, encoded(ends, c.fields["y_type"]))


def _arith(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 6) for _ in range(4))
    for name in "ab":
        _tensor(c, name, dims, broadcast=True)
    _tensor(c, "y", dims)
    c.fields["op"] = c.pick("add", "sub", "mul", "div", "min", "max", "prelu")
    _bounds(c)


def _unary(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 6) for _ in range(4))
    for name in "xy":
        _tensor(c, name, dims)
    c.fields["op"] = c.pick("neg", "abs", "square", "sqrt", "reciprocal", "floor", "ceil", "round")
    _bounds(c)


def _lut(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 6) for _ in range(4))
    for name in "xy":
        _tensor(c, name, dims)
    middle = int(encoded(1.0, c.fields["x_type"]))
    first = [middle + c.number(-200, 200) for _ in range(2)]
    last = [at + c.number(0, 40) for at in first]
    c.fields.update(first=tuple(first), last=tuple(last))
    for name in ("below", "above"):
        factors = np.where(c.rng.random(2) < 0.4, 0.0, c.rng.normal(0, 2, 2)).astype(np.float32)
        c.fields[name] = tuple(factors.view(np.uint32).tolist())
    c.const("table", _patterns(c, c.fields["y_type"], sum(last) - sum(first) + 7))


def _cast(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 6) for _ in range(4))
    kinds = [(c.pick(*SMALL), c.pick(*FLOATS)), (c.pick(*FLOATS), c.pick(*SMALL)), (FLOATS[0], FLOATS[1])]
    for name, kind in zip("xy", c.pick(*kinds), strict=True):
        _tensor(c, name, dims, kind)
    scale = np.float32(np.exp(c.rng.normal(-2, 3)))
    c.fields["factor"] = int(scale.view(np.uint32))
    coded = [name for name in "xy" if c.fields[f"{name}_type"] in SMALL]
    c.fields["zero"] = 0
    if coded:
        c.zero(coded[0])
        c.fields["zero"] = c.fields.pop(f"{coded[0]}_zero")
    if coded == ["y"]:
        c.clamp()
        c.fields.update(low=c.fields.pop("lo"), high=c.fields.pop("hi"))
        return
    _bounds(c)


def _pool(c: Case) -> None:
    out = c.window()
    del c.fields["x_zero"]
    n, channels, h, w = c.fields["x_dims"]
    _tensor(c, "x", c.fields["x_dims"])
    _tensor(c, "y", (n, channels, *out))
    c.fields["maximum"] = c.pick(0, 1)
    c.fields.update(count_lo=(c.number(-2, 0), 0), count_hi=(h + c.number(0, 2), w + c.number(0, 2)))
    _bounds(c)


def _reduce(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 5) for _ in range(4))
    _tensor(c, "x", dims)
    c.fields.update(axes=c.number(0, 15), maximum=c.pick(0, 0, 1))
    _sum(c, int(np.prod([d for i, d in enumerate(dims) if not c.fields["axes"] >> i & 1])))


def _softmax(c: Case) -> None:
    c.fields["dims"] = dims = (c.number(1, 4), c.number(1, 9), c.number(1, 4))
    _tensor(c, "x", dims)
    _tensor(c, "y", dims)
    c.fields["chunk"] = c.pick(1, 4, 64)


def _resize(c: Case) -> None:
    n, channels, h, w = (c.number(1, k) for k in (2, 3, 6, 6))
    c.fields["x_dims"] = (n, channels, h, w)
    _tensor(c, "x", (n, channels, h, w))
    out, _ = resampled(c, h, w)
    _tensor(c, "y", (n, channels, *out))
    _bounds(c)


MAKERS = {
    "FRESIZE": _resize,
    "FCONV": _conv,
    "FMATMUL": _matmul,
    "FROUND": _round,
    "FARITH": _arith,
    "FUNARY": _unary,
    "FLUT": _lut,
    "FCAST": _cast,
    "FPOOL": _pool,
    "FREDUCE": _reduce,
    "FSOFTMAX": _softmax,
    "BCONV": block_cases.conv,
    "BMATMUL": block_cases.matmul,
    "BPAIRS": block_cases.pairs,
    "FGROUPMATMUL": group_cases.float_matmul,
    "FTOPK": lambda c: topk(c, *FLOATS),
}


def random_case(seed: int, opcode: str) -> Case:
    case = Case(np.random.default_rng(seed), opcode)
    MAKERS[opcode](case)
    return case
