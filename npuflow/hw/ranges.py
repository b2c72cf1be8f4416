"""Ranges of the numbers of a target's tables, and the float types that they name."""

from __future__ import annotations

from typing import Annotated, Literal

from npuflow.base.tables import Range
from npuflow.hw.elements import LEAST, WIDEST

Positive = Annotated[int, Range(1, 1 << 20)]
Cycles = Annotated[int, Range(0, 1 << 20)]
Bytes = Annotated[int, Range(1, 1 << 32)]
Bits = Annotated[int, Range(LEAST, WIDEST)]    # of a quantised tensor
Limit = Annotated[int, Range(0, None)]
Rate = Annotated[float, Range(0.001, 1e6)]
BlockName = Literal[
    "bfp16", "bfp16_16", "mx9", "mx6", "mxint8", "mxfp8", "mxfp8_e5m2", "mxfp4", "mxfp6", "mxfp6_e3m2",
]
FloatName = Literal["float16", "bfloat16", BlockName]
