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


Numbers = tuple[int, ...]
"""What commands follow: the rows that are read in turns, and the index; then the row of rings. Each pair or
number where there are such caches."""


@dataclass(frozen=True)
class RingRows:
    """Caches of `rows` rows of which a run replaces one: that of the index modulo `rows`. `caches` and
    `added` as those of `ValidPart`."""

    rows: int
    caches: Mapping[str, tuple[str, int]]
    added: Mapping[str, int]


@dataclass(frozen=True)
class ValidPart:
    """Rows of caches that runs attend to: of `rows` the first, as many as the input `index` says and `new`
    more. `axes`: by node, the one along which it needs no others; `caches`: states that grow by the new rows:
    what they were, and along which dimension; `ports`: the same of the network's inputs and outputs; `added`:
    values of which only the new rows are needed, and their dimension. `rings`: the same of caches that are
    rings, into which a run puts one row."""

    index: str
    rows: int
    new: int
    axes: Mapping[int, str]
    caches: Mapping[str, tuple[str, int]]
    ports: Mapping[str, int]
    added: Mapping[str, int]
    rings: RingRows | None = None

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
    def samples(self) -> list[Numbers]:
        """Numbers whose commands tell all others': some, these with the next one of each kind, and more."""
        growing, rows = list[Numbers](), 0 if self.rings is None else self.rings.rows
        if self.caches:
            begin, last = self.first + 1, self.turns - 1
            middle = (begin + last) // 2
            inside = min(middle * self.block, self.most)
            more = [(self.first, 0), (middle, inside), (last - 1, last * self.block - self.new)]
            growing = [(begin, 0), (begin + 1, 0), (begin, 1), *more]
        if not rows:
            return growing
        first = growing[:1] or [()]
        own = [(*one, row) for one in first for row in (1, rows // 2, rows - 1)]
        return [(*one, 0) for one in (*first, *growing[1:3])] + own + [(*one, 0) for one in growing[3:]]

    @property
    def last(self) -> Numbers:
        """The numbers of the commands that a program has where nobody says which: those of the most rows."""
        growing = (self.turns - 1, self.most) if self.caches else ()
        return growing if self.rings is None else (*growing, self.rings.rows - 1)

    def at(self, numbers: Numbers) -> PartialRun:
        """What a run needs."""
        axes, rows = dict[int, dict[str, int]](), dict[str, tuple[int, Interval]]()
        if self.caches:
            turn, index = numbers[:2]
            axes = {node: {axis: self.block * (turn + 1)} for node, axis in self.axes.items()}
            rows = {v: (dim, (index, index + self.new)) for v, dim in self.added.items()}
        if self.rings is not None:
            rows |= {v: (dim, (numbers[-1], numbers[-1] + 1)) for v, dim in self.rings.added.items()}
        return PartialRun(axes, rows)

    @property
    def states(self) -> Mapping[str, tuple[str, int]]:
        """Caches of both kinds."""
        return self.caches if self.rings is None else {**self.caches, **self.rings.caches}

    @property
    def partial(self) -> Set[str]:
        """Values of which a run makes some rows only."""
        return self.added.keys() | (set() if self.rings is None else self.rings.added.keys())

    def homes(self, views: Views, living: Set[str]) -> dict[str, str]:
        """Caches that lie where they were: rows that a run does not make are those from before."""
        pairs = ((made, held) for made, (held, _) in self.states.items() if {made, held} <= living)
        return {a: b for a, b in pairs if views.root(a) == (a, 0) and views.root(b) == (b, 0)}
