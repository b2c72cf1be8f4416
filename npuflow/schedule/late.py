"""Delays constants until the results that they meet exist, where local memory is short.
What a layer's last result takes part in comes behind it, and so do the weights that it meets, but for as many
as local memory holds by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from npuflow.ir.graph import Graph
from npuflow.ir.moves import Move
from npuflow.ir.op import Node
from npuflow.ir.space import DimMap, IterationDomain, Operand
from npuflow.schedule.model import WEIGHTS
from npuflow.schedule.needed import NeededPart, takes_all

Indices = npt.NDArray[np.int64]
# Of one dimension, by each index that the last result may have: where the part that it takes part in begins
# (None: somewhere), and how long it is at least.
Span = tuple[Indices | None, Indices]
Reached = tuple[Span, ...]


@dataclass
class LateConstants:
    """Of a segment. `nodes` in the order in which they run; `bytes`: of constants, by digest."""

    graph: Graph
    nodes: Sequence[int]
    moving: Mapping[int, tuple[Move, ...]]
    space: Callable[[int], IterationDomain]
    needed: Mapping[int, NeededPart]
    bytes: Mapping[str, int]

    @cached_property
    def through(self) -> dict[int, frozenset[int]]:
        """By node those whose results nobody gets to see but through it, itself among them; of the nodes that
        everything before the first branch ends in."""
        exits: dict[int, set[int] | None] = {}
        mine, position = set(self.nodes), {n: k for k, n in enumerate(self.nodes)}
        readers: dict[str, list[int]] = {}
        for number in self.nodes:
            for value in self.graph.nodes[number].inputs:
                readers.setdefault(value, []).append(number)
        outside = set(self.graph.outputs)
        outside.update(i for k, n in enumerate(self.graph.nodes) if k not in mine for i in n.inputs)
        for number in reversed(self.nodes):
            outputs = [o for o in self.graph.nodes[number].outputs if o]
            found = [exits[r] or {r} for o in outputs for r in readers.get(o, ())]
            common = set.intersection(*found) if found and not outside.intersection(outputs) else set()
            exits[number] = {number, *common}
        through: dict[int, set[int]] = {}
        for number, found_exits in exits.items():
            for end in found_exits or ():
                through.setdefault(end, set()).add(number)
        ends = sorted(through, key=lambda number: position[number])
        return {n: frozenset(through[n]) for n in ends if len(through[n]) > 1}

    def weights(self, number: int) -> Iterator[tuple[str, Operand]]:
        """Constants that the array multiplies with, by digest."""
        if number in self.moving or not self.space(number).macs:
            return
        node, space = self.graph.nodes[number], self.space(number)
        params = dict(node.params or ())
        named: list[tuple[Operand | None, object]] = [(o, params.get(o.name)) for o in space.params]
        for value, read in zip(node.inputs, space.inputs, strict=False):
            named.append((read, self.graph.values[value].const if value else None))
        for operand, digest in named:
            if operand is not None and operand.name in WEIGHTS and isinstance(digest, str):
                yield digest, operand

    def most(self, number: int) -> int:
        """Bytes of all weights behind a node that are not also before it."""
        return self._behind[number]

    @cached_property
    def _behind(self) -> dict[int, int]:
        """By node the bytes of all weights of the nodes behind it."""
        found, seen, total = dict[int, int](), set[str](), 0
        for number in reversed(self.nodes):
            found[number] = total
            fresh = self._digests((number,)) - seen
            seen |= fresh
            total += sum(self.bytes.get(d, 0) for d in fresh)
        return found

    def before(self, numbers: frozenset[int]) -> int:
        return sum(self.bytes.get(d, 0) for d in self._digests(sorted(numbers)))

    def _digests(self, numbers: Sequence[int]) -> set[str]:
        return {d for n in numbers for d, _ in self.weights(n)}

    def behind(self, number: int) -> int:
        """Bytes of weights that are multiplied with what depends on the last result of a node, whichever that
        is."""
        begin = _places(self.space(number), self.needed[number])
        if begin is None:
            return 0
        reached: dict[str, Reached] = {self.graph.nodes[number].outputs[0]: begin}
        met: dict[str, float] = {}
        for other in self.nodes[self.nodes.index(number) + 1 :]:
            node = self.graph.nodes[other]
            read = {k: reached[i] for k, i in enumerate(node.inputs) if i in reached}
            if not read:
                continue
            if other in self.moving:
                found = self._moved(other, node, read)
            else:
                found = self._computed(other, read)
                if 0 in read and found is not None:
                    for digest, operand in self.weights(other):
                        share = _share(self.space(other), operand, read[0], found, self.needed[other])
                        met[digest] = max(met.get(digest, 0.0), share)
            if found is not None:
                reached.update({o: found for o in node.outputs if o})
        return int(sum(self.bytes.get(d, 0) * share for d, share in met.items()))

    def _computed(self, number: int, read: Mapping[int, Reached]) -> Reached | None:
        """The part of a layer's results that depends on parts of its inputs: of the farthest."""
        space, part = self.space(number), self.needed[number]
        if len(space.outputs) != 1 or any(m != DimMap(m.axis) for m in space.outputs[0].maps):
            return None
        found = []
        for k, spans in read.items():
            operand = space.inputs[k] if k < len(space.inputs) else None
            if operand is not None:
                found.append(_reached(space, operand, spans, part))
        return _farthest(found)

    def _moved(self, number: int, node: Node, read: Mapping[int, Reached]) -> Reached | None:
        """Of a mover with one result."""
        if sum(map(bool, node.outputs)) != 1:
            return None
        shape, moves = self.graph.type(node.outputs[0]).shape, self.moving[number]
        sizes = {k: self.graph.type(node.inputs[k]).shape for k in read}
        whole = {k for k, spans in read.items() if _whole(spans, sizes[k])}
        if len(moves) < 2 and any(takes_all(moves, k, prod(sizes[k])) for k in whole):
            return tuple(_full(n) for n in shape)
        if not moves:
            return _reshaped(read[0], sizes[0], shape)
        space = node.op.local_space(self.graph.site(node))
        if space is None:
            return None
        part = {a.name: np.arange(a.size) for a in space.axes}
        if len(space.inputs) > 1:
            return _joined(space, read, part)
        operand = space.inputs[0]
        assert operand is not None
        dims = zip(operand.maps, read[0], operand.shape, strict=True)
        if any(m.axis is None and not _is_full(span, size) for m, span, size in dims):
            return None
        return _farthest([_reached(space, operand, read[0], part)])


