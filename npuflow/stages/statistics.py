"""Statistics of every needed tensor over all samples: each sample observed by
itself, then added up in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Annotated, Any, Self

from npuflow.base.errors import DataError
from npuflow.base.tables import Config, Fault, Unkeyed
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.refs import parts
from npuflow.flow.stage import Items, Whole, log, pair, part, shown, size, stage
from npuflow.ir.types import Array
from npuflow.stages.fit import FitSample
from npuflow.stages.segments import ReadySegment
from npuflow.statistics import segments as cutting
from npuflow.statistics import statistics as merging
from npuflow.statistics import walk
from npuflow.statistics.observe import Observation
from npuflow.tune.rounding.config import needless

_FIELDS = ("lo", "hi", "tails", "counts", "offsets", "groups", "cells", "large")


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
            folder.arrays("observation", {field: getattr(self.content, field) for field in _FIELDS})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about = folder.json("about")
        names = tuple(about["names"])
        if about["broken"]:
            return cls(None, names, about["broken"])
        return cls(Observation(names, **folder.arrays("observation")), names, "", about["noise"])

    def summary(self) -> dict[str, Any]:
        return {"broken": self.broken} if self.broken else {}


@dataclass(frozen=True)
class Watch(Config, table="statistics"):
    """How the float network is run for its statistics."""

    max_memory: Annotated[str, Unkeyed()] = ""
    """The most that the network's weights and activations may take of a worker's memory ("2GB"); empty: no
    bound. Segments of the network then run in turns, with the same result."""

    def check(self) -> Iterator[Fault]:
        try:
            self.room  # noqa: B018
        except ValueError as fault:
            yield Fault("max_memory", str(fault), code="NF-RECIPE-024")

    @property
    def room(self) -> int | None:
        return size(self.max_memory) if self.max_memory else None


@dataclass(frozen=True)
class Shard(
    Artifact, spread=("content",), about=("names", "samples", "broken", "noise"),
    statistics=("lo", "hi", "tails", "totals", "offsets", "keys", "counts"),
):
    """Merged statistics; which samples were left out, and why; whether any sample was random data."""

    content: merging.ObservedStatistics
    broken: tuple[tuple[str, str], ...] = ()
    noise: bool = False

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {"samples": len(self.content.samples), "tensors": len(self.content.names)}
        if self.broken:
            found["left_out"] = len(self.broken)
        if self.noise:
            found["data"] = "RANDOM"
        return found

    @classmethod
    def total(cls, shards: Iterable[Shard]) -> Self:
        """The same tensors over the samples of all shards."""
        held = list(shards)
        broken = tuple(pair for one in held for pair in one.broken)
        return cls(merging.added(one.content for one in held), broken, any(one.noise for one in held))


@dataclass(frozen=True)
class Statistics(Shard):
    """The statistics that thresholds are chosen from."""


@part(cpu="native", memory="500MB", batch=4)
def shard(observed: Items[Observed]) -> Shard:
    """Add up what was observed in one segment of the network, in sample order."""
    broken: list[tuple[str, str]] = []
    found: list[tuple[str, Observation]] = []
    names: tuple[str, ...] = ()
    noise = False
    for item, one in observed.items():
        names, sample = one.names, parts(item)[1]
        if one.content is None:
            broken.append((sample, one.broken))
        else:
            noise = noise or one.noise
            found.append((sample, one.content))
    return Shard(merging.empty(names).plus(found), tuple(broken), noise)


@part(cpu="native", memory="1GB", batch=1)
def region(shards: Items[Shard]) -> Shard:
    """Add up shards, in sample order: the statistics of some thousand samples."""
    return Shard.total(shards.values())


@part(cpu="native")
def total(regions: Items[Shard]) -> Statistics:
    """Add up regions in sample order, and put the segments side by side."""
    whole = [
        Shard.total(regions[name] for name in names)
        for _, names in groupby(regions, lambda name: parts(name)[0])
    ]
    if not whole or not whole[0].content.samples:
        broken = whole[0].broken if whole else ()
        raise DataError(
            "no sample could be read",
            because=": ".join(broken[0]) if broken else "there are no samples", code="NF-DATA-009",
        )
    for item, reason in whole[0].broken:
        log(f"left out {item}: {reason}")
    if whole[0].noise:
        log("RANDOM DATA: thresholds from it mean nothing for real inputs")
    return Statistics(merging.beside([one.content for one in whole]), whole[0].broken, whole[0].noise)


@stage(
    over="fit",
    by="segments",
    cpu="native",
    memory="1GB",
    batch=32,
    floats=True,
    merge=(shard, region, total),
    lighter='[statistics] max_memory = "1GB"',
    unless=needless,
)
def statistics(
    fit: Items[FitSample], segments: Annotated[Items[ReadySegment], Whole()], watch: Watch
) -> Iterator[tuple[str, Observed]]:
    """Run the float model on each sample in onnxruntime, one thread, and count what passes."""
    asked = {name: segments[name].content for name in segments.asked}
    wanted = {name for one in asked.values() for name in one.above}
    above = {
        name: asked[name] if name in asked else segments[name].content
        for name in segments
        if name in {*asked, *wanted}
    }
    noise: dict[str, bool] = {}
    broken: dict[str, str] = {}

    def feed(item: str) -> dict[str, Array] | None:
        sample = fit[item].content
        if sample.broken:
            broken[item] = sample.broken
            return None
        noise[item] = sample.noise is not None
        return sample.feed(next(iter(above.values())).inputs)

    _report(above, watch.room)
    for name, item, one in walk.observed(
        above, segments.asked, {item: partial(feed, item) for item in fit}, watch.room
    ):
        yield pair(name, item), Observed(one, one.names, "", noise[item])
    for item, why in broken.items():
        for name, segment in asked.items():
            yield pair(name, item), Observed(None, segment.names, why)


def _report(segments: Mapping[str, cutting.ModelSegment], room: int | None) -> None:
    if room is None:
        return
    for names in walk.groups(segments, room):
        need = walk.footprint([segments[name] for name in names])
        over = "" if need <= room else f", more than {shown(room)}, and cannot be cut further"
        log(f"segments {names[0]} to {names[-1]} take {shown(need)}{over}")
