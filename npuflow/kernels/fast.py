"""What compiled steps of all opcodes share: proofs that nothing overflows, rows of
operands, checked tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import ModelError
from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.isa import ROUNDINGS
from npuflow.kernels.compiled import rounded
from npuflow.kernels.operands import Bench, FlatOperand, walk

Array = npt.NDArray[Any]
LIMIT = 1 << 62


@cache
def enabled() -> bool:
    """Whether compiled roundings agree with plain numpy where sums are largest; only
    then are compiled kernels used."""
    v = np.array([-(1 << 61), -3, -2, -1, 0, 1, 2, 3, (1 << 61) - 1], np.int64)
    wanted = {
        0: v + 1 >> 1,
        1: np.rint(v / 2),
        2: np.trunc(v / 2 + np.where(v < 0, -0.5, 0.5)),
        3: np.trunc(v / 2),
    }
    for mode, want in wanted.items():
        got = [int(rounded(int(x), 1, 1, mode)) for x in v[1:-1]]
        if got != [int(x) for x in want[1:-1]]:
            return False
    return True


def usable() -> bool:
    """Whether to use compiled kernels: unless NPUFLOW_KERNELS=exact; plain numpy is the answer to
    whatever is wrong with them here."""
    if os.environ.get("NPUFLOW_KERNELS") == "exact":
        return False
    try:
        return enabled()
    except ImportError:
        return False


def same(c: Command, first: str, second: str) -> bool:
    """Whether two operands have one type: a kernel per pair of types would cost more to compile
    than such commands are worth."""
    return c.text(f"{first}_type") == c.text(f"{second}_type")


def rounding(
    c: Command, peak: int, factor: int, extra: int = 0, field: str = "shift"
) -> tuple[int, int, int, int] | None:
    """(left shift as a factor, shift, half, mode) when |value| <= peak times factor
    stays exact in 62 bits."""
    shift = c.number(field) + extra
    scale = 1 << max(0, -shift)
    shift = max(0, shift)
    half = (1 << shift) >> 1
    if peak * factor * scale + 2 * half >= LIMIT:
        return None
    return scale, shift, half, ROUNDINGS.index(c.text("rounding")) if shift else 0


def spread(c: Command, name: str) -> int:
    """The largest |operand - zero point| that the container allows."""
    lo, hi = ELEMENTS[c.text(f"{name}_type")].range
    zero = c.number(f"{name}_zero")
    return max(abs(lo - zero), abs(hi - zero))


def rows(
    bench: Bench, dims: tuple[int, ...], *operands: FlatOperand
) -> tuple[int, list[Array], tuple[int, ...]]:
    """Rows over all samples: length, absolute offsets per operand, steps."""
    strides = tuple((o.sample, *o.strides) for o in operands)
    length, offsets, steps, _ = walk((bench.batch, *dims), strides)
    return length, [o + p.base for o, p in zip(offsets, operands, strict=True)], steps


def elementwise(bench: Bench, i: int, c: Command, *names: str) -> tuple[Any, ...]:
    """First arguments of a kernel that works element by element: each operand (its elements, the offsets of
    its rows, its step), then the length of a row."""
    operands = [bench.operand(i, c, name) for name in names]
    length, offsets, steps = rows(bench, c.vector("dims"), *operands)
    each = zip(operands, offsets, steps, strict=True)
    return (*((o.flat, offset, step) for o, offset, step in each), length)


def end(c: Command, found: tuple[int, int, int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Last arguments of the kernels that scale, round and clamp: (shift, half, mode) and (zero, lo, hi)."""
    return found[1:], clamp(c)


def clamp(c: Command) -> tuple[int, int, int]:
    """The zero point and the bounds of a result."""
    return c.number("zero"), c.number("lo"), c.number("hi")


def checked(kernel: Callable[..., Any], c: Command, why: str) -> Callable[..., None]:
    """A kernel that answers False when the data lead outside a table."""

    def run(*args: Any) -> None:
        if not kernel(*args):
            raise ModelError(f"{c.opcode}: {why}", code="NF-SIM-007")

    return run


def window(bench: Bench, i: int, c: Command) -> tuple[Any, ...]:
    """Leading arguments of the pools: both operands, samples, the window and the size of the result."""
    x, y = (bench.operand(i, c, n) for n in "xy")
    shape = (c.vector("kernel"), c.vector("stride"), c.vector("dilation"), c.vector("origin"))
    size = (c.number("out_height"), c.number("out_width"))
    return (*x.parts, c.vector("x_dims")), y.parts, bench.batch, shape, size
