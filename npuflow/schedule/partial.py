"""The part of a network that a run needs, where rows of caches follow an index."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from npuflow.ir.space import Interval
from npuflow.ir.views import Views


@dataclass(frozen=True)
class PartialRun:
    """What of a network a run needs. `axes`: of nodes that run over the start of some axes only, how far, by
    axis; `rows`: of values of which a run makes some rows only, the dimension and these rows."""

    axes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, Interval]] = field(default_factory=dict)


WHOLE = PartialRun()
ROWS = 32                                 # by which the part of a cache grows that is read, at most
TURNS = 4                                 # how often it grows, at least


@dataclass(frozen=True)
class ValidPart:
    """Rows of caches that runs attend to: of `rows` the first, as many as the input `index` says and `new`
    more. `axes`: by node, the one along which it needs no others; `caches`: states that grow by the new rows:
    what they were, and along which dimension; `ports`: the same of the network's inputs and outputs; `added`:
    values of which only the new rows are needed, and their dimension."""

    index: str
    rows: int
    new: int
    axes: Mapping[int, str]
    caches: Mapping[str, tuple[str, int]]
    ports: Mapping[str, int]
    added: Mapping[str, int]

    @property
    def block(self) -> int:
        """Rows by which the part grows."""
        found = ROWS
        while self.rows % found or self.rows // found < min(TURNS, self.rows):
            found //= 2
        return found

    @property
    def turns(self) -> int:
        return self.rows // self.block

    @property
    def most(self) -> int:
        """The largest index."""
        return self.rows - self.new

    @property
    def first(self) -> int:
        """The turn at index 0."""
        return -(-self.new // self.block) - 1

    @property
    def samples(self) -> list[tuple[int, int]]:
        """Turns and indices whose commands tell all others': one, the next turn, the next index, and more."""
        begin, last = self.first + 1, self.turns - 1
        middle = (begin + last) // 2
        inside = min(middle * self.block, self.most)
        more = [(self.first, 0), (middle, inside), (last - 1, last * self.block - self.new)]
        return [(begin, 0), (begin + 1, 0), (begin, 1), *more]

    def at(self, turn: int, index: int) -> PartialRun:
        """What a run needs."""
        axes = {node: {axis: self.block * (turn + 1)} for node, axis in self.axes.items()}
        return PartialRun(axes, {v: (dim, (index, index + self.new)) for v, dim in self.added.items()})

    def homes(self, views: Views, living: Set[str]) -> dict[str, str]:
        """Caches that lie where they were: rows that a run does not make are those from before."""
        pairs = ((made, held) for made, (held, _) in self.caches.items() if {made, held} <= living)
        return {a: b for a, b in pairs if views.root(a) == (a, 0) and views.root(b) == (b, 0)}
