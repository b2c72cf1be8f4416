"""The cost of every group that starts at a span: the best number of stripes, split
over cores, and tilings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from npuflow.engine.schedule.machine import Machine
from npuflow.engine.search import spans as spanning
from npuflow.engine.search.packed import packed, unpacked
from npuflow.flow.artifact import Artifact, Reader, Writer
from npuflow.flow.stage import Items, stage
from npuflow.hw.target import Compute, Dma, Memory, Numerics
from npuflow.stages.spans import Span


@dataclass(frozen=True)
class Window(Artifact):
    """Costs of a span's groups, under its key."""

    key: str
    content: spanning.Window

    def save(self, folder: Writer) -> None:
        folder.json("window", {"key": self.key, "groups": packed(self.content)})

    @classmethod
    def load(cls, folder: Reader) -> Self:
        found = folder.json("window")
        return cls(found["key"], unpacked(spanning.Window, found["groups"]))

    def summary(self) -> dict[str, Any]:
        return {"groups": len(self.content.ways), "tried": self.content.asked}


@stage(over="spans", batch=16, minor=True)
def windows(
    spans: Items[Span],
    compute: Compute, memory: Memory, dma: Dma, numerics: Numerics,
) -> Iterator[tuple[str, Window]]:
    """Cost the groups of a span; what spans have in common is costed once a batch."""
    shared = spanning.Shared(numerics)
    for name, span in spans.items():
        machine = Machine(compute, memory, dma, span.content.inside)
        yield name, Window(span.content.key, shared.window(span.content, machine))
