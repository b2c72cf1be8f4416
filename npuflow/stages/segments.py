"""The float network in consecutive segments, each a model of its own whose digest
covers all that is above it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

from npuflow.base.wording import counted
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import log, stage
from npuflow.ir.types import TensorType
from npuflow.onnx.fed import FedModel, SessionModel
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.statistics import segments as cutting
from npuflow.statistics.observe import needed_values

FILE = "segment.onnx"


@dataclass(frozen=True)
class ReadySegment(Artifact):
    """A segment, ready to run."""

    content: cutting.ModelSegment

    def save(self, folder: Writer) -> None:
        one = self.content
        about: dict[str, Any] = {
            "inputs": {name: asdict(kind) for name, kind in one.inputs.items()},
            "fed": list(one.fed),
            "made": list(one.made),
            "names": list(one.names),
            "above": list(one.above),
            "cone": one.cone,
            "weights": one.weights,
            "activations": one.activations,
        }
        if isinstance(one.model, FedModel):
            folder.bytes(FILE, one.model.proto)
            about["constants"] = dict(one.model.digests)
            folder.arrays("constants", one.model.constants, True)
        else:
            folder.bytes(FILE, one.model)
        folder.json("about", about)

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about = folder.json("about")
        inputs = {
            name: TensorType(tuple(kind["shape"]), kind["dtype"]) for name, kind in about["inputs"].items()
        }
        fed, made, names, above = (tuple(about[key]) for key in ("fed", "made", "names", "above"))
        proto = folder.bytes(FILE)
        model: SessionModel = proto
        if "constants" in about:
            model = FedModel(proto, folder.arrays("constants"), about["constants"])
        return cls(
            cutting.ModelSegment(
                model, inputs, fed, made, names, above, about["cone"], about["weights"], about["activations"]
            )
        )

    def summary(self) -> dict[str, Any]:
        model = self.content.model
        size = model.nbytes if isinstance(model, FedModel) else len(model)
        return {"tensors": len(self.content.names), "model_bytes": size}


@stage(quick=True, minor=True)
def segments(
    graph: Parsed, placement: Placement
) -> Iterator[tuple[str, ReadySegment]]:
    """Cut the graph, from its inputs on, wherever enough tensors have been counted."""
    names = needed_values(graph.graph, placement.placed.on_npu)
    found = cutting.segments(graph.graph, names)
    for name, one in found.items():
        log(
            f"{name}: {counted(len(one.names), 'tensor')}, {one.names[0]} to {one.names[-1]}"
            if one.names
            else f"{name}: no tensors"
        )
        yield name, ReadySegment(one)
