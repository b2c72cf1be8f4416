"""Mean over the given axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from npuflow.ir.op import OPS, Algebra
from npuflow.ops._reduction import AxesReduction


@OPS.entry
@dataclass(frozen=True)
class ReduceMean(AxesReduction):
    onnx: ClassVar[str] = "ReduceMean"
    algebra: ClassVar[Algebra] = "mean"
    kind: ClassVar[Literal["mean", "sum", "max"]] = "mean"
