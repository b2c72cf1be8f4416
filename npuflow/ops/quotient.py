"""Quotients of whole numbers towards zero: trunc(a / b) with broadcasting, as integer division gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.numerics import divide_round
from npuflow.hw.target import Numerics
from npuflow.ir.lowering import Emitter, TileView
from npuflow.ir.op import OPS, No, OnnxCall, OpContext, OpSample
from npuflow.ir.types import INDEX_BITS, Array, IntArray, Span, WholeNumbers
from npuflow.ops._broadcast import BinaryOp
from npuflow.ops._elementwise import binary_operands, corners
from npuflow.ops._requant import centred, clamp_bounds


@OPS.entry
@dataclass(frozen=True)
class Quotient(BinaryOp):
    """Operands and result are whole numbers in float32; no divisor is 0. Rules make it of integers whose
    ranges are known."""

    domain: ClassVar[str] = "npuflow"
    onnx: ClassVar[str] = "Quotient"
    operations: ClassVar[int] = 4  # as of a quotient of any numbers

    @classmethod
    def from_onnx(cls, call: OnnxCall) -> No:
        return No("made by rules only")

    def to_onnx(self, site: OpContext) -> OnnxCall:
        body = """Quotient (a, b) => (y) {
            whole = Cast <to = 7> (a)
            by = Cast <to = 7> (b)
            shares = Div (whole, by)
            y = Cast <to = 1> (shares)
        }"""
        return OnnxCall("Quotient", {}, self.domain, 1, body=body)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        with np.errstate(all="ignore"):
            return (np.asarray(np.trunc(a / b), a.dtype),)

    def whole_result(self, site: OpContext, spans: Sequence[Span | None], output: int) -> Span | None:
        a, b = spans
        if b is None or b[0] <= 0 <= b[1]:
            return None
        return corners(_towards_zero, a, b)

    def whole_numbers(self, site: OpContext) -> Mapping[str, WholeNumbers]:
        """All operands and the result, with a sign where no range says that none is needed."""
        return dict.fromkeys((*site.node.inputs, *site.node.outputs), WholeNumbers(1 << (INDEX_BITS - 1)))

    def prepare(self, site: OpContext, numerics: Numerics) -> dict[str, int | Array]:
        lo, hi = clamp_bounds(self.clip, site.out_quant)
        return {"lo": lo, "hi": hi}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        y = site.out_quant
        top, bottom = np.broadcast_arrays(centred(a, site.quant(0)), centred(b, site.quant(1)))
        shares = divide_round(top.astype(object), bottom.astype(object), "truncate")
        found = np.clip(shares + y.zero_point[0], site.param("lo"), site.param("hi"))
        return (found.astype(y.dtype),)

    def lower(self, site: OpContext, tile: TileView, em: Emitter) -> None:
        bounds = {name: site.param(name) for name in ("lo", "hi")}
        operands = binary_operands(site, tile)
        em.emit("DIV", **operands, multiplier=1, shift=0, **bounds, rounding="truncate")

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        def whole(low: int, high: int, *shape: int) -> Array:
            return np.asarray(rng.integers(low, high, shape), np.float32)

        yield OpSample(cls(), (whole(-99, 99, 2, 3, 4), whole(1, 9, 2, 3, 4)))
        yield OpSample(cls(), (whole(0, 99, 2, 3, 4, 5), whole(2, 9, 3, 1, 1)), (1,))
        yield OpSample(cls(), (np.array(77, np.float32), whole(-9, 0, 9)), (0,))


def _towards_zero(a: int, b: int) -> int:
    size = abs(a) // abs(b)
    return size if (a < 0) == (b < 0) else -size
