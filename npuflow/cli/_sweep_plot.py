"""The points of a sweep as a picture: one goal over another, and the line of those that no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, inf, log10

from npuflow.base.errors import UsageError
from npuflow.engine.profile import svg

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860.0, 520.0, 80.0, 30.0, 40.0, 56.0
TICKS = 5


def draw(
    names: Sequence[str], rows: Sequence[Mapping[str, float]], best: Sequence[bool], goals: Sequence[str]
) -> str:
    """An SVG page: the second goal to the right, the first one upwards; best points are filled and joined."""
    if len(goals) < 2:
        raise UsageError(
            "a plot needs two goals that differ between points",
            because=f"goals: {', '.join(goals) or 'none'}", hint="--goal simulate.ms --goal simulate.mb",
            code="NF-USAGE-033",
        )
    up, right = goals[0], goals[1]
    every = zip(names, rows, best, strict=True)
    shown = [(row[right], row[up], good, name) for name, row, good in every if up in row and right in row]
    frame = _Frame([p[0] for p in shown], [p[1] for p in shown])
    parts = list(frame.axes(right, up))
    line = sorted((p[0], p[1]) for p in shown if p[2])
    places = [(frame.x(x), frame.y(y)) for x, y in line]
    parts += [svg.line(*a, *b, svg.ORANGE, 1.5) for a, b in pairwise(places)]
    taken: list[tuple[float, float, float]] = []
    for x, y, good, name in sorted(shown, key=lambda p: not p[2]):
        at, height = frame.x(x), frame.y(y)
        colour, words = svg.ORANGE if good else svg.BLUE, f"{name}: {right} {x:g}, {up} {y:g}"
        parts.append(svg.circle(at, height, 6 if good else 4, colour, words))
        width = 5.6 * len(name)
        start = at + 9 if at + 9 + width < WIDTH - 4 else at - 9 - width
        if all(start > b or start + width < a or abs(height - c) > 12 for a, b, c in taken):
            taken.append((start, start + width, height))
            parts.append(
                svg.text(start, height + 4, name, svg.INK if good else svg.SOFT, "start", 10, halo=True)
            )
    return svg.page(WIDTH, HEIGHT, parts)


class _Frame:
    """Linear axes with a margin around the points."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.x0, self.x1 = _wide(xs)
        self.y0, self.y1 = _wide(ys)

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def axes(self, right: str, up: str) -> list[str]:
        parts = []
        for x in ticks(self.x0, self.x1):
            parts.append(svg.line(self.x(x), TOP, self.x(x), HEIGHT - BOTTOM))
            parts.append(svg.text(self.x(x), HEIGHT - BOTTOM + 16, svg.short(x), svg.SOFT, "middle", 11))
        for y in ticks(self.y0, self.y1):
            parts.append(svg.line(LEFT, self.y(y), WIDTH - RIGHT, self.y(y)))
            parts.append(svg.text(LEFT - 6, self.y(y) + 4, svg.short(y), svg.SOFT, "end", 11))
        parts.append(svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, right, svg.SOFT, "middle"))
        parts.append(svg.text(18, (TOP + HEIGHT - BOTTOM) / 2, up, svg.SOFT, "middle", turn=-90))
        return parts


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends, a few of them."""
    rough = (high - low) / TICKS
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
    return [float(f"{i * step:.12g}") for i in range(ceil(low / step), floor(high / step) + 1)]


def _wide(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or abs(low) * 0.1 or 1.0
    return max(low - margin, 0.0 if low >= 0 else -inf), high + margin
