"""Where a build's time went, by stage: the clock, the processor, memory, and what was in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npuflow.cli._columns import columns
from npuflow.cli._progress import duration

if TYPE_CHECKING:
    from npuflow.flow.events import Event


@dataclass
class StageCost:
    """Of one stage: steps that ran, cache hits, seconds of clock and processor in workers, and the peak
    memory of one worker in bytes."""

    ran: int = 0
    hit: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    memory: int = 0


@dataclass
class BuildProfile:
    """Sums the events of one build by stage. Parts of a stage ("statistics.items") count as the stage."""

    stages: dict[str, StageCost] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        from npuflow.flow.events import Spent, StepEvent

        if not isinstance(event, (Spent, StepEvent)):
            return
        one = self.stages.setdefault(event.stage.partition(".")[0], StageCost())
        if isinstance(event, Spent):
            one.seconds, one.processor = one.seconds + event.seconds, one.processor + event.processor
            one.memory = max(one.memory, event.memory)
        else:
            one.ran, one.hit = one.ran + (event.status == "ran"), one.hit + (event.status == "hit")

    def rows(self) -> list[dict[str, Any]]:
        """Stages that ran, the longest first."""
        found = [
            {
                "stage": name,
                "ran": one.ran,
                "hit": one.hit,
                "seconds": round(one.seconds, 6),
                "processor": round(one.processor, 6),
                "memory": one.memory,
            }
            for name, one in self.stages.items()
            if one.ran
        ]
        return sorted(found, key=lambda row: -row["seconds"])

    def text(self, seconds: float) -> Iterator[str]:
        """A table; `seconds`: what the whole build took by the clock."""
        from npuflow.flow.memory import shown

        rows = self.rows()
        if not rows:
            yield "nothing ran"
            return
        whole = sum(row["processor"] for row in rows)
        yield from columns([
            ("stage", "ran", "hit", "clock", "processor", "share", "memory"),
            *(
                (
                    row["stage"], str(row["ran"]), str(row["hit"]), duration(row["seconds"]),
                    duration(row["processor"]), f"{row['processor'] / max(whole, 1e-9):.0%}",
                    shown(row["memory"]),
                )
                for row in rows
            ),
        ])
        yield (
            f"{duration(seconds)} in all; {duration(whole)} of the processor in the threads of steps, the "
            "rest is starting workers, keys and waiting"
        )
