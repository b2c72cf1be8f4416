"""Largest element over the given axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from npuflow.ir.op import OPS
from npuflow.ops._reduction import AxesReduction


@OPS.entry
@dataclass(frozen=True)
class ReduceMax(AxesReduction):
    onnx: ClassVar[str] = "ReduceMax"
    kind: ClassVar[Literal["mean", "sum", "max"]] = "max"
    shares_scale: ClassVar[bool] = True
    picks: ClassVar[bool] = True
