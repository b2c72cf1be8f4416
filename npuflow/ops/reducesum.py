"""Sum over the given axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from npuflow.ir.op import OPS
from npuflow.ops._reduction import AxesReduction


@OPS.entry
@dataclass(frozen=True)
class ReduceSum(AxesReduction):
    onnx: ClassVar[str] = "ReduceSum"
    kind: ClassVar[Literal["mean", "sum", "max"]] = "sum"
