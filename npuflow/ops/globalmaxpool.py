"""Largest element of every channel over its image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from npuflow.ir.op import OPS
from npuflow.ops._reduction import GlobalReduction


@OPS.entry
@dataclass(frozen=True)
class GlobalMaxPool(GlobalReduction):
    onnx: ClassVar[str] = "GlobalMaxPool"
    kind: ClassVar[Literal["mean", "sum", "max"]] = "max"
    shares_scale: ClassVar[bool] = True
    picks: ClassVar[bool] = True
