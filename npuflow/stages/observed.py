"""What the tensors of one segment of the network looked like in one sample, each such pair an artifact of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from npuflow.base.tables import Config, Fault, Unkeyed
from npuflow.engine.calibrate import segments as cutting
from npuflow.engine.calibrate import walk
from npuflow.engine.calibrate.observe import Observation
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, Whole, log, pair, shown, size, stage
from npuflow.ir.types import Array
from npuflow.stages.samples import Sample
from npuflow.stages.segments import Segment


@dataclass(frozen=True)
class Observed(Artifact):
    """One sample's observation in one segment; None and a reason for a sample that could not be read."""

    content: Observation | None
    names: tuple[str, ...]
    broken: str = ""
    noise: bool = False

    def save(self, folder: Writer) -> None:
        folder.json("about", {"names": list(self.names), "broken": self.broken, "noise": self.noise})
        if self.content is not None:
            folder.bytes("observation.bin", self.content.packed())

    @classmethod
    def load(cls, folder: Reader) -> Observed:
        about = folder.json("about")
        names = tuple(about["names"])
        if about["broken"]:
            return cls(None, names, about["broken"])
        return cls(Observation.unpacked(names, folder.bytes("observation.bin")), names, "", about["noise"])

    def summary(self) -> dict[str, Any]:
        return {"broken": self.broken} if self.broken else {}


@dataclass(frozen=True)
class Watch(Config, table="statistics"):
    """How the float network is run for its statistics."""

    max_memory: Annotated[str, Unkeyed()] = ""
    """What the network's weights and activations may take of a worker's memory ("2GB"); empty: no bound. Segments of the
    network then run in turns, with the same result."""

    def check(self) -> Iterator[Fault]:
        try:
            self.room  # noqa: B018
        except ValueError as fault:
            yield Fault("max_memory", str(fault), code="NF-RECIPE-024")

    @property
    def room(self) -> int | None:
        return size(self.max_memory) if self.max_memory else None


@stage(
    over="samples", by="segments", cpu="native", memory="1GB", batch=32, floats=True,
    lighter='[statistics] max_memory = "1GB"',
)
def observed(
    samples: Items[Sample], segments: Annotated[Items[Segment], Whole()], watch: Watch
) -> Iterator[tuple[str, Observed]]:
    """Run the float model on each sample in onnxruntime, one thread, and count what passes."""
    asked = {name: segments[name].content for name in segments.asked}
    wanted = {name for one in asked.values() for name in one.above}
    parts = {name: asked[name] if name in asked else segments[name].content for name in segments if name in {*asked, *wanted}}
    noise: dict[str, bool] = {}
    broken: dict[str, str] = {}

    def feed(item: str) -> dict[str, Array] | None:
        sample = samples[item].content
        if sample.broken:
            broken[item] = sample.broken
            return None
        noise[item] = sample.noise is not None
        return sample.feed(next(iter(parts.values())).inputs)

    _tell(parts, watch.room)
    for name, item, one in walk.observed(parts, segments.asked, {item: partial(feed, item) for item in samples}, watch.room):
        yield pair(name, item), Observed(one, one.names, "", noise[item])
    for item, why in broken.items():
        for name, part in asked.items():
            yield pair(name, item), Observed(None, part.names, why)


def _tell(parts: Mapping[str, cutting.Segment], room: int | None) -> None:
    if room is None:
        return
    for names in walk.groups(parts, room):
        need = walk.footprint([parts[name] for name in names])
        over = "" if need <= room else f", more than {shown(room)}, and cannot be cut further"
        log(f"segments {names[0]} to {names[-1]} take {shown(need)}{over}")
