"""The host's side of every run: parts one after the other, each value dropped after its last use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")                          # an array of one sample, or one of each sample


@dataclass(frozen=True)
class RunPart(Generic[T]):
    """A part of a network: the values that it reads, and what makes others of them, by name."""

    reads: tuple[str, ...]
    run: Callable[[Mapping[str, T]], Mapping[str, T]]


def driven(
    parts: Sequence[RunPart[T]], inputs: Mapping[str, T], wanted: Callable[[str], bool]
) -> dict[str, T]:
    """The parts run in order; of the inputs and of what parts make, what is wanted, in the order made."""
    last = {name: i for i, part in enumerate(parts) for name in part.reads}
    values = dict(inputs)
    kept = {name: one for name, one in values.items() if wanted(name)}
    for i, part in enumerate(parts):
        made = part.run(values)
        values.update(made)
        kept.update({name: one for name, one in made.items() if wanted(name)})
        for name in [name for name in values if last.get(name, -1) <= i]:
            del values[name]
    return kept
