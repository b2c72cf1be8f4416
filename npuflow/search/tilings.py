"""The best tiling of one layer: every candidate size, nesting order and slot count, costed at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import permutations, product
from math import inf, prod

import numpy as np
import numpy.typing as npt

from npuflow.base.errors import FitError, TargetError, Where
from npuflow.ir.space import Axis
from npuflow.schedule import tuned
from npuflow.schedule.choice import Costs, TileChoice
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer
from npuflow.search.cost import (
    CandidateGrid,
    Estimate,
    Floats,
    Ints,
    Traffic,
    Try,
    estimate,
    result_tiles,
    tensor_cycles,
    traffic,
)

DEFAULT_LEVEL = 3


def reverses(layer: Layer, axis: Axis) -> bool:
    """Whether tiles may be cut from the axis' end: slots for inputs are as large as tiles
    cut from its start need them."""
    return axis.multiple == 1 and all(s.home != "input" for s in layer.streams)


@dataclass(frozen=True)
class Solution:
    choice: TileChoice
    costs: Costs


@lru_cache(maxsize=1 << 14)
def sizes_of(axis: Axis, units: tuple[int, ...], most: int) -> Sequence[int]:
    """Tile sizes worth trying, the largest first: even splits into 1, 2, 3, ... tiles,
    and what the hardware likes."""
    if axis.kind == "whole" or axis.size <= axis.multiple:
        return [axis.size]
    m = axis.multiple
    found = {axis.size}
    tiles, limit = 1, -(-axis.size // m)
    counts: list[int] = []
    while tiles < limit:
        counts.append(tiles)
        tiles = tiles + 1 if tiles < 5 else tiles * 4 // 3 + 1
    counts.append(limit)
    for count in counts:
        even = -(-axis.size // count)
        found.add(min(axis.size, -(-even // m) * m))
        for unit in units:
            step = max(m, unit // m * m)
            found.add(min(axis.size, -(-even // step) * step))
    ordered = sorted(found, reverse=True)
    if len(ordered) <= most:
        return ordered
    picks = sorted({int(n) - 1 for n in np.rint(np.geomspace(1, len(ordered), most))})
    chosen = {ordered[i] for i in (*picks, len(ordered) - 1)}
    for unit in units:
        chosen = {n if n == axis.size else _full(n, max(m, unit // m * m)) for n in chosen}
    return sorted(chosen, reverse=True)


def _full(size: int, unit: int) -> int:
    """A tile size, without what leaves much of its last unit idle, as 77 channels on 64 columns do."""
    whole = -(-size // unit) * unit
    return size if size < unit or whole <= tuned.EDGE_WASTE * size else whole - unit


def grid_of(
    layer: Layer, machine: Machine, level: int = DEFAULT_LEVEL, fixed: Mapping[str, int] | None = None
) -> CandidateGrid:
    """The product of all axes' candidate sizes, coarsened until it is small enough;
    `fixed`: axes with one size only."""
    c, mac = machine.compute, layer.mac
    units = {} if mac is None else {mac.rows: c.array_rows, mac.cols: c.array_cols}
    likes = tuple(units.get(axis.name, 0) for axis in layer.axes)
    if fixed:
        return _grid(layer.axes, likes, level, fixed)
    return (_coarse if level in (tuned.STAY_LEVEL, tuned.PART_LEVEL) else _grid)(layer.axes, likes, level)


def _grid(
    axes: tuple[Axis, ...], likes: tuple[int, ...], level: int, fixed: Mapping[str, int] | None = None
) -> CandidateGrid:
    """`likes`: per axis the granularity of the hardware, or 0."""
    most = dict(zip(("par", "sum"), tuned.SIZES[level], strict=True))
    while True:
        lists = [
            [fixed[axis.name]] if fixed and axis.name in fixed
            else sizes_of(axis, (unit,) if unit else (), most.get(axis.kind, 1))
            for axis, unit in zip(axes, likes, strict=True)
        ]
        total = prod(len(x) for x in lists)
        if total <= tuned.CANDIDATES * (level + 1) or most["par"] <= 3:
            break
        most = {k: max(3, v - 2) for k, v in most.items()}
    mesh = np.meshgrid(*[np.arange(len(x)) for x in lists], indexing="ij") if lists else []
    which = {a.name: m.ravel() for a, m in zip(axes, mesh, strict=True)}
    sizes = {a.name: np.array(x, np.int64)[which[a.name]] for a, x in zip(axes, lists, strict=True)}
    found = CandidateGrid(sizes, {a.name: -(-a.size // sizes[a.name]) for a in axes}, total)
    found.memo.update((a.name, (list(x), which[a.name])) for a, x in zip(axes, lists, strict=True))
    return found


@lru_cache(maxsize=2048)
def _coarse(axes: tuple[Axis, ...], likes: tuple[int, ...], level: int) -> CandidateGrid:
    """Grids of the parts of groups: small, and asked for again and again."""
    return _grid(axes, likes, level)


def slot_counts(
    layer: Layer, moved: Sequence[Traffic], kinds: Sequence[str], grid: CandidateGrid
) -> list[Ints]:
    """Local slots of every stream: one when its content never changes, all when resident, else one or two."""
    out_counts, slots = result_tiles(layer, grid), []
    for stream, m, kind in zip(layer.streams, moved, kinds, strict=True):
        several = out_counts if stream.home in ("acc", "inner") else m.distinct
        slots.append(
            several if kind in ("resident", "there") else np.minimum(several, 2 if kind == "double" else 1)
        )
    return slots


def variants(layer: Layer) -> Iterator[tuple[str, ...]]:
    """Slot policies to try: everything double buffered, constants or inputs
    resident, or nothing overlapped."""
    inputs = [s.home == "input" for s in layer.streams]
    consts = [s.home == "const" for s in layer.streams]
    for keep_const, keep_input in product((False, True), repeat=2):
        if (keep_const and not any(consts)) or (keep_input and not any(inputs)):
            continue
        yield tuple(
            "resident" if (keep_const and c) or (keep_input and i) else "double"
            for c, i in zip(consts, inputs, strict=True)
        )
    yield tuple("single" for _ in layer.streams)


def _two(every: Iterator[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The first and the last: channels outside positions, positions outside channels."""
    found = list(every)
    return (found[0], found[-1]) if len(found) > 1 else tuple(found)


