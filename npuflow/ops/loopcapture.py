"""Gives a value of the outside to every step of a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuflow.ir.op import OPS, LoopBorder
from npuflow.ops._loop import BorderOp


@OPS.entry
@dataclass(frozen=True)
class LoopCapture(BorderOp):
    border_of_loop: ClassVar[LoopBorder] = "capture"
