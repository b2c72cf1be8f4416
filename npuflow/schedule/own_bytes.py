"""Buffers of neighbouring parts in bytes of their own, as far as there is room.

Bytes of a part are free once it is done, and the next part takes them. Its first jobs then wait for the last
ones of the part before, although nothing else keeps them. Here a buffer keeps its bytes for some parts more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from npuflow.schedule import tuned
from npuflow.schedule.allocate import Lifetime, aligned


def apart(
    lives: Sequence[Lifetime], constants: Collection[str], parts: int, limit: int, align: int
) -> Iterator[list[Lifetime]]:
    """The lives of all but constants, longer by up to so many parts, in less and less room; as they are
    at last."""
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
