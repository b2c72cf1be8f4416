"""What the values of constant weights leave without effect, as rules of equivalence."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, isfinite, isnan, prod

import numpy as np

from npuflow.hw.command import NONE
from npuflow.hw.elements import ELEMENTS
from tests.sim import float_rules  # noqa: F401  its rules read fields that a rule here removes
from tests.sim.block_scalar import FORMATS, read_block
from tests.sim.equivalence import Fields, Tables, rule


@rule
def nan_weights(opcode: str, f: Fields, tables: Tables) -> None:
    """A sum with a NaN among its weights is NaN whatever its activations, bias and old value are, for 0 times
    NaN is NaN; so is one with an infinity behind the last channel, where the activation is 0. Where every sum
    is, only their places matter."""
    if opcode not in ("BCONV", "BMATMUL"):
        return
    if opcode == "BCONV":
        depth, channels, taps = f["x_dims"][1] // f["groups"], f["out_channels"], prod(f["kernel"])
        made = f["batch"] * channels * f["out_height"] * f["out_width"]
    else:
        depth, channels, taps = f["k"], f["n"], 1
        made = f["batch"] * f["m"] * channels
    if all(_never_a_number(f, o, channels, depth, taps, tables) for o in range(channels)):
        kept = {"acc": f["acc"], "acc_type": f["acc_type"], "made": made, "constant": "NaN"}
        f.clear()
        f.update(kept)


def _never_a_number(f: Fields, channel: int, channels: int, depth: int, taps: int, tables: Tables) -> bool:
    """Whether the weights of one output channel that are known make every sum NaN."""
    name = "w" if "w" in f else "b"
    kind = f[f"{name}_type"]
    size, width = FORMATS[kind].size, ELEMENTS[kind].block_bytes
    count = -(-depth // size)
    for b, tap in np.ndindex(count, taps):
        index = b * channels + channel if not f.get("columns", 1) else (channel * count + b) * taps + tap
        raw = _held(tables, f[name] + index * width, width)
        values = read_block(raw, kind) if raw else []
        if any(isnan(v) for v in values) or not all(map(isfinite, values[depth - b * size :])):
            return True
    return False


@rule
def wrapped_zero(opcode: str, f: Fields, tables: Tables) -> None:
    """An accumulator holds a sum modulo 2^bits. The zero point of x enters it as a multiple of the sum of the
    weights (scaled, less their own zero points) that meet a place of the tile. Where all these are multiples
    of 2^k, only the lowest (bits - k) bits of the zero point reach an accumulator."""
    if opcode not in ("CONV", "SCALEDCONV"):
        return
    factors = _factors(f, tables)
    if factors is None:
        return
    modulus = 1 << ELEMENTS[f["acc_type"]].bits
    f["x_zero"] %= modulus // gcd(modulus, *factors)


def _factors(f: Fields, tables: Tables) -> set[int] | None:
    """What the zero point of x is multiplied by, at each place of the result; None: not known."""
    out, depth, kernel = f["out_channels"], f["x_dims"][1] // f["groups"], f["kernel"]
    weights = _weights(f, (out, depth, *kernel), tables)
    groups = -(-depth // f["group"]) if "group" in f else 1
    zeros: list[int] | None = [f["w_zero"]] * groups * out
    if f["w_zeros"] != NONE:
        zeros = _numbers(tables, f["w_zeros"], "int32", groups * out)
    scales = _numbers(tables, f["scales"], f["scales_type"], groups * out) if "scales" in f else [1] * out
    if weights is None or zeros is None or scales is None:
        return None
    per = np.arange(depth) // f.get("group", depth)
    terms = weights - np.array(zeros, object).reshape(groups, out)[per].T[:, :, None, None]
    terms = terms * np.array(scales, object).reshape(groups, out)[per].T[:, :, None, None]
    taps = terms.sum(1)
    return {
        int(np.where(np.outer(rows, columns), taps[o], 0).sum())
        for rows in _met(f["windows"][0])
        for columns in _met(f["windows"][1])
        for o in range(out)
    }


def _met(windows: list[list[int]]) -> Iterator[np.ndarray]:
    """For each window along an axis, which taps meet a place of the tile."""
    yield from (np.array(places) >= 0 for places in windows)


def _weights(f: Fields, shape: tuple[int, ...], tables: Tables) -> np.ndarray | None:
    """Dense weights as Python integers; None: not known, or not stored one by one."""
    kind = ELEMENTS[f["w_type"]]
    if kind.sparse is not None:
        return None
    if not kind.packed:
        found = _numbers(tables, f["w"], f["w_type"], prod(shape))
        return None if found is None else np.array(found, object).reshape(shape)
    raw = _held(tables, f["w"], -(-prod(shape) * kind.bits // 8))
    if raw is None:
        return None
    bits, low = int.from_bytes(raw, "little"), kind.range[0]
    codes = [bits >> (i * kind.bits) & ((1 << kind.bits) - 1) for i in range(prod(shape))]
    return np.array([(c - low) % (1 << kind.bits) + low for c in codes], object).reshape(shape)


def _numbers(tables: Tables, at: int, dtype: str, count: int) -> list[int] | None:
    kind = ELEMENTS[dtype]
    raw = _held(tables, at, count * kind.bytes)
    return None if raw is None else np.frombuffer(raw, np.dtype(kind.numpy).newbyteorder("<")).tolist()


def _held(tables: Tables, at: int, size: int) -> bytes | None:
    """The constant bytes at an address of local memory; None: some of them are not constant."""
    for start, body in tables.items():
        if start <= at and at + size <= start + len(body):
            return body[at - start : at - start + size]
    return None
