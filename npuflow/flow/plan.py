"""The wired plan: its steps in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from npuflow.flow.keys import Step


@dataclass
class Plan:
    """Steps in topological order."""

    steps: tuple[Step, ...]
    recipe: Any
    off: dict[str, str] = field(default_factory=dict)
    """Stages that are not run, and why."""

    def forced(self, names: Collection[str]) -> frozenset[str]:
        """The steps that are meant by names of stages and of parts: a stage means all of its parts too."""
        return frozenset(step.name for step in self.steps if step.name in names or step.whole in names)

    def share_listings(self, others: Sequence[Plan]) -> None:
        """Take over what equal steps of other plans have listed: their sources need not be listed again."""
        for step in self.steps:
            for other in others:
                same = other._index.get(step.name, step)
                if same.listing_configs == step.listing_configs and "listing" in vars(same):
                    step.listing = same.listing
                    break

    @cached_property
    def _index(self) -> dict[str, Step]:
        return {step.name: step for step in self.steps}

    @cached_property
    def urgency(self) -> Mapping[str, int]:
        """By step what it is to run before: the longer the chain of steps is that wait for it, one after the
        other, the more urgent; of two with equal chains the one that the log shows."""
        chains = dict.fromkeys(self._index, 0)
        for step in reversed(self.steps):
            for place in step.inputs.values():
                if place.step is not None:
                    chains[place.step] = max(chains[place.step], chains[step.name] + 1)
        return {step.name: 2 * chains[step.name] + (not step.stage.minor) for step in self.steps}

    def __getitem__(self, name: str) -> Step:
        return self._index[name]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)
