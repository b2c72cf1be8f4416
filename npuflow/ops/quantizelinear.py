"""The boundary from float values to codes, or to a narrower float type.
Codes are round(x / scale) to even, plus zero point, saturated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from npuflow.hw.rows import check_rows
from npuflow.hw.target import Numerics
from npuflow.ir.codes import encode
from npuflow.ir.op import OPS, OpContext
from npuflow.ir.types import Array, IntArray, QuantType, WholeNumbers
from npuflow.ops._boundary import BoundaryOp


@OPS.entry
@dataclass(frozen=True)
class QuantizeLinear(BoundaryOp):
    """`table_rows`: of the table that the numbers are indices into; others are an error (0: any numbers).
    `parts`: where there are several tables, see `WholeNumbers`."""

    table_rows: int = 0
    parts: tuple[int, ...] = ()
    onnx: ClassVar[str] = "QuantizeLinear"
    makes: ClassVar[Literal["", "codes", "floats"]] = "codes"

    def quant_type(self, site: OpContext) -> QuantType:
        return site.out_quant

    def whole_numbers(self, site: OpContext) -> Mapping[str, WholeNumbers]:
        rows = self.table_rows
        return {site.node.inputs[0]: WholeNumbers(rows, True, self.parts)} if rows else {}

    def integer(
        self, site: OpContext, inputs: Sequence[IntArray | Array | None], numerics: Numerics
    ) -> tuple[IntArray, ...]:
        assert inputs[0] is not None
        check_rows(inputs[0], self.table_rows, site.node.inputs[0], self.parts)
        return (encode(inputs[0], site.out_quant),)
