"""The lowest and highest value of every channel over all samples, where [channels] asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, stage
from npuflow.stages.fit import FitSample
from npuflow.stages.parse import Parsed
from npuflow.stages.placement import Placement
from npuflow.statistics.channels import ChannelsTable, Extrema, extrema, merged, watched


@dataclass(frozen=True)
class ChannelExtrema(Artifact):
    """[2, channels] by value id; nothing of a sample that could not be read."""

    content: Extrema

    def save(self, folder: Writer) -> None:
        folder.json("names", list(self.content))
        folder.arrays("extrema", {str(i): array for i, array in enumerate(self.content.values())})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        held = folder.arrays("extrema")
        return cls({name: held[str(i)] for i, name in enumerate(folder.json("names"))})


class ChannelRanges(ChannelExtrema):
    """[2, channels] by value id."""

    def summary(self) -> dict[str, Any]:
        return {"tensors": len(self.content), "channels": sum(a.shape[1] for a in self.content.values())}


def hull(found: Items[ChannelExtrema]) -> ChannelRanges:
    """The hull of all samples'."""
    return ChannelRanges(merged(one.content for one in found.values()))


@stage(over="fit", when="channels", cpu="native", memory="1GB", batch=32, floats=True, merge=hull)
def channels(
    fit: Items[FitSample],
    graph: Parsed,
    placement: Placement,
    table: ChannelsTable,
) -> Iterator[tuple[str, ChannelExtrema]]:
    """Run the float model, which finds the extrema itself."""
    source = graph.graph
    types = {name: source.type(name) for name in source.inputs}
    names = watched(source, placement.placed.on_npu, table)
    whole = {item: one.content for item, one in fit.items() if not one.content.broken}
    found = extrema(source, names, (content.feed(types) for content in whole.values()))
    for item in fit:
        yield item, ChannelExtrema(next(found) if item in whole else {})
