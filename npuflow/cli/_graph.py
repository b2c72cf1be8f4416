"""The task graph of a plan as a picture: what each stage needs, and whether it is in
the cache, runs, or may run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from npuflow.base.errors import UsageError
from npuflow.engine.profile import svg

if TYPE_CHECKING:
    from npuflow.flow.plan import Plan

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 150.0, 34.0, 20.0, 24.0, 24.0
FILLS = {
    "hit": "#dcefe3",
    "ran": "#fbe3c4",
    "run": "#fbe3c4",
    "maybe": "#fdf4e3",
    "failed": "#f3c6c7",
    "skipped": "#eceff2",
}
EDGES = {
    "hit": svg.GREEN,
    "ran": svg.ORANGE,
    "run": svg.ORANGE,
    "maybe": svg.ORANGE,
    "failed": svg.RED,
    "skipped": svg.SOFT,
}
WORDS = {
    "hit": "in the cache",
    "ran": "ran",
    "run": "to run",
    "maybe": "maybe",
    "failed": "failed",
    "skipped": "skipped",
}
WORST = ("failed", "ran", "run", "maybe", "skipped", "hit")


@dataclass
class Box:
    """A stage of the drawing, with its parts."""

    counts: Counter[str] = field(default_factory=Counter)
    reason: str = ""

    @property
    def status(self) -> str:
        return next((status for status in WORST if self.counts[status]), "skipped")


Tasks = Iterable[tuple[str, str, str]]
"""Step, status and reason of every task: one of a step, or of each of its items."""


def draw(plan: Plan, tasks: Tasks) -> str:
    """An SVG page, from the sources at the top to the last products."""
    boxes = {step.whole: Box() for step in plan}
    for name, status, reason in tasks:
        box = boxes[plan[name].whole]
        box.counts[status] += 1
        box.reason = box.reason or (reason if status not in ("hit", "ran") else "")
    needs = needed(plan)
    rows = layers(needs)
    routes = routed(rows, needs)
    rows = ordered(rows, routes)
    wides = [sum(WIDTH if name in boxes else 0 for name in row) + (len(row) - 1) * ACROSS for row in rows]
    width, height = 2 * MARGIN + max(wides, default=0), 2 * MARGIN + len(rows) * (HEIGHT + DOWN)
    places: dict[str, tuple[float, float]] = {}                 # the middle of the upper edge
    for down, (row, wide) in enumerate(zip(rows, wides, strict=True)):
        x = (width - wide) / 2
        for name in row:
            own = WIDTH if name in boxes else 0
            places[name] = x + own / 2, MARGIN + down * (HEIGHT + DOWN)
            x += own + ACROSS
    parts = [_arrow([places[name] for name in route]) for route in routes]
    for name, box in boxes.items():
        parts += _box(name, box, places[name][0] - WIDTH / 2, places[name][1])
    parts.append(_legend({box.status for box in boxes.values()}, height - 12))
    return svg.page(width, height, parts)


def write(path: Path, page: str) -> None:
    """Put a drawing into a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, "utf-8")
    except OSError as fault:
        raise UsageError(
            f'cannot write "{path}"', because=fault.strerror or str(fault), code="NF-USAGE-071"
        ) from fault


def needed(plan: Plan) -> dict[str, set[str]]:
    """Stage -> the stages whose products it needs, but for those that another of them needs already."""
    direct: dict[str, set[str]] = {step.whole: set() for step in plan}
    for step in plan:
        sources = {plan[place.step].whole for place in step.inputs.values() if place.step is not None}
        direct[step.whole] |= sources - {step.whole}
    above: dict[str, set[str]] = {}
    # in the order of the plan, but for parts that come earlier
    for name in direct:
        _above(name, direct, above)
    return {
        name: {one for one in mine if not any(one in above[other] for other in mine)}
        for name, mine in direct.items()
    }


