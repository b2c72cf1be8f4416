"""Statistics of every needed tensor over all samples: the merge of what was observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from npuflow.base.errors import DataError
from npuflow.engine.calibrate import statistics as merging
from npuflow.engine.calibrate.observe import Observation
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, log, stage
from npuflow.stages.observed import Observed


@dataclass(frozen=True)
class Statistics(Artifact):
    """The merged statistics; which samples were left out, and why; whether any sample was random data."""

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
    def load(cls, folder: Reader) -> Statistics:
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


@stage(cpu="native")
def statistics(observed: Items[Observed]) -> Statistics:
    """Add up what was observed, in sample order."""
    broken: list[tuple[str, str]] = []
    noise = False

    def readable() -> Iterator[tuple[str, Observation]]:
        nonlocal noise
        for item, one in observed.items():
            if one.content is None:
                broken.append((item, one.broken))
            else:
                noise = noise or one.noise
                yield item, one.content

    total = merging.merged(readable())
    if total is None:
        why = broken[0] if broken else ("", "there are no samples")
        raise DataError("no sample could be read", because=f"{why[0]}: {why[1]}" if why[0] else why[1])
    for item, reason in broken:
        log(f"left out {item}: {reason}")
    if noise:
        log("RANDOM DATA: thresholds from it say nothing about the real inputs")
    return Statistics(total, tuple(broken), noise)
