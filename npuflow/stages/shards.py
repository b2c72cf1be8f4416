"""Statistics of up to 64 neighbouring samples in one segment of the network: the first merge of the tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from npuflow.engine.calibrate import statistics as merging
from npuflow.engine.calibrate.observe import Observation
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.refs import parts
from npuflow.flow.stage import Groups, stage
from npuflow.stages.observed import Observed


@dataclass(frozen=True)
class Shard(Artifact):
    """Merged statistics; which samples were left out, and why; whether any sample was random data."""

    content: merging.Statistics
    broken: tuple[tuple[str, str], ...] = ()
    noise: bool = False

    def save(self, folder: Writer) -> None:
        one = self.content
        about = {
            "names": list(one.names), "samples": list(one.samples),
            "broken": [list(pair) for pair in self.broken], "noise": self.noise,
        }  # fmt: skip
        folder.json("about", about)
        cells = {"offsets": one.offsets, "keys": one.keys, "counts": one.counts}
        folder.arrays("statistics", {"lo": one.lo, "hi": one.hi, "tails": one.tails, "totals": one.totals, **cells})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        about, a = folder.json("about"), folder.arrays("statistics")
        content = merging.Statistics(
            tuple(about["names"]), tuple(about["samples"]),
            a["lo"], a["hi"], a["tails"], a["totals"], a["offsets"], a["keys"], a["counts"],
        )  # fmt: skip
        return cls(content, tuple((name, why) for name, why in about["broken"]), about["noise"])

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


@stage(over="observed", cpu="native", memory="500MB", batch=4)
def shards(observed: Groups[Observed]) -> Iterator[tuple[str, Shard]]:
    """Add up what was observed, in sample order."""
    for group, members in observed.items():
        broken: list[tuple[str, str]] = []
        found: list[tuple[str, Observation]] = []
        names: tuple[str, ...] = ()
        noise = False
        for item, one in members.items():
            names, sample = one.names, parts(item)[1]
            if one.content is None:
                broken.append((sample, one.broken))
            else:
                noise = noise or one.noise
                found.append((sample, one.content))
        yield group, Shard(merging.empty(names).plus(found), tuple(broken), noise)
