"""Mean of every channel over its image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from npuflow.ir.op import OPS
from npuflow.ops._reduction import GlobalReduction


@OPS.entry
@dataclass(frozen=True)
class GlobalAveragePool(GlobalReduction):
    onnx: ClassVar[str] = "GlobalAveragePool"
    kind: ClassVar[Literal["mean", "sum", "max"]] = "mean"