def _places(space: IterationDomain, part: NeededPart) -> Reached | None:
    """Every single place of the only result; None: it has none, or is not followed."""
    maps = [m for o in space.outputs for m in o.maps]
    if len(space.outputs) != 1 or any(m != DimMap(m.axis) for m in maps):
        return None
    wanted = [part[m.axis] if m.axis is not None else np.zeros(1, np.int64) for m in maps]
    return tuple((low, np.ones_like(low)) for low in wanted) if all(map(len, wanted)) else None


def _full(size: int) -> Span:
    return np.zeros(1, np.int64), np.full(1, size, np.int64)


def _is_full(span: Span, size: int) -> bool:
    return bool(span[1].min() >= size)


def _whole(spans: Reached, shape: Sequence[int]) -> bool:
    return all(_is_full(s, size) for s, size in zip(spans, shape, strict=True))


def _farthest(found: Sequence[Reached]) -> Reached | None:
    """Of parts the one with the most elements at least; None: there may be none."""
    best = max(found, key=_least, default=None)
    return best if best is not None and _least(best) else None


def _least(spans: Reached) -> int:
    return prod(int(length.min()) for _, length in spans)


def _reached(space: IterationDomain, operand: Operand, spans: Reached, part: NeededPart) -> Reached:
    """The part of the only result that depends on part of an operand."""
    (y,) = space.outputs
    return tuple(
        _full(size) if m.axis is None else _results(m.axis, operand, spans, part)
        for m, size in zip(y.maps, y.shape, strict=True)
    )


