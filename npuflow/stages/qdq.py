"""The quantised network as QDQ ONNX, for any ONNX runtime and for eyes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import log, stage
from npuflow.onnx.external import external_bytes, read_model, with_external
from npuflow.onnx.fed import FedModel
from npuflow.run.qdq import QdqModel, to_qdq
from npuflow.stages.quantize import Quantized

FILE = "model.qdq.onnx"
DATA = "model.qdq.onnx.data"


@dataclass(frozen=True)
class Qdq(Artifact):
    """The model and what the format could not say. Of a network whose weights are fed to sessions large
    tensors are in a file beside it."""

    exported: QdqModel

    def save(self, folder: Writer) -> None:
        model = self.exported.model
        if isinstance(model, FedModel):
            folder.bytes(FILE, with_external(model, DATA))
            with folder.stream(DATA) as sink:
                for part in external_bytes(model):
                    sink.write(part)
        else:
            folder.bytes(FILE, model)
        folder.json("notes", list(self.exported.notes))

    @classmethod
    def load(cls, folder: Reader) -> Self:
        notes = tuple(folder.json("notes"))
        if DATA not in folder.names():
            return cls(QdqModel(folder.bytes(FILE), notes))
        return cls(QdqModel(read_model(folder.path(FILE), folder.path(DATA).parent), notes))

    def products(self) -> dict[str, str]:
        return {"qdq": FILE, "qdq_data": DATA} if isinstance(self.exported.model, FedModel) else {"qdq": FILE}

    def summary(self) -> dict[str, Any]:
        model = self.exported.model
        return {"bytes": model.nbytes if isinstance(model, FedModel) else len(model)}


@stage(minor=True)
def qdq(quantized: Quantized) -> Qdq:
    """Float operators between QuantizeLinear and DequantizeLinear, value ids kept."""
    exported = to_qdq(quantized.graph, quantized.pixels)
    for note in exported.notes:
        log(note)
    return Qdq(exported)
