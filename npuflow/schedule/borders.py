"""Values in the local memories of several cores: each core's buffer, and exchanged boxes.

A core keeps what it made of a value. What a later group reads of it beyond that, another core has
made: it stores that box by itself, densely, and the core that misses it loads it into its buffer,
behind the barrier before the group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from npuflow.ir.space import Box, elements
from npuflow.schedule.frame import Frame
from npuflow.schedule.geometry import Border, Spread, hull, inside


def spreads(frames: Sequence[Frame], kept: Collection[str], cores: int) -> Mapping[str, Spread]:
    """Of every value that stays, by name; `frames` in the order of the plan."""
    found: dict[str, Spread] = {}
    if not kept:
        return found
    readers: dict[str, list[int]] = {}
    for g, frame in enumerate(frames):
        for value in dict.fromkeys(v for m in frame.members for v, _ in m.inputs) if not frame.moves else ():
            readers.setdefault(value, []).append(g)
    for maker, frame in enumerate(frames):
        if frame.moves:
            continue
        made = {o for m in frame.members for o in m.outputs} & set(kept)
        for value in sorted(made):
            later = [g for g in readers.get(value, ()) if g > maker]
            known, key = (
                frame.passage.spreads,
                (value, maker, tuple((g, frames[g].passage) for g in later), len(frames), cores),
            )
            if key not in known:
                known[key] = _spread(value, maker, later, frames, cores)
            found[value] = known[key]
    for values in classes(kept_over(frames)):
        laid = [_hull_of(boxes) for boxes in zip(*(found[v].boxes for v in values), strict=True)]
        found.update({v: replace(found[v], boxes=tuple(laid)) for v in values})
    return found


def kept_over(frames: Sequence[Frame]) -> dict[str, str]:
    """Values that stay and lie where another one that stays did, and the first of those in whose bytes."""
    under = {
        v: part.value for frame in frames for v, part in frame.joins.items()
        if part.over and {v, part.value} <= frame.kept
    }
    found = dict[str, str]()
    for value in under:
        first = under[value]
        while first in under:
            first = under[first]
        found[value] = first
    return found


def classes(first: Mapping[str, str]) -> list[list[str]]:
    """Values that lie in the same bytes."""
    found: dict[str, list[str]] = {}
    for value, owner in first.items():
        found.setdefault(owner, [owner]).append(value)
    return list(found.values())


def stored(spread: Mapping[str, Spread], maker: int, core: int) -> list[Border]:
    """What a core stores behind a group."""
    return [b for s in spread.values() if s.maker == maker for b in s.borders if b.source == core]


def loaded(spread: Mapping[str, Spread], reader: int, core: int) -> list[Border]:
    """What a core loads before a group."""
    return [b for s in spread.values() if s.reader == reader for b in s.borders if core in b.targets]


class OtherBorders(Exception):
    """A plan over parts of values has cores hand on something that the whole plan does not."""


def trimmed(own: Mapping[str, Spread], whole: Mapping[str, Spread]) -> dict[str, str]:
    """The borders of a plan over parts of values, by name, and the border of the whole plan in whose bytes
    each lies. `OtherBorders` where other cores hand on, or more of a value."""
    found = dict[str, str]()
    for value, spread in own.items():
        theirs = whole[value].borders if value in whole else ()
        if len(theirs) != len(spread.borders):
            raise OtherBorders
        for mine, other in zip(spread.borders, theirs, strict=True):
            alike = (mine.source, mine.targets) == (other.source, other.targets)
            if not alike or elements(mine.box) > elements(other.box):
                raise OtherBorders
            found[mine.name] = other.name
    return found


def _spread(
    value: str, maker: int, later: Sequence[int], frames: Sequence[Frame], cores: int
) -> Spread:
    source = frames[maker]
    made = source.cores
    cores = max(cores, *(frames[g].cores[-1] + 1 for g in (maker, *later)))
    own = {c: source.walk_on(c).own(value) for c in made}
    there = {c: source.there(value, c) for c in made}
    boxes: list[Box | None] = [_buffer(source, value, c) if c in made else None for c in range(cores)]
    missing: list[list[tuple[int, Box]]] = [[] for _ in range(cores)]
    reader = len(frames)
    for g in later:
        frame = frames[g]
        for core in frame.cores:
            wants = frame.wants(value, core)
            if wants is None:
                continue
            boxes[core] = hull(boxes[core], wants)
            has = there.get(core)
            if has is None or not inside(wants, has):
                reader = min(reader, g)
                missing[core].append((g, wants))
    borders: dict[tuple[int, Box], list[int]] = {}
    for core, wanted in enumerate(missing):
        whole: Box | None = None
        for _, box in wanted:
            whole = hull(whole, box)
        for other, box in product(made, [whole] if whole is not None else []):
            part = _common(box, own[other])
            has = there.get(core)
            if other == core or not elements(part) or (has is not None and inside(part, has)):
                continue
            borders.setdefault((other, part if has is None else _beyond(part, has)), []).append(core)
    every = tuple(Border(value, other, tuple(targets), box) for (other, box), targets in borders.items())
    return Spread(tuple(boxes), every, maker, reader)


def _buffer(frame: Frame, value: str, core: int) -> Box | None:
    """All that lies in it while the group runs, one after the other."""
    inside = (value, *(v for v, part in frame.joins.items() if part.over and part.value == value))
    every = ([s.holds[v].box for s in frame.strips_on(core) if v in s.holds] for v in inside)
    return _hull_of(boxes[0] for boxes in every if boxes)


def _hull_of(boxes: Iterable[Box | None]) -> Box | None:
    found: Box | None = None
    for box in boxes:
        found = found if box is None else hull(found, box)
    return found


def _common(a: Box, b: Box) -> Box:
    found = []
    for (p, q), (r, s) in zip(a, b, strict=True):
        low, high = p if p > r else r, q if q < s else s
        found.append((low, high if high > low else low))
    return tuple(found)


def _beyond(box: Box, there: Box) -> Box:
    """The box without what is there, where the rest is a box."""
    open_ = [d for d, ((a, b), (c, e)) in enumerate(zip(box, there, strict=True)) if a < c or e < b]
    if len(open_) != 1:
        return box
    (d,) = open_
    (a, b), (c, e) = box[d], there[d]
    if c <= a < e < b:
        return (*box[:d], (e, b), *box[d + 1 :])
    if a < c < b <= e:
        return (*box[:d], (a, c), *box[d + 1 :])
    return box
