"""Random commands of every opcode, with the constants they read, wrapped into
programs that run on random memory."""

from __future__ import annotations

import numpy as np

from npuflow.hw.elements import ELEMENTS
from tests.sim import group_cases
from tests.sim.case import LOCAL, QUEUES, SIZES, SMALL, TARGET, Case
from tests.sim.index_cases import gather, loadrows, topk

__all__ = ["LOCAL", "MAKERS", "QUEUES", "SIZES", "SMALL", "TARGET", "Case", "random_case", "requant"]



def _values(c: Case, dtype: str, count: int) -> np.ndarray:
    lo, hi = ELEMENTS[dtype].range
    edge = c.rng.random() < 0.3
    codes = c.rng.choice([lo, hi], count) if edge else c.rng.integers(lo, hi, count, endpoint=True)
    if not ELEMENTS[dtype].packed:
        return codes.astype(dtype)
    if ELEMENTS[dtype].sparse is not None:
        return _sparse(c, codes, ELEMENTS[dtype].bits)
    halves = [int(v) % 16 for v in codes] + [0] * (count % 2)
    return np.array([a + 16 * b for a, b in zip(halves[::2], halves[1::2], strict=True)], np.uint8)


def _sparse(c: Case, codes: np.ndarray, bits: int) -> np.ndarray:
    """Two of every four codes, and their places."""
    groups, stream = -(-len(codes) // 4), 0
    for g in range(groups):
        one, other = (int(v) & ((1 << bits) - 1) for v in c.rng.choice(codes, 2))
        low, high = sorted(int(v) for v in c.rng.choice(4, 2, replace=False))
        fields = one | other << bits | low << 2 * bits | high << 2 * bits + 2
        stream |= fields << g * (2 * bits + 4)
    return np.frombuffer(stream.to_bytes(-(-groups * (2 * bits + 4) // 8), "little"), np.uint8)


def _fill(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 5) for _ in range(4))
    c.tensor("y", dims)
    lo, hi = ELEMENTS[c.fields["y_type"]].range
    c.fields["value"] = c.number(lo, hi)


def _copy(c: Case) -> None:
    c.fields["dims"] = dims = (1, 1, *(c.number(1, 4) for _ in range(4)))
    c.fields["element"] = size = c.pick(1, 2, 4, 8)
    for name in "xy":
        c.tensor(name, dims, {1: "int8", 2: "int16", 4: "int32", 8: "int64"}[size])
        del c.fields[f"{name}_type"]


def _conv(c: Case) -> None:
    groups, per = c.pick((1, 3), (1, 5), (2, 2), (4, 1), (3, 1))
    out = groups * c.number(1, 3)
    out_h, out_w = c.window()
    n, _, h, w = c.fields["x_dims"]
    c.fields["x_dims"] = dims = (n, groups * per, h, w)
    c.tensor("x", dims)
    c.zero("x")
    dtype = c.pick("int8", "int8", "uint8", "int16", "int4", "uint4", "int8_2of4", "int4_2of4")
    kernel = c.fields["kernel"]
    c.fields.update(
        w_type=dtype, groups=groups, batch=n, out_channels=out, insert=c.pick((1, 1), (1, 1), (2, 2), (1, 3))
    )
    c.const("w", _values(c, dtype, out * per * kernel[0] * kernel[1]))
    c.zero("w", "w")
    if c.rng.random() < 0.3:
        c.const(
            "w_zeros",
            c.rng.integers(-5, 6, out).astype(np.int32)
            if c.rng.random() < 0.7
            else np.full(out, 3, np.int32),
        )
    c.acc(n * out * out_h * out_w)


def _matmul(c: Case) -> None:
    batch, m, k, n = c.number(1, 3), c.number(1, 5), c.number(1, 9), c.number(1, 6)
    c.fields.update(batch=batch, m=m, k=k, n=n)
    for name, dims in (("a", (batch, m, k)), ("b", (batch, k, n))):
        c.tensor(name, dims, broadcast=name == "b")
        c.zero(name)
    if c.rng.random() < 0.4:
        dtype = c.pick("int8", "uint8", "int16", "int4", "uint4", "int8_2of4", "int4_2of4")
        size = SIZES.get(dtype, 1)             # strides of packed codes count elements
        c.fields.update(b_type=dtype, b_strides=(0 if batch == 1 else k * n * size, n * size, size))
        c.const("b", _values(c, dtype, (1 if batch == 1 else batch) * k * n))
        c.zero("b")
    if c.rng.random() < 0.3:
        c.const("b_zeros", c.rng.integers(-3, 4, n).astype(np.int32))
    c.acc(batch * m * n)


def _scaled_conv(c: Case) -> None:
    while True:
        _conv(c)
        if c.fields["groups"] == 1:
            break
        c.fields, c.consts, c.at = {}, [], 0
    _scales(c, "w_zeros", c.fields["x_dims"][1], c.fields["out_channels"])


def _scaled_matmul(c: Case) -> None:
    _matmul(c)
    _scales(c, "b_zeros", c.fields["k"], c.fields["n"])


def _scales(c: Case, zeros: str, terms: int, channels: int) -> None:
    c.fields["group"] = group = c.number(1, terms + 1)
    dtype = c.pick("uint8", "uint32")
    values = c.rng.integers(0, ELEMENTS[dtype].range[1], -(-terms // group) * channels, endpoint=True)
    c.fields["scales_type"] = dtype
    c.const("scales", values.astype(dtype))
    if zeros in c.fields:                          # those of a plain product are one a channel
        c.const(zeros, c.rng.integers(-5, 6, values.size).astype(np.int32))


def requant(c: Case, dims=None, acc=None) -> None:
    """A REQUANT of its own memory, or of an accumulator that another command left."""
    dims = dims or tuple(c.number(1, 5) for _ in range(4))
    axis = c.number(0, 3)
    c.fields.update(dims=dims, channel_axis=axis)
    if acc is None:
        c.acc(int(np.prod(dims)))
        del c.fields["accumulate"]
    else:
        c.fields.update(acc=acc[0], acc_type=acc[1])
    c.tensor("y", dims)
    bits = c.pick(8, 16, 31, 32)
    if c.rng.random() < 0.6:
        c.const("multipliers", c.rng.integers(1 << (bits - 1), 1 << bits, dims[axis]).astype(np.uint32))
    else:
        c.fields["multiplier"] = c.multiplier(bits)
    if c.rng.random() < 0.6:
        dtype = c.pick("int8", "int16", "int32")
        c.fields.update(bias_type=dtype, bias_shift=c.pick(0, 0, 5))
        c.const("bias", _values(c, dtype, dims[axis]))
    c.finish(bits + (16 if acc is not None else 32 if c.fields["acc_type"] == "int32" else 64))
    lo, hi = ELEMENTS[c.fields["y_type"]].range
    if c.rng.random() < 0.4:
        c.const("los", c.rng.integers(lo, 1, dims[axis]).astype(np.int32))
        c.const("his", c.rng.integers(1, hi, dims[axis]).astype(np.int32))


def _binary(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 5) for _ in range(4))
    for name in "ab":
        c.tensor(name, dims, broadcast=True)
        if c.opcode != "MINMAX":
            c.zero(name)
    c.tensor("y", dims)
    bits = 8 * (SIZES[c.fields["a_type"]] + SIZES[c.fields["b_type"]])
    if c.opcode == "MINMAX":
        c.fields["maximum"] = c.pick(0, 1)
        c.clamp()
    elif c.opcode in ("ADD", "ABSDIFFERENCE"):
        a, b = c.multiplier(20) * c.pick(1, -1), c.multiplier(c.pick(4, 20, 31)) * c.pick(1, -1)
        c.fields.update(a_multiplier=a, b_multiplier=b)
        c.finish(bits // 2 + 20)
    else:
        c.fields["multiplier"] = m = c.multiplier()
        c.finish((bits if c.opcode == "MUL" else 0) + m.bit_length())


def _prelu(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 5) for _ in range(4))
    for name in ("x", "slope"):
        c.tensor(name, dims, broadcast=name == "slope")
        c.zero(name)
    c.tensor("y", dims)
    c.fields.update(multiplier=c.multiplier(16), negative=c.multiplier(c.pick(10, 31)) * c.pick(1, -1))
    c.finish(8 * SIZES[c.fields["x_type"]] + 16)
    bits = 8 * (SIZES[c.fields["x_type"]] + SIZES[c.fields["slope_type"]] - SIZES[c.fields["y_type"]])
    c.fields["negative_shift"] = max(-3, min(62, bits + c.fields["negative"].bit_length() - c.number(0, 3)))


def _rescale(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 6) for _ in range(4))
    c.tensor("x", dims, broadcast=True)
    c.zero("x")
    c.tensor("y", dims)
    c.fields["multiplier"] = m = c.multiplier()
    c.finish(8 * SIZES[c.fields["x_type"]] + m.bit_length())


def _pool(c: Case) -> None:
    out = c.window()
    n, channels, h, w = c.fields["x_dims"]
    c.tensor("y", (n, channels, *out))
    area = c.fields["kernel"][0] * c.fields["kernel"][1]
    if c.opcode == "MAXPOOL":
        del c.fields["x_zero"]
        c.clamp()
        return
    c.fields.update(count_lo=(c.number(-2, 0), 0), count_hi=(h + c.number(0, 2), w + c.number(0, 2)))
    bits = c.pick(16, 31)
    c.const("multipliers", c.rng.integers(1 << (bits - 1), 1 << bits, area + 1).astype(np.uint32))
    c.finish(8 * SIZES[c.fields["x_type"]] + bits)


def _reduce(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 6) for _ in range(3))
    c.tensor("x", dims)
    c.zero("x")
    c.fields["maximum"] = c.pick(0, 0, 1)
    c.acc(dims[0] * dims[2])


def _lut(c: Case) -> None:
    c.fields["dims"] = dims = tuple(c.number(1, 6) for _ in range(4))
    wide = c.rng.random() < 0.4
    c.tensor("x", dims, c.pick("int16", "uint16") if wide else c.pick("int8", "uint8"), broadcast=True)
    c.tensor("y", dims)
    lo, hi = ELEMENTS[c.fields["x_type"]].range
    bits = c.pick(6, 8, 10) if wide else 0
    fraction = c.pick(0, 3, 8) if bits else 0
    c.fields.update(base=lo, bits=bits, fraction=fraction)
    count = ((hi - lo + 1) >> bits) + (bits > 0)
    y = ELEMENTS[c.fields["y_type"]].range
    table = c.rng.integers(y[0] << fraction, y[1] << fraction, count, endpoint=True)
    c.fields["lo"], c.fields["hi"] = sorted((c.number(*y), c.number(*y))) if bits else y
    if c.rng.random() < 0.15:
        table = table[: count - c.number(1, 60)]      # data may leave it
    c.fields["entries"] = len(table)
    c.const("table", table.astype(np.int32 if bits else c.fields["y_type"]))


def _softmax(c: Case) -> None:
    c.fields["dims"] = dims = (c.number(1, 3), c.number(1, 9), c.number(1, 3))
    wide = c.rng.random() < 0.5
    c.tensor("x", dims, c.pick("int16", "uint16") if wide else c.pick("int8", "uint8"))
    c.tensor("y", dims)
    scale = 0.0003 if wide else 0.05
    if wide:
        low = np.rint((1 << 15) * np.exp(-scale * np.arange(256)))
        high = np.rint(float(1 << 31) * np.exp(-scale * 256 * np.arange(256)))
        c.const("high", high.astype(np.uint32))
        c.fields["low_bits"] = 8
    else:
        low = np.rint(float(1 << 31) * np.exp(-scale * np.arange(256)))
    c.const("low", low.astype(np.uint32))
    lo, _hi = ELEMENTS[c.fields["y_type"]].range
    c.fields.update(entries=256, multiplier=c.pick(255, 256, 32767), zero=c.pick(0, lo))
    c.clamp()


def resampled(c: Case, h: int, w: int) -> tuple[tuple[int, int], int]:
    """Tables of a resizing command on a tile of h rows and w columns; the size of its result, weight_bits."""
    out, bits = (c.number(1, 7), c.number(1, 7)), c.pick(0, 4, 11)
    origin = (c.number(-3, 2), c.number(-3, 2))
    for name, o, extent, start in (("rows", out[0], h, origin[0]), ("columns", out[1], w, origin[1])):
        index = c.rng.integers(0, extent, (o, 2)) - start
        weight = c.rng.integers(0, (1 << bits) + 1, o)
        c.const(name, np.column_stack([index, (1 << bits) - weight, weight]).astype(np.int32))
    c.fields.update(out_height=out[0], out_width=out[1], weight_bits=bits, origin=origin)
    return out, bits


def _resize(c: Case) -> None:
    n, channels, h, w = (c.number(1, k) for k in (2, 3, 6, 6))
    c.fields["x_dims"] = (n, channels, h, w)
    c.tensor("x", (n, channels, h, w))
    c.zero("x")
    out, bits = resampled(c, h, w)
    c.tensor("y", (n, channels, *out))
    c.fields["multiplier"] = m = c.multiplier(c.pick(1, 16, 31))
    c.finish(8 * SIZES[c.fields["x_type"]] + m.bit_length())
    c.fields["shift"] = max(-2 * bits, min(62 - 2 * bits, c.fields["shift"]))


MAKERS = {
    "FILL": _fill,
    "COPY": _copy,
    "CONV": _conv,
    "MATMUL": _matmul,
    "SCALEDCONV": _scaled_conv,
    "SCALEDMATMUL": _scaled_matmul,
    "GROUPMATMUL": group_cases.matmul,
    "REQUANT": requant,
    "ADD": _binary,
    "ABSDIFFERENCE": _binary,
    "MUL": _binary,
    "DIV": _binary,
    "MINMAX": _binary,
    "PRELU": _prelu,
    "RESCALE": _rescale,
    "MAXPOOL": _pool,
    "AVGPOOL": _pool,
    "REDUCE": _reduce,
    "LUT": _lut,
    "SOFTMAX": _softmax,
    "RESIZE": _resize,
    "GATHER": gather,
    "LOADROWS": loadrows,
    "TOPK": topk,
}


def random_case(seed: int, opcode: str) -> Case:
    case = Case(np.random.default_rng(seed), opcode)
    MAKERS[opcode](case)
    return case
