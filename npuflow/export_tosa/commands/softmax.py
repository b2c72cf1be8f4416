"""Exponentials over their sum, along a dimension: tables, and a division bit by bit in two limbs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuflow.export_tosa.builder import COMMANDS, TosaBuilder
from npuflow.export_tosa.tensors import IGNORE, TosaRefusal, TosaTensors, TosaValue
from npuflow.ir.types import Array
from npuflow.whole.export_c.whole import TensorCommand

LIMB = 16
MOST = 20_000                             # elements whose sum of 32-bit numbers two limbs hold three times
Number = tuple[TosaValue, TosaValue]
"""high * 2^16 + low, with a low limb of 16 bits."""


@COMMANDS.entry
def softmax(b: TosaBuilder, run: Sequence[TensorCommand]) -> int:
    """y = floor((2 e m + S) / (2 S)): q and r of e m / S, bit by bit of m, and one more where 2 r >= S."""
    c, t = run[0], b.t
    a, r, i = c["dims"]
    if r > MOST:
        raise TosaRefusal(f"a sum of {r} exponentials")
    x = t.broadcast(t.cast(b.views.read(c, "x"), "int32"), (a, r, i))
    far = t.sub(t.op("REDUCE_MAX", [x], (a, 1, i), "int32", axis=1, nan_mode=IGNORE), x)
    table = exponentials(b, c)
    e = tuple(t.pick(t.const(part, "int32"), far) for part in (table >> LIMB, table & 0xFFFF))
    high, low = (t.op("REDUCE_SUM", [part], (a, 1, i), "int32", axis=1) for part in e)
    total = carried(t, high, low)
    rest: Number | None = None
    quotient: TosaValue | None = None
    for bit in bin(c["multiplier"])[2:]:
        if rest is None:
            rest = (e[0], e[1])
        else:
            rest = carried(t, *(t.mul(part, 2) for part in rest))
            if bit == "1":
                rest = carried(t, *(t.add(one, other) for one, other in zip(rest, e, strict=True)))
        quotient = None if quotient is None else t.mul(quotient, 2)
        for _ in range(1 + int(bit)):     # the remainder is less than twice the total, or than three times
            rest, above = less_total(t, rest, total)
            quotient = above if quotient is None else t.add(quotient, above)
    assert rest is not None and quotient is not None
    _, more = less_total(t, carried(t, *(t.mul(part, 2) for part in rest)), total)
    b.views.write(c, t.codes(t.add(quotient, more), c["zero"], c["lo"], c["hi"], c["y_type"]))
    return 1


def exponentials(b: TosaBuilder, c: TensorCommand) -> Array:
    """For each distance from the largest."""
    low = b.constant(c, "low")
    if "high" not in c.fields:
        return low
    high = b.constant(c, "high")
    every = np.arange(len(high) << c["low_bits"])
    return low[every & ((1 << c["low_bits"]) - 1)] * high[every >> c["low_bits"]] >> 15


def carried(t: TosaTensors, high: TosaValue, low: TosaValue) -> Number:
    """Propagate the carry of the low limb to the high one."""
    over = t.down(low, LIMB)
    return t.add(high, over), t.sub(low, t.mul(over, 1 << LIMB))


def less_total(t: TosaTensors, rest: Number, total: Number) -> tuple[Number, TosaValue]:
    """Subtract the total where it is not larger. What is left, and 1 where it was subtracted, else 0."""
    low = t.sub(rest[1], total[1])
    borrow = t.down(low, 31)
    high = t.add(t.sub(rest[0], total[0]), borrow)
    zero = t.number(0, high)
    enough = t.two("GREATER_EQUAL", high, zero, "bool")
    low = t.sub(low, t.mul(borrow, 1 << LIMB))
    kept = t.where(enough, high, rest[0]), t.where(enough, low, rest[1])
    return kept, t.where(enough, t.number(1, high), zero)