def _there(layer: Layer) -> Iterator[tuple[str, ...]]:
    """Constants in local memory for good, the rest double buffered or not."""
    for other in ("double", "single"):
        yield tuple("there" if s.home == "const" else other for s in layer.streams)


def orders(layer: Layer, grid: CandidateGrid, some: Ints | None = None) -> Iterator[tuple[str, ...]]:
    """Nestings of the axes that a candidate splits, or one of some; `sum` axes
    innermost, unsplit axes outermost."""
    split = [
        a
        for a in layer.axes
        if int((grid.counts[a.name] if some is None else grid.counts[a.name][some]).max()) > 1
    ]
    idle = tuple(a.name for a in layer.axes if a not in split)
    sums = tuple(a.name for a in split if a.kind == "sum")
    par = [a.name for a in split if a.kind != "sum"]
    for nesting in permutations(par):
        yield (*idle, *nesting, *sums)


def footprint(grid: CandidateGrid, moved: Sequence[Traffic], slots: Sequence[Ints]) -> Ints:
    """Bytes of local memory of every candidate."""
    total = np.zeros(grid.length, np.int64)
    for m, n in zip(moved, slots, strict=True):
        total = total + m.local * n
    return total


@dataclass(frozen=True)
class _Tried:
    """Nestings, each with its slots, and candidates by number; local bytes, estimate and
    score of each candidate in each."""

    orders: Sequence[tuple[str, ...]]
    slots: Sequence[Sequence[Ints]]
    numbers: Ints
    used: Ints
    estimate: Estimate
    worth: Floats

    def best(self, bound: int) -> tuple[tuple[float, float, float], int, int] | None:
        """(score, row, column) of the one with the lowest score that fits; of equal ones the first."""
        worth = np.where(self.used <= bound, self.worth, inf)
        least = worth.min()
        if least == inf:
            return None
        equal = np.flatnonzero(worth == least)
        amount, used = self.estimate.bytes.ravel()[equal], self.used.ravel()[equal]
        first = int(np.lexsort((used, amount))[0]) if len(equal) > 1 else 0
        row, column = divmod(int(equal[first]), worth.shape[1])
        return (float(least), float(amount[first]), float(used[first])), row, column


