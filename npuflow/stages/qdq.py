"""The quantised network as QDQ ONNX, for any ONNX runtime and for eyes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from npuflow.engine.qdq import QdqModel, to_qdq
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import log, stage
from npuflow.stages.quantize import Quantized

FILE = "model.qdq.onnx"


@dataclass(frozen=True)
class Qdq(Artifact):
    """ONNX bytes and what the format could not say."""

    exported: QdqModel

    def save(self, folder: Writer) -> None:
        folder.bytes(FILE, self.exported.model)
        folder.json("notes", list(self.exported.notes))

    @classmethod
    def load(cls, folder: Reader) -> Self:
        return cls(QdqModel(folder.bytes(FILE), tuple(folder.json("notes"))))

    def products(self) -> dict[str, str]:
        return {"qdq": FILE}

    def summary(self) -> dict[str, Any]:
        return {"bytes": len(self.exported.model)}


@stage(minor=True)
def qdq(quantized: Quantized) -> Qdq:
    """Float operators between QuantizeLinear and DequantizeLinear, value ids kept."""
    exported = to_qdq(quantized.graph, quantized.pixels)
    for note in exported.notes:
        log(note)
    return Qdq(exported)
