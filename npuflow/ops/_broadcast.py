"""Element-wise operators of two operands with broadcasting: shapes, spaces, command
operands, multipliers per operand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import frexp
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import TargetError
from npuflow.hw.numerics import multiplier_shift
from npuflow.hw.target import Numerics, Target
from npuflow.ir.lowering import Buffer
from npuflow.ir.op import No, Op, OpContext, OpSample, Yes, first_no, need
from npuflow.ir.space import Axis, DimMap, IterationDomain, Operand
from npuflow.ir.types import UNKNOWN, ShapesDifferError, TensorType
from npuflow.ops._draw import draw

NAMES = ("a", "b")


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """numpy's rule; an unknown dimension against 1 stays unknown, against another size takes that size."""
    rank = max(map(len, shapes))
    out = []
    for dims in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        known = {d for d in dims if d not in (1, UNKNOWN)}
        if len(known) > 1:
            raise ShapesDifferError(f"shapes {shapes} do not broadcast")
        out.append(known.pop() if known else UNKNOWN if UNKNOWN in dims else 1)
    return tuple(out)


def operand(name: str, shape: tuple[int, ...], out: tuple[int, ...]) -> Operand:
    """The operand's dimensions follow the output's axes d0.., except those it repeats along."""
    offset = len(out) - len(shape)
    maps = [DimMap(f"d{offset + i}") if size == out[offset + i] else DimMap() for i, size in enumerate(shape)]
    return Operand(name, shape, tuple(maps))


def strided(buffer: Buffer, name: str, shape: tuple[int, ...]) -> dict[str, object]:
    """A 4-dimensional operand whose strides are 0 where it repeats (`shape`: the whole tensor's)."""
    fields = buffer.as4(name)
    dims = (1,) * (4 - len(shape)) + shape
    strides = fields[f"{name}_strides"]
    assert isinstance(strides, tuple)
    fields[f"{name}_strides"] = tuple(0 if size == 1 else s for s, size in zip(strides, dims, strict=True))
    return fields


WIDEST = 1 << 16                         # what multipliers are applied to: differences of codes of 16 bits
# of an output code: what an operand's rounded multiplier may be off in all
NEGLIGIBLE = 1 / 16


def operand_multipliers(ratios: npt.ArrayLike, numerics: Numerics) -> tuple[list[int], int]:
    """Signed integer multipliers of several operands and their one shift.

    An operand so small that its multiplier's error moves no output code needs no exact
    multiplier (it may be 0). A target with multiplier_bits = 1 shifts each operand left instead:
    multipliers are powers of two below 2^15.
    """
    real = np.asarray(ratios, np.float64)
    if numerics.multiplier_bits > 1:
        # A signed 32-bit field carries the multiplier: one bit goes to the sign.
        signed = replace(numerics, multiplier_bits=min(numerics.multiplier_bits, 31))
        _, n = multiplier_shift(np.abs(real).max(), signed)
        off = np.abs(np.rint(np.ldexp(real, n)) - np.ldexp(real, n))
        if np.any(off * WIDEST > np.ldexp(NEGLIGIBLE, n)):
            m, n = multiplier_shift(real, signed, signed=True)
            return m.tolist(), n
        return np.rint(np.ldexp(real, n)).astype(np.int64).tolist(), n
    parts = [frexp(abs(r)) for r in real.tolist()]
    lowest, highest = min(e for _, e in parts), max(e for _, e in parts)
    if any(f != 0.5 for f, _ in parts) or highest - lowest > 14:
        raise TargetError(
            f"the operand ratios {', '.join(f'{r:.6g}' for r in real)} are not powers of two within 2^14 of "
            "each other",
            hint="a power-of-two target needs power-of-two scales",
            code="NF-QUANT-011",
        )
    n = 1 - lowest
    if n > numerics.shift_max or n < -numerics.shift_left_max:
        raise TargetError(
            f"a shift by {n} bits is outside the target's [{-numerics.shift_left_max}, {numerics.shift_max}]",
            code="NF-QUANT-012",
        )
    return [int(np.sign(r)) * (1 << (e - lowest)) for r, (_, e) in zip(real.tolist(), parts, strict=True)], n


@dataclass(frozen=True)
class BinaryOp(Op):
    """Base of the element-wise operators of two operands; either may be a constant."""

    elementwise: ClassVar[bool] = True
    fuses_clip: ClassVar[bool] = True
    operations: ClassVar[int] = 1         # of the vector unit, per element of the result

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        a, b = types[0], types[1]
        assert a is not None and b is not None
        return (TensorType(broadcast_shape(a.shape, b.shape), a.dtype),)

    def accepts(self, site: OpContext, target: Target) -> Yes | No:
        rank = len(site.out_shape)
        return first_no(
            need(rank <= 4, f"rank {rank} > 4"),
            need(site.consts[0] is None or site.consts[1] is None, "both operands are constants"),
            need(min(site.out_shape, default=1) > 0, f"an empty tensor {site.out_shape}"),
            need(site.outputs[0].type.dtype == "float32", f"dtype {site.outputs[0].type.dtype}"),
        )

    def space(self, site: OpContext, numerics: Numerics) -> IterationDomain:
        out = site.out_shape
        axes = tuple(Axis(f"d{i}", size) for i, size in enumerate(out))
        inputs = tuple(operand(name, site.shape(i), out) for i, name in enumerate(NAMES))
        return IterationDomain(axes, inputs, (operand("y", out, out),), ops=self.operations)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(), (draw(rng, 1, 3, 4, 5), draw(rng, 1, 3, 4, 5)))
        yield OpSample(cls(clip=(0.0, 1.0)), (draw(rng, 2, 3, 4, 5), draw(rng, 3, 1, 1)), (1,))
        yield OpSample(cls(), (draw(rng, 1, 1, 6), draw(rng, 4, 7, 1)))
        yield OpSample(cls(), (np.array(0.75, np.float32), draw(rng, 9)), (0,))