def _above(name: str, direct: Mapping[str, set[str]], found: dict[str, set[str]]) -> set[str]:
    if name not in found:
        found[name] = set()
        found[name] = direct[name].union(*(_above(one, direct, found) for one in direct[name]))
    return found[name]


def layers(needs: Mapping[str, set[str]]) -> list[list[str]]:
    """Every stage one row below the lowest of those that it needs."""
    depth: dict[str, int] = {}

    def deep(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((deep(one) for one in needs[name]), default=-1)
        return depth[name]

    rows: dict[int, list[str]] = defaultdict(list)
    for name in needs:
        rows[deep(name)].append(name)
    return [rows[number] for number in sorted(rows)]


def routed(rows: list[list[str]], needs: Mapping[str, set[str]]) -> list[list[str]]:
    """The way of every arrow, row by row: where it passes a row it is given a place there,
    which is added to the rows."""
    depth = {name: number for number, row in enumerate(rows) for name in row}
    routes = []
    for name in needs:
        for source in sorted(needs[name]):
            passed = [f"{source} > {name} {number}" for number in range(depth[source] + 1, depth[name])]
            for number, place in enumerate(passed, depth[source] + 1):
                rows[number].append(place)
            routes.append([source, *passed, name])
    return routes


def ordered(rows: Sequence[Sequence[str]], routes: Sequence[Sequence[str]]) -> list[list[str]]:
    """Every row by where the arrows that lead to it come from, so that few of them cross."""
    needs: dict[str, set[str]] = {name: set() for row in rows for name in row}
    for route in routes:
        for source, name in pairwise(route):
            needs[name].add(source)
    place: dict[str, float] = {}
    found = []
    for row in rows:
        middle = {name: sum(place[one] for one in needs[name]) / max(1, len(needs[name])) for name in row}
        mine = sorted(row, key=lambda name: (middle[name], name))
        place |= {name: index - (len(mine) - 1) / 2 for index, name in enumerate(mine)}
        found.append(mine)
    return found


def _arrow(places: Sequence[tuple[float, float]]) -> str:
    """From the lower edge of the first place to the upper edge of the last, straight
    down through those in between."""
    path = f"M{places[0][0]:.1f} {places[0][1] + HEIGHT:.1f}"
    for (x1, y1), (x2, y2) in pairwise(places):
        y1, bend = y1 + HEIGHT, (y2 - y1 - HEIGHT) / 2
        path += f" L{x1:.1f} {y1:.1f} C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
    x, y = places[-1]
    head = f"M{x - 3:.1f} {y - 6:.1f} L{x:.1f} {y:.1f} L{x + 3:.1f} {y - 6:.1f}"
    return (
        f'<path d="{path} {head}" fill="none" stroke="{svg.SOFT}" stroke-width="0.8" stroke-opacity="0.7"/>'
    )


def _box(name: str, box: Box, x: float, y: float) -> list[str]:
    single = sum(box.counts.values()) == 1
    told = ", ".join(f"{box.counts[status]} {WORDS[status]}" for status in WORST if box.counts[status])
    said = WORDS[box.status] if single or not told else told
    return [
        svg.rect(x, y, WIDTH, HEIGHT, FILLS[box.status], EDGES[box.status], f"{name}: {box.reason or said}"),
        svg.text(x + WIDTH / 2, y + 14, name, svg.INK, "middle", 12),
        svg.text(x + WIDTH / 2, y + 27, said, svg.SOFT, "middle", 9),
    ]


def _legend(shown: Iterable[str], y: float) -> str:
    mine = [status for status in WORST if status in set(shown)]
    parts = []
    for index, status in enumerate(mine):
        parts.append(svg.rect(MARGIN + 100 * index, y - 10, 12, 12, FILLS[status], EDGES[status]))
        parts.append(svg.text(MARGIN + 100 * index + 18, y, WORDS[status], svg.SOFT, "start", 10))
    return "\n".join(parts)
