"""Fusion groups: parts in turn, on whole tensors or stripes, with values in local memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from npuflow.schedule.choice import Costs, TileChoice

Cut = tuple[int, int]                     # a dimension of the results, and into how many pieces it is cut


@dataclass(frozen=True)
class FusedOp:
    """A node with the ones that follow it point by point, tiled as one. `choice`
    None: the node only moves data."""

    nodes: tuple[int, ...]
    choice: TileChoice | None
    # where the parts of a group follow each other; None: see the group's
    costs: Costs | None = None


@dataclass(frozen=True)
class FusionGroup:
    """Parts that run together.

    `strips`: cuts of the results, outermost first; all parts run for one strip, then for the next. `cores`:
    the cut of the results over cores, made before. `held`: values with buffers in local memory while the
    group runs: 1 (the whole of what a core needs) or 2 (the strip's part, and the strip's before, where rows
    move on or external memory is met: `Frame.slots`).
    """

    parts: tuple[FusedOp, ...]
    costs: Costs
    strips: tuple[Cut, ...] = ()
    cores: Cut = (0, 1)
    held: tuple[tuple[str, int], ...] = ()

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        return tuple(n for p in self.parts for n in p.nodes)

    @property
    def choice(self) -> TileChoice | None:
        """The tiling of a group of one part."""
        return self.parts[0].choice if len(self.parts) == 1 else None

    @property
    def pieces(self) -> tuple[Costs, ...]:
        """What follows one another: the parts, or the group where they take turns."""
        own = [p.costs for p in self.parts if p.costs is not None]
        return tuple(own) if len(own) == len(self.parts) and not self.strips else (self.costs,)

    @property
    def is_split(self) -> bool:
        return self.cores[1] > 1 or any(n > 1 for _, n in self.strips)
