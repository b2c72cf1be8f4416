"""Values that stay in local memory between groups: when each is there, and its bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from npuflow.ir.space import elements
from npuflow.schedule.allocate import Lifetime
from npuflow.schedule.borders import kept_over, spreads
from npuflow.schedule.frame import Frame


def all_moments(frames: Sequence[Frame]) -> list[list[int]]:
    found, now = [], 0
    for frame in frames:
        found.append([now] if frame.moves else moments_of(frame, now))
        now = found[-1][-1] + 1
    return found


def moments_of(frame: Frame, now: int) -> list[int]:
    """When each part runs: all at once when they take turns strip by strip."""
    turns = len(frame.strips[0]) > 1
    return [now + (0 if turns else p) for p in range(len(frame.members))]


def spans_of(frames: Sequence[Frame], kept: Collection[str]) -> dict[str, list[int]]:
    """By value the first moment at which its bytes are taken, and the last."""
    spans: dict[str, list[int]] = {}
    if not kept:
        return spans
    for frame, at in zip(frames, all_moments(frames), strict=True):
        if frame.moves:
            continue
        for value in frame.holds:
            if value in kept:
                spans.setdefault(value, [at[0], at[0]])
        for p, member in enumerate(frame.members):
            for value in {frame.owner(v) for v in (*(v for v, _ in member.inputs), *member.outputs)}:
                if value in kept:
                    span = spans.setdefault(value, [at[p], at[p]])
                    span[0], span[1] = min(span[0], at[p]), max(span[1], at[p])
    return spans


def lives_of_kept(frames: Sequence[Frame], kept: Collection[str], cores: int) -> Iterator[Lifetime]:
    """Of those that lie in the same bytes one after the other, the first has them all the time."""
    spans, first = spans_of(frames, kept), kept_over(frames)
    for value, owner in first.items():
        begin, end = spans[value]
        spans[owner] = [min(spans[owner][0], begin), max(spans[owner][1], end)]
    for value, spread in sorted((v, s) for v, s in spreads(frames, kept, cores).items() if v not in first):
        size = max((elements(b) for b in spread.boxes if b is not None), default=0)
        yield Lifetime(f"kept.{value}/0", max(1, size * frames[spread.maker].item(value)), *spans[value])
