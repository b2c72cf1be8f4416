"""Lengths: inputs that say how many steps of a sequence a run has, in a graph of the most steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

from npuflow.base.step_count import EACH, StepCount

_NAME = re.compile(r"(.+)<=(\d+)")


@dataclass(frozen=True)
class Length:
    """An input that says how many steps a run has, from `least` to `most`. The graph is that of the most:
    what a port has behind the last step is filling, along its axis in `axes` (by names of ports). `counts`:
    of ports that have another number of steps; `inner`: of layers behind strides that end there."""

    name: str
    least: int
    most: int
    axes: tuple[tuple[str, int], ...] = ()
    counts: tuple[tuple[str, StepCount], ...] = ()
    inner: tuple[StepCount, ...] = ()

    @property
    def dim(self) -> str:
        """The dimension's name in the model."""
        return self.name.rpartition("<=")[0]

    def steps_like(self, steps: int) -> StepCount | None:
        """How many steps there are of what has so many in the most; None: it has no steps. At least as many
        where that may be several numbers."""
        found = [one for one in (EACH, *self.inner) if one.of(self.most) == steps]
        if len(found) < 2:
            return found[0] if found else None
        stride, every = max(one.stride for one in found), range(self.least, self.most + 1)
        return StepCount(stride, max(stride * one.of(n) - n for one in found for n in every))


def length_name(dim: str, most: int) -> str:
    """What the input is called that says how long a dimension is: it tells the most, so that whoever feeds
    inputs by name and type can fill it in."""
    return f"{dim}<={most}"


def most_of(name: str) -> int:
    """The most steps that an input of this name says; 0 where it is another input."""
    found = _NAME.fullmatch(name)
    return int(found[2]) if found else 0
