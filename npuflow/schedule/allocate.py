"""Addresses by lifetimes, of external and of local memory, and a checker that does not trust them."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from npuflow.base.errors import InternalError
from npuflow.schedule import tuned


@dataclass(frozen=True)
class Lifetime:
    """Bytes that must stay from step `first` to step `last`, both included."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Layout:
    """Addresses by name, the bytes used, and the lower bound: the most bytes alive in one step."""

    addresses: Mapping[str, int]
    total: int
    bound: int
    proven: bool = False                  # whether fewer bytes are known to be impossible

    @property
    def gap(self) -> float:
        return self.total / self.bound if self.bound else 1.0


def aligned(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def place(lives: Sequence[Lifetime], align: int) -> Layout:
    """Greedy best fit under several orders; the smallest result wins (the first of equals)."""
    orders: tuple[Callable[[Lifetime], tuple[object, ...]], ...] = (
        lambda v: (-v.size, v.first, v.name),
        lambda v: (-v.size * (v.last - v.first + 1), v.first, v.name),
        lambda v: (v.first, -v.size, v.name),
    )
    bound = peak(lives, align)
    best: Layout | None = None
    for order in orders:
        addresses = in_order(sorted(lives, key=order), align)
        total = max((addresses[v.name] + aligned(v.size, align) for v in lives), default=0)
        if best is None or total < best.total:
            best = Layout(addresses, total, bound)
        if best.total == bound:
            break
    assert best is not None
    return best


def in_order(lives: Sequence[Lifetime], align: int) -> dict[str, int]:
    """Each in turn into the tightest gap between the placed ones that live with it, else above them."""
    placed: dict[int, list[tuple[int, int]]] = {}            # by step: (address, end), by address
    addresses: dict[str, int] = {}
    for life in lives:
        need, steps = aligned(life.size, align), range(life.first, life.last + 1)
        beside: Iterable[tuple[int, int]] = placed.get(life.first, ())
        if len(steps) > 1:
            beside = sorted({one for step in steps for one in placed.get(step, ())})
        at, end, slack = -1, 0, 0
        for start, stop in beside:
            gap = start - end
            if gap >= need and (at < 0 or gap - need < slack):
                at, slack = end, gap - need
            if stop > end:
                end = stop
        address = end if at < 0 else at
        addresses[life.name] = address
        for step in steps:
            insort(placed.setdefault(step, []), (address, address + need))
    return addresses


def peak(lives: Iterable[Lifetime], align: int) -> int:
    """Most bytes alive in one step."""
    change: dict[int, int] = {}
    for life in lives:
        change[life.first] = change.get(life.first, 0) + aligned(life.size, align)
        change[life.last + 1] = change.get(life.last + 1, 0) - aligned(life.size, align)
    most = now = 0
    for step in sorted(change):
        now += change[step]
        most = max(most, now)
    return most


def check_layout(lives: Sequence[Lifetime], addresses: Mapping[str, int], limit: int, align: int) -> None:
    """Independent of `place`: a sweep over time; raises if two live ranges share a
    byte or one leaves the memory."""
    events = sorted(
        [(v.first, 1, i) for i, v in enumerate(lives)] + [(v.last + 1, 0, i) for i, v in enumerate(lives)]
    )
    alive: dict[int, tuple[int, int]] = {}
    for _, begins, i in events:
        if not begins:
            alive.pop(i, None)
            continue
        life = lives[i]
        low, high = addresses[life.name], addresses[life.name] + life.size
        if low < 0 or low % align or high > limit:
            raise InternalError(
                f"{life.name} at {low}..{high} is outside {limit} bytes or not aligned to {align}",
                code="NF-INTERNAL-006",
            )
        for j, (a, b) in alive.items():
            if low < b and a < high:
                raise InternalError(
                    f"{life.name} and {lives[j].name} overlap: {low}..{high}, {a}..{b}",
                    code="NF-INTERNAL-007",
                )
        alive[i] = (low, high)


def in_own_bytes(
    lives: Sequence[Lifetime], constants: Collection[str], parts: int, limit: int, align: int
) -> Iterator[list[Lifetime]]:
    """The lives of all but constants, longer by up to so many parts, in less and less room; as they are
    at last. Bytes of a part are free once it is done, and the next part takes them: its first jobs then wait
    for the last ones of the part before, although nothing else keeps them."""
    for share in tuned.APART_SHARES if parts else ():
        yield _longer(lives, constants, parts, int(limit * share), align)
    yield [v for v in lives if v.name not in constants]


def _longer(
    lives: Sequence[Lifetime], constants: Collection[str], parts: int, room: int, align: int
) -> list[Lifetime]:
    """The smaller ones first, by a part at a time, as long as all that is alive takes no more than `room`."""
    end = max((v.last for v in lives), default=0)
    use = [0] * (end + 1)
    for v in lives:
        for t in range(v.first, v.last + 1):
            use[t] += aligned(v.size, align)
    found = {v.name: v for v in lives if v.name not in constants}
    order = sorted(found, key=lambda name: (found[name].size, name))
    for name in order * parts:
        life = found[name]
        size, behind = aligned(life.size, align), life.last + 1
        if behind <= end and use[behind] + size <= room:
            use[behind] += size
            found[name] = replace(life, last=behind)
    return list(found.values())
