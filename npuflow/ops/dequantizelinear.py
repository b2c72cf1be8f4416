"""The boundary from codes to float values: float32(scale * (q - zero point))."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from npuflow.hw.target import Numerics
from npuflow.ir.codes import decode
from npuflow.ir.op import OPS, OpContext
from npuflow.ir.types import Array, IntArray, QuantType
from npuflow.ops._boundary import BoundaryOp


@OPS.entry
@dataclass(frozen=True)
class DequantizeLinear(BoundaryOp):
    onnx: ClassVar[str] = "DequantizeLinear"
    makes: ClassVar[Literal["", "codes", "floats"]] = "floats"

    def quant_type(self, site: OpContext) -> QuantType:
        return site.quant(0)

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | None], numerics: Numerics
    ) -> tuple[Array, ...]:
        """Codes in, floats out: the one operator whose result is no integer."""
        assert inputs[0] is not None
        return (decode(inputs[0], site.quant(0)),)
