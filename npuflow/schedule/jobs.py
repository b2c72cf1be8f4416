"""The schedule of a plan as a value: jobs in program order and allocations of local memory.

`build.py` makes it in one walk over the plan; `time.py` finds when each job runs, the code generator
turns each into command words.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from npuflow.ir.moves import Move
from npuflow.ir.op import OpContext
from npuflow.ir.space import Box, Interval, Tile, elements
from npuflow.schedule.banks import Touched
from npuflow.schedule.geometry import Border, Member
from npuflow.schedule.joined import Joins, whole_place
from npuflow.schedule.model import Ref
from npuflow.schedule.moves import Piece
from npuflow.schedule.units import SlotUnit

NO_BOX: Box = ()


class Allocation:
    """Bytes of one core's local memory while one thing lies there: `low` to `high` may be used, `size` are.

    `laid`: the box of a value that lies there row after row (empty: packed bytes), in elements of `item`
    bytes. `replaces`: what lay in some of these bytes before.
    """

    __slots__ = ("high", "item", "laid", "low", "replaces", "size")

    def __init__(
        self, low: int, high: int, size: int, laid: Box, item: int, replaces: tuple[Allocation, ...]
    ) -> None:
        self.low, self.high, self.size = low, high, size
        self.laid, self.item, self.replaces = laid, item, replaces

    def touched(self, box: Box | None) -> Touched:
        """The bytes of a box of what lies here."""
        if box is None or len(box) != len(self.laid):
            return Touched(self.low, self.low + self.size, self.size)
        first = last = 0
        for (a, b), (low, high) in zip(box, self.laid, strict=True):
            first, last = first * (high - low) + a - low, last * (high - low) + b - 1 - low
        item = self.item
        return Touched(self.low + first * item, self.low + (last + 1) * item, elements(box) * item)


Place = tuple[Allocation, Box | None]     # an allocation, and which box of what lies there; None: all of it


class Outside(NamedTuple):
    """Bytes of external memory: whose they are, the value that is meant, its box (empty:
    all between), first and last."""

    owner: str
    value: str
    box: Box
    span: Interval


@dataclass(frozen=True)
class Places:
    """Where values lie in external memory: (owner, byte address) of each, and the
    moves that sharing bytes saves. `whole`: of parts of tensors whose loads wait for all bytes of these,
    these bytes: see `read_whole`."""

    of: Mapping[str, tuple[str, int]]
    saved: Collection[tuple[int, int]] = ()
    whole: Mapping[str, Interval] = field(default_factory=dict)

    def owner(self, value: str) -> str:
        """Of the bytes of a value, or of a border."""
        return self.of[value][0] if value in self.of else value


@dataclass(slots=True, eq=False)
class Run:
    """One run of a part over a window: its units, and by unit the boxes of every tile. `joins`: values that
    lie in the buffers of others."""

    member: Member
    units: Sequence[SlotUnit]
    boxes: Sequence[Sequence[tuple[Box, ...]]]
    joins: Joins

    def place(self, ref: Ref, box: Box) -> Box:
        """A box of a kept operand, as one of what lies in its buffer."""
        if not self.joins:
            return box
        place = whole_place(self.joins, self.member.value(ref))
        return box if place is None else place.box(box)


@dataclass(slots=True, eq=False)
class TileRun:
    """One tile of a run. `allocations`: by unit; `residents`: by kept operand of the layer;
    `finished`: sums are complete."""

    run: Run
    index: int
    ranges: Tile
    finished: bool
    allocations: Sequence[Allocation]
    residents: Sequence[Allocation]


class Constants(NamedTuple):
    """Loads constants of a tile, packed one behind the other."""

    member: Member
    refs: tuple[Ref, ...]
    boxes: tuple[Box, ...]


class ConstantShare(NamedTuple):
    """Loads some of the bytes of several tiles' constants, from `first` on. `sizes`: bytes between the
    beginnings of one tile's constants and the next one's."""

    constants: tuple[Constants, ...]
    sizes: tuple[int, ...]
    first: int


class BoxCopy(NamedTuple):
    """Loads or stores a box of a value, which is indexed as the operand is."""

    ref: Ref


class BorderCopy(NamedTuple):
    """Loads or stores what one core has made of a value and others miss."""

    border: Border
    item: int


class PieceCopy(NamedTuple):
    """Loads or stores a piece of a data mover."""

    site: OpContext
    move: Move
    piece: Piece


class FillRun(NamedTuple):
    """Writes a run of a mover's constant, of `most` elements."""

    site: OpContext
    move: Move
    most: int


class CopyRows(NamedTuple):
    """Copies rows of a value that the next stripe needs again from one slot to the next."""

    value: str
    ref: Ref
    box: Box
    old: Allocation
    new: Allocation


class ComputeTile(NamedTuple):
    """What a node of a part does for a tile: `member` is its position in the part."""

    tile: TileRun
    member: int


class GatherColumns(NamedTuple):
    """Lays the columns of a convolution's tile: fills the padding, or copies the rest."""

    tile: TileRun
    opcode: str


What = (
    Constants | ConstantShare | BoxCopy | BorderCopy | PieceCopy | FillRun | CopyRows | ComputeTile
    | GatherColumns
)


@dataclass(slots=True, eq=False)
class Job:
    """What one queue of one core does at a time: `cycles`, and then it moves `bytes` over a bus.

    `queue` is that of the core; `tile` counts tiles of a run; `outside` is what a load or store meets in
    external memory, and `key` what it loads, where other cores may load the same.
    """

    core: int
    queue: int
    group: int
    node: int
    tile: int
    reads: Sequence[Place]
    writes: Sequence[Place]
    cycles: int
    what: What
    bytes: int = 0
    outside: Outside | None = None
    key: Hashable = None


class Barrier(NamedTuple):
    """All cores meet before a group; what they stored before is seen behind it: of values and
    borders, by whose bytes they have."""

    group: int
    node: int
    seen: Mapping[str, str]


@dataclass(slots=True)
class Phase:
    """Jobs of one segment between two barriers. `shared`: positions of loads that cores make together."""

    segment: int
    barrier: Barrier | None
    jobs: list[Job]
    shared: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class Schedule:
    """All jobs of a plan of so many groups, in program order."""

    phases: Sequence[Phase]
    groups: int
    whole: Mapping[str, Interval] = field(default_factory=dict)      # see `Places`


class Queues:
    """Numbers of a core's queues, as `hw.target.queue_names` orders them."""

    def __init__(self, channels: int) -> None:
        self.values, self.constants, self.stores = 0, channels - 1, channels
        self.tensor, self.vector, self.count = 2 * channels, 2 * channels + 1, 2 * channels + 2
