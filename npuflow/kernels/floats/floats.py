"""Float arithmetic of the simulator: memory holds patterns, commands compute in float64 and float32.
Nothing here comes from hw.floats, on purpose: rounding goes by bits and not by quotients, error bounds by
norms, and sums that stay in doubt are settled by an exact cascade and not by fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.hw.command import Command
from npuflow.hw.isa import Fields
from npuflow.kernels.memory import SimulatedMemory

Array = npt.NDArray[Any]
UNIT = 2.0**-53
NANS = {"float16": 0x7E00, "bfloat16": 0x7FC0}
INFINITIES = {"float16": 0x7C00, "bfloat16": 0x7F80}


def real(patterns: Array, name: str) -> npt.NDArray[np.float64]:
    """What 16-bit patterns stand for."""
    with np.errstate(invalid="ignore"):                              # NaNs that signal
        return _real(patterns, name)


def _real(patterns: Array, name: str) -> npt.NDArray[np.float64]:
    if name == "bfloat16":
        return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.ascontiguousarray(patterns, np.uint16).view(np.float16).astype(np.float64)


def pattern(value: Array, name: str) -> npt.NDArray[np.uint16]:
    """float64 rounded once. First to float32 with the last bit set where anything was lost ("round to
    odd"), so that the second rounding sees on which side of a tie the number lies."""
    with np.errstate(all="ignore"):
        near = np.asarray(value, np.float64).astype(np.float32)
        beyond = np.abs(near.astype(np.float64)) > np.abs(value)
    bits = near.view(np.uint32) - beyond.astype(np.uint32)  # toward zero; infinity becomes the largest
    lost = (bits.view(np.float32).astype(np.float64) != value) & ~np.isnan(value)
    bits = bits | lost.astype(np.uint32)
    if name == "bfloat16":
        found = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    else:
        with np.errstate(over="ignore"):
            found = bits.view(np.float32).astype(np.float16).view(np.uint16)
    return np.where(np.isnan(value), np.uint16(NANS[name]), found)


def tensor(memory: SimulatedMemory, c: Command, name: str, dims: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """A float operand as numbers."""
    return real(memory.operand(c, name, dims), c.text(f"{name}_type"))


def finish(
    memory: SimulatedMemory,
    c: Command,
    dims: tuple[int, ...],
    value: Array,
    low: Any = None,
    high: Any = None,
) -> None:
    """y = clamp(R(value)); bounds are patterns of y's type, those of the command unless given. Comparisons
    with NaN are false."""
    kind = c.text("y_type")
    first = np.asarray(c.number("low") if low is None else low, np.uint16)
    last = np.asarray(c.number("high") if high is None else high, np.uint16)
    made = pattern(value, kind)
    made = np.where(real(made, kind) < real(first, kind), first, made)
    made = np.where(real(made, kind) > real(last, kind), last, made)
    memory.operand(c, "y", dims)[...] = made


def start(memory: SimulatedMemory, c: Command, acc: Array, count: int, axis: int) -> npt.NDArray[np.float32]:
    """What sums begin with: the old ones, a bias along a dimension of `acc`, or +0."""
    if c.number("accumulate"):
        return acc.copy()
    at = c.pointer("bias")
    if at is None:
        return np.zeros(acc.shape, np.float32)
    bias = memory.flat(c.core, at, "float32", count)
    shaped = bias.reshape([-1, *(count if d == axis else 1 for d in range(1, acc.ndim))])
    return np.broadcast_to(shaped, acc.shape)


def weighed(weights: Array, c: Command) -> None:
    """A fault where a table of FRESIZE holds a weight above 2^weight_bits: products would be inexact."""
    most, allowed = int(np.abs(weights.astype(np.int64)).max(initial=0)), 1 << c.number("weight_bits")
    if most > allowed:
        raise ModelError(f"{c.opcode}: a weight of {most} is above {allowed}", code="NF-SIM-012")


def chunk_problems(f: Fields) -> Iterator[str]:
    """What is wrong with the lengths of exact sums."""
    for name in ("chunk", "block"):
        if f.get(name, 1) < 1:
            yield f"{name} must be at least 1"


def order(channels: int, taps: int, block: int, gathered: int = 1) -> npt.NDArray[np.int64]:
    """Where the terms of K lie in a dense weight [channel, tap], `gathered` channels of which are taps of
    one."""
    index = np.arange(channels * taps).reshape(channels // gathered, gathered * taps)
    return np.concatenate([index[b : b + block].T.reshape(-1) for b in range(0, len(index), block)])


def dot(weight: Array, columns: Array, chunk: int, total: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """total + weight [.., n, k] @ columns [.., k, m]: `chunk` terms at a time, each sum exact and rounded
    to float32, then added in float32."""
    with np.errstate(all="ignore"):
        for first in range(0, weight.shape[-1], chunk):
            part = slice(first, first + chunk)
            total = total + _once(weight[..., part], columns[..., part, :])
    return single(total)


def single(value: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The numbers with one NaN for all."""
    return np.where(np.isnan(value), np.float32(np.nan), value)


def _once(weight: Array, columns: Array) -> npt.NDArray[np.float32]:
    """float32 of the exact sum. By Cauchy and Schwarz a sum of k terms is off by no more than
    k 2^-52 |w| |x|; where that could matter the terms are looked at."""
    near = weight @ columns
    sizes = (
        np.sqrt(np.square(weight).sum(-1))[..., :, None] * np.sqrt(np.square(columns).sum(-2))[..., None, :]
    )
    reach = sizes * (4 * weight.shape[-1] * UNIT)
    result = near.astype(np.float32) + np.float32(0)
    open_ = (near - reach).astype(np.float32) != (near + reach).astype(np.float32)
    open_ &= np.isfinite(near)
    if open_.any():
        lead = near.shape[:-2]
        rows = np.broadcast_to(weight, (*lead, *weight.shape[-2:]))
        cols = np.broadcast_to(columns, (*lead, *columns.shape[-2:]))
        places = np.nonzero(open_)
        terms = rows[(*places[:-2], places[-2])] * np.moveaxis(cols, -1, -2)[(*places[:-2], places[-1])]
        exact, lossy = _cascade(terms)
        made = exact.astype(np.float32) + np.float32(0)
        made[lossy] = [_settled(line) for line in terms[lossy].tolist()]
        result[places] = made
    return result


def _cascade(terms: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Sums term by term, and whether any step lost something: by Knuth's error-free sum of two."""
    total = terms[:, 0].copy()
    lossy = np.zeros(len(terms), bool)
    for k in range(1, terms.shape[1]):
        more = terms[:, k]
        now = total + more
        part = now - total
        lossy |= (total - (now - part)) + (more - part) != 0
        total = now
    return total, lossy


def _settled(terms: list[float]) -> np.float32:
    """The float32 nearest to an exact sum. `fsum` rounds it to float64; that may have fallen onto a place
    half way between two float32s, and then what is left over decides."""
    near = fsum(terms)
    with np.errstate(over="ignore"):
        single = np.float32(near)
    if _placed(single) == near:
        return single
    other = np.nextafter(single, np.float32(np.copysign(np.inf, near - _placed(single))))
    if near - _placed(single) != _placed(other) - near:
        return single
    rest = fsum([*terms, -near])
    if rest == 0.0:
        return single
    return max(single, other) if rest > 0 else min(single, other)


def _placed(single: np.float32) -> float:
    """A float32 on the line of numbers: infinity stands where the next number would be."""
    return float(np.copysign(2.0**128, single)) if np.isinf(single) else float(single)
