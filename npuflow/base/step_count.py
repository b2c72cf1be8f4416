"""How many steps a layer has behind layers with strides: of graphs, and of programs, which know no graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepCount:
    """How many steps there are behind layers with strides: (steps + `more`) // `stride` of them. So it is
    behind one window, floor((steps + border - kernel) / stride) + 1, and behind one after the other."""

    stride: int = 1
    more: int = 0

    def of(self, steps: int) -> int:
        return (steps + self.more) // self.stride

    def behind(self, stride: int, more: int) -> StepCount:
        """Behind a further layer, which makes (steps + `more`) // `stride` of the steps that there are."""
        return StepCount(self.stride * stride, self.more + self.stride * more)

    def reached(self, beyond: int) -> int:
        """How many steps of the length beyond its last one are needed for so many of these beyond theirs."""
        return self.more + self.stride * (beyond - 1) + 1


EACH = StepCount()                        # as many as a run has