def _results(axis: str, operand: Operand, spans: Reached, part: NeededPart) -> Span:
    """Indices of an axis whose windows meet part of an operand; all of them where none of its dimensions
    follows the axis."""
    wanted, none = part[axis], np.zeros(1, np.int64)
    if not len(wanted):
        return None, none
    for m, size, (low, length) in zip(operand.maps, operand.shape, spans, strict=True):
        if m.axis != axis:
            continue
        if low is None:
            plain = m == DimMap(axis) and len(wanted) == size
            return None, length if plain else none
        first = np.searchsorted(wanted * m.num // m.den + m.hi, low, side="left")
        last = np.searchsorted(wanted * m.num // m.den + m.lo, low + length, side="left")
        begin, end = wanted[np.minimum(first, len(wanted) - 1)], wanted[np.maximum(last, 1) - 1] + 1
        return begin, np.where((last > first) & (length > 0), end - begin, 0)
    return _full(len(wanted))


def _reshaped(spans: Reached, old: Sequence[int], new: Sequence[int]) -> Reached | None:
    """Dimensions of one element come and go; those that lie behind each other are merged."""
    rest, found = [(s, n) for s, n in zip(spans, old, strict=True) if n > 1], list[Span]()
    for size in new:
        group: list[tuple[Span, int]] = []
        while prod(n for _, n in group) < size and rest:
            group.append(rest.pop(0))
        if prod(n for _, n in group) != size:
            return None
        one = len(group) == 1
        whole = all(_is_full(s, n) for s, n in group)
        count = np.full(1, prod(int(s[1].min()) for s, _ in group), np.int64)
        found.append(group[0][0] if one else _full(size) if whole else (None, count))
    return _farthest([tuple(found)])


def _joined(space: IterationDomain, read: Mapping[int, Reached], part: NeededPart) -> Reached | None:
    """What is joined of parts that are whole along the joined axis, or of one of them."""
    (y,) = space.outputs
    operands = [o for o in space.inputs if o is not None]
    axis = next(d for d, m in enumerate(operands[0].maps) if m.axis is None)
    at = [0, *np.cumsum([o.shape[axis] for o in operands]).tolist()]
    whole = {k for k, spans in read.items() if _is_full(spans[axis], at[k + 1] - at[k])}
    runs: list[list[int]] = []
    for k in sorted(read):
        if runs and {k - 1, k} <= whole and runs[-1][-1] == k - 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    found: list[Reached] = []
    for run in sorted([*runs, *([k] for k in sorted(read))], key=len, reverse=True):
        if found and len(run) == 1:
            break
        spans: list[Span] = []
        for d in range(len(y.maps)):
            each = [read[k][d] for k in run]
            if d == axis:
                low, length = each[0]
                begin, size = np.full(1, at[run[0]], np.int64), at[run[-1] + 1] - at[run[0]]
                one = None if low is None else low + begin, length
                spans.append((begin, np.full(1, size, np.int64)) if len(run) > 1 else one)
            else:
                spans.append(_common(each))
        if all(length.min() for _, length in spans):
            found.append(tuple(spans))
    return _farthest(found)


def _common(spans: Sequence[Span]) -> Span:
    """What parts of one dimension have in common."""
    if len(spans) == 1:
        return spans[0]
    lows = [low for low, _ in spans if low is not None]
    if len(lows) < len(spans):
        return None, np.zeros(1, np.int64)
    shapes = {len(low) for low in lows} - {1}
    if len(shapes) > 1:
        return None, np.zeros(1, np.int64)
    low, high = lows[0], lows[0] + spans[0][1]
    for other, length in spans[1:]:
        assert other is not None
        low, high = np.maximum(low, other), np.minimum(high, other + length)
    return low, np.maximum(high - low, 0)


def _share(space: IterationDomain, weight: Operand, read: Reached, made: Reached, part: NeededPart) -> float:
    """The part of a layer's weights that meets part of its input."""
    x = space.inputs[0]
    assert x is not None
    outputs = {m.axis: span for m, span in zip(space.outputs[0].maps, made, strict=True)}
    dims = zip(x.maps, read, x.shape, strict=True)
    inputs = {m.axis: (span, size) for m, span, size in dims if m.axis is not None}
    share = 1.0
    for d, (m, size) in enumerate(zip(weight.maps, weight.shape, strict=True)):
        if m.axis in outputs:
            share *= min(1.0, float(outputs[m.axis][1].min()) / space.axis(str(m.axis)).size)
        elif m.axis in inputs:
            span, extent = inputs[m.axis]
            share *= float(span[1].min()) / extent
        elif d >= 2 and d < len(x.maps) and x.maps[d].axis is not None:
            share *= _taps(x.maps[d], size, read[d], part[str(x.maps[d].axis)]) / size
        elif not (d < len(read) and _is_full(read[d], x.shape[d])):
            share /= size
    return share


def _taps(m: DimMap, taps: int, span: Span, wanted: Indices) -> int:
    """Taps of a window that meet part of a dimension, at least."""
    low, length = span
    if m.den != 1 or low is None or taps == 1:
        return 1
    step, met = (m.hi - m.lo) // (taps - 1), np.zeros(len(low), np.int64)
    for t in range(taps):
        places = wanted * m.num + m.lo + t * step
        met += np.searchsorted(places, low + length) > np.searchsorted(places, low)
    return int(met.min())
