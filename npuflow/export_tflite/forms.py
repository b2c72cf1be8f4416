"""Which TFLite operators stand for an operator: functions by the name of the ONNX operator that it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuflow.export_tflite.builder import LiteBuilder
from npuflow.ir.op import OnnxCall, OpContext
from npuflow.ir.types import Array


@dataclass(frozen=True)
class LiteLayer:
    """A node with its ONNX form: attributes, and constants by position."""

    site: OpContext
    call: OnnxCall

    @property
    def x(self) -> str:
        return self.site.node.inputs[0]

    @property
    def y(self) -> str:
        return self.site.node.outputs[0]

    def get(self, name: str, default: Any = None) -> Any:
        found = self.call.attributes.get(name)
        return default if found is None else found

    def constant(self, position: int) -> Array | None:
        """An operand that the ONNX form has as a constant."""
        held = self.call.inputs[position] if self.call.inputs and position < len(self.call.inputs) else None
        return None if isinstance(held, int) else held


Convert = Callable[[LiteBuilder, LiteLayer], None]
FORMS: dict[str, Convert] = {}


def form(*names: str) -> Callable[[Convert], Convert]:
    def add(function: Convert) -> Convert:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return add