class TilingSearch:
    """Every candidate of a layer that fits local memory, costed once; then the best one that fits
    in less is looked up. `drawn`: candidates of the same layer on the same machine, to share."""

    def __init__(
        self, layer: Layer, machine: Machine, level: int = DEFAULT_LEVEL, stays: bool | None = None,
        fixed: Mapping[str, int] | None = None, drawn: TilingSearch | None = None,
    ) -> None:
        self.layer, self.machine, self.stays = layer, machine, stays
        self.grid: CandidateGrid
        self.moved: Sequence[Traffic]
        if drawn is not None:
            self.grid, self.moved = drawn.grid, drawn.moved
        else:
            self.grid = grid_of(layer, machine, level, fixed)
            self.moved = traffic(layer, machine, self.grid)
        key = layer.mac, machine.compute
        if key not in self.grid.memo:
            self.grid.memo[key] = tensor_cycles(layer, machine, self.grid)
        self.tensor: Floats = self.grid.memo[key]
        counts = list(self.grid.counts.values())
        self.steps = tuned.STEP_COST * reduce(np.multiply, counts) if counts else np.zeros(1)
        self.bound_cycles = max(
            float(self.tensor.min()), (layer.vector_work + layer.gathered) / machine.compute.vector_lanes
        )
        self.ceiling = inf
        self.kinds = tuple(_there(layer) if stays else variants(layer))
        self._tried: dict[tuple[str, ...], list[_Tried]] = {}

    def best(self, bound: int) -> Solution | None:
        """The fewest estimated cycles, then bytes, then local memory, in `bound` bytes; nothing
        overlaps only where it must."""
        best: tuple[tuple[float, float, float], _Tried, int, int] | None = None
        for kinds in self.kinds:
            if kinds[:1] == ("single",) and best is not None:
                continue
            for tried in self._of(kinds):
                found = tried.best(bound)
                if found is not None and (best is None or found[0] < best[0]):
                    best = found[0], tried, *found[1:]
        return self._solution(*best[1:]) if best is not None else None

    def _of(self, kinds: tuple[str, ...]) -> list[_Tried]:
        if kinds not in self._tried and self.stays is not None:
            self._all([k for k in self.kinds if (k[:1] == ("single",)) == (kinds[:1] == ("single",))])
        if kinds not in self._tried:
            self._tried[kinds] = found = []
            slots, used, fits = self._fitting(kinds)
            if len(fits):
                grid, few = self._few(fits)
                for order in list(orders(self.layer, grid)):     # asked for one size of local memory only
                    e = estimate(self.layer, self.machine, grid, few, [(order, kinds)], self.tensor[fits])
                    found.append(
                        _Tried([order], [slots], fits, used[None, fits], e, self._worth(e) + self.steps[fits])
                    )
                    self.ceiling = min(self.ceiling, float(found[-1].worth.min()))
                    hopeful = fits[self.least[fits] <= self.ceiling]     # what cannot win is left out
                    if 2 * len(hopeful) < len(fits):
                        fits, (grid, few) = hopeful, self._few(hopeful)
        return self._tried[kinds]

    def _all(self, policies: Sequence[tuple[str, ...]]) -> None:
        """Candidates are few, and asked for again with less local memory: all of them at
        once in all slots and nestings."""
        tries: list[Try] = []
        slots: list[Sequence[Ints]] = []
        used: list[Ints] = []
        for kinds in policies:
            own, size, fits = self._fitting(kinds)
            few = None if len(fits) == self.grid.length else fits
            for order in _two(orders(self.layer, self.grid, few)) if len(fits) else ():
                tries.append((order, kinds))
                slots.append(own)
                used.append(size)
        self._tried.update((kinds, []) for kinds in policies)
        if tries:
            e, every = (
                estimate(self.layer, self.machine, self.grid, self.moved, tries, self.tensor),
                np.arange(self.grid.length),
            )
            found = _Tried(
                [order for order, _ in tries], slots, every, np.array(used), e, self._worth(e) + self.steps
            )
            self._tried[policies[0]].append(found)

    def _worth(self, e: Estimate) -> Floats:
        return self.machine.worth(e.cycles, e.bytes)

    def _fitting(self, kinds: tuple[str, ...]) -> tuple[Sequence[Ints], Ints, Ints]:
        """(slots of every stream, bytes of local memory, candidates that find room)."""
        slots = slot_counts(self.layer, self.moved, kinds, self.grid)
        used = footprint(self.grid, self.moved, slots)
        return slots, used, np.flatnonzero((used <= self.machine.memory.local_bytes) & self._hopeful)

    @property
    def _hopeful(self) -> npt.NDArray[np.bool_] | bool:
        """Candidates that may still win; all, where several sizes of local memory are asked for."""
        return True if self.stays is not None else self.least <= self.ceiling

    def _few(self, index: Ints) -> tuple[CandidateGrid, Sequence[Traffic]]:
        """The grid and the streams of some candidates."""
        if len(index) == self.grid.length:
            return self.grid, self.moved
        return self.grid.take(index), [_take(m, index) for m in self.moved]

    @cached_property
    def least(self) -> Floats:
        """What no order and no slots of a candidate beat: its array, the vector unit, and every byte once."""
        memory, crossing = self.machine.memory, [
            m for s, m in zip(self.layer.streams, self.moved, strict=True)
            if s.home in ("input", "output", "const") and (s.home == "const" or not self.machine.inside)
        ]
        bus = sum((m.total for m in crossing), np.zeros(self.grid.length)) / memory.external_bandwidth
        vector = self.layer.vector_work / self.machine.compute.vector_lanes
        work: Floats = np.maximum(np.maximum(bus, vector), self.tensor)
        return work + self.steps

    def _solution(self, tried: _Tried, row: int, i: int) -> Solution:
        layer, e, at = self.layer, tried.estimate, tried.numbers[i]
        sizes = tuple((a.name, int(self.grid.sizes[a.name][at])) for a in layer.axes)
        choice = TileChoice(
            sizes, tried.orders[row], tuple(int(s[at]) for s in tried.slots[row]), int(tried.used[row, i])
        )
        cycles, load, store, tensor, vector, bus, head, early, tail, amount = (
            float(v[row, i])
            for v in (e.cycles, e.load, e.store, e.tensor, e.vector, e.bus, e.head, e.early, e.tail, e.bytes)
        )
        costs = Costs(
            cycles, load, store, tensor, vector, bus, head, early, tail, amount,
            self.bound_cycles, float(layer.bytes_of("input", "const", "output")),
            max(tensor, vector) + min(tail, cycles - head), float(layer.bytes_of("const")),
        )
        return Solution(choice, costs)

    def smallest(self) -> int:
        """Bytes of local memory below which no candidate runs, overlapped or not."""
        counts = [slot_counts(self.layer, self.moved, kinds, self.grid) for kinds in self.kinds]
        return min(int(footprint(self.grid, self.moved, slots).min()) for slots in counts)

    def refusal(self, name: str) -> TargetError:
        """Of a layer of which no tile fits: demand, bound, gap, and suggestions that would close it."""
        bound = self.machine.memory.local_bytes
        slots = slot_counts(self.layer, self.moved, self.kinds[-1], self.grid)     # nothing overlaps
        used = footprint(self.grid, self.moved, slots)
        i = int(used.argmin())
        demand = int(used[i])
        held = [
            (int(m.local[i] * n[i]), s) for s, m, n in zip(self.layer.streams, self.moved, slots, strict=True)
        ]
        parts = sorted(((size, s.name) for size, s in held), reverse=True)
        tile = ", ".join(f"{a.name}={int(self.grid.sizes[a.name][i])}" for a in self.layer.axes)
        fixed = [f"{a.name} ({a.size})" for a in self.layer.axes if a.kind == "whole" and a.size > 1]
        options = [f"target.memory.local_bytes >= {demand}"]
        wide = [z for z, s in held if s.home in ("input", "output") and all(r.itemsize == 2 for r in s.refs)]
        halved = demand - sum(size // 2 for size in wide)
        if halved <= bound:
            options.append(f"8-bit activations for this layer (demand {halved})")
        options.append(f'[[quantize.overrides]] layers = ["{name}"], float = true')
        return FitError(
            f"a tile needs {demand} bytes of local memory, the target has {bound}: {demand - bound} too few",
            where=Where(node=name or None),
            because=f"the smallest tile is {tile}; "
            + ", ".join(f"{n}: {b} bytes" for b, n in parts[:4])
            + (f"; cannot be split: {', '.join(fixed)}" if fixed else ""),
            hint="; ".join(options),
            code="NF-FIT-008",
        )


def solve(
    layer: Layer, machine: Machine, name: str = "", level: int = DEFAULT_LEVEL, stays: bool | None = None
) -> Solution:
    """The tiling with the fewest estimated cycles (then bytes, then local memory) that fits local memory.

    `stays`: constants are there from an earlier run and stay for the next one; None: it runs by itself.
    """
    tilings = TilingSearch(layer, machine, level, stays)
    found = tilings.best(machine.memory.local_bytes)
    if found is None:
        raise tilings.refusal(name)
    return found


def _take(m: Traffic, index: Ints) -> Traffic:
    return Traffic(m.local[index], m.distinct[index], m.total[index], m.rows[index], m.commands[index])
