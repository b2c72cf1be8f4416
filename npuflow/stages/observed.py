"""What every needed tensor looked like in one sample, each sample an artifact of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from npuflow.engine.calibrate.observe import Observation, Observer, needed_values
from npuflow.engine.to_onnx import export_model
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, Uses, stage
from npuflow.ir.types import Array
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.stages.samples import Sample


@dataclass(frozen=True)
class Observed(Artifact):
    """One sample's observation; None and a reason for a sample that could not be read."""

    content: Observation | None
    names: tuple[str, ...]
    broken: str = ""
    noise: bool = False

    def save(self, folder: Writer) -> None:
        folder.json("about", {"names": list(self.names), "broken": self.broken, "noise": self.noise})
        if self.content is not None:
            one = self.content
            held: dict[str, Array] = {"lo": one.lo, "hi": one.hi, "tails": one.tails, "counts": one.counts}
            held.update(offsets=one.offsets, cells=one.blob)
            folder.arrays("observation", held)

    @classmethod
    def load(cls, folder: Reader) -> Observed:
        about = folder.json("about")
        names = tuple(about["names"])
        if about["broken"]:
            return cls(None, names, about["broken"])
        a = folder.arrays("observation")
        content = Observation(names, a["lo"], a["hi"], a["tails"], a["counts"], a["offsets"], a["cells"])
        return cls(content, names, "", about["noise"])

    def summary(self) -> dict[str, Any]:
        return {"broken": self.broken} if self.broken else {}


@stage(over="samples", cpu="native", memory="1GB", batch=32, floats=True)
def observed(
    samples: Items[Sample],
    graph: Annotated[Parsed, Uses("to_onnx", "role", "output_range")],
    placement: Placement,
) -> Iterator[tuple[str, Observed]]:
    """Run the float model on each sample in onnxruntime, one thread, and count what passes."""
    source = graph.graph
    names = needed_values(source, placement.placed.on_npu)
    types = {name: source.type(name) for name in source.inputs}
    observer: Observer | None = None
    for item, sample in samples.items():
        if sample.content.broken:
            yield item, Observed(None, names, sample.content.broken)
            continue
        if observer is None:
            observer = Observer(export_model(source, [n for n in names if n not in types]), types, names)
        yield item, Observed(observer.observe(sample.content.feed(types)), names, "", sample.content.noise is not None)
