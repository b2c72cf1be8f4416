"""a / b with broadcasting: an exact quotient of integers, rounded once; a zero divisor saturates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npuflow.hw.numerics import divide_round, scaled
from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS, Algebra, OpContext, OpSample
from npuflow.ir.types import Array, IntArray
from npuflow.ops._draw import draw
from npuflow.ops._elementwise import RatioOp
from npuflow.ops._requant import centred


@OPS.entry
@dataclass(frozen=True)
class Div(RatioOp):
    onnx: ClassVar[str] = "Div"
    algebra: ClassVar[Algebra] = "quotient"
    sensitive: ClassVar[bool] = True
    opcode: ClassVar[str] = "DIV"
    operations: ClassVar[int] = 4         # a quotient takes the vector unit as long as four sums

    @property
    def lane(self) -> str:
        return "div"

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        with np.errstate(all="ignore"):
            return (np.asarray(a / b if a.dtype.kind == "f" else np.trunc(a / b)).astype(a.dtype),)

    def ratio(self, a: float, b: float) -> float:
        return a / b

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        a, b = inputs[0], inputs[1]
        assert a is not None and b is not None
        shift, y = site.param("shift"), site.out_quant
        # up to 17 + 32 + 62 bits
        numerator = scaled(scaled(centred(a, site.quant(0)), site.param("multiplier")), 1 << max(-shift, 0))
        divisor = scaled(centred(b, site.quant(1)), 1 << max(shift, 0))
        top, bottom = np.broadcast_arrays(np.asarray(numerator), np.asarray(divisor))
        quotient = divide_round(top, bottom, numerics.rounding)
        result = np.clip(quotient + y.zero_point[0], site.param("lo"), site.param("hi"))
        return (result.astype(y.dtype),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[OpSample]:
        yield OpSample(cls(), (draw(rng, 2, 3, 4), np.abs(draw(rng, 2, 3, 4)) + np.float32(0.5)))
        yield OpSample(cls(clip=(0.0, 1.0)), (draw(rng, 1, 3, 4, 5), draw(rng, 3, 1, 1, mean=4.0)), (1,))
        yield OpSample(cls(), (np.array(1.0, np.float32), draw(rng, 9, mean=-5.0)), (0,))
