"""The layout of a directed graph in rows: everything below what it needs, with few crossings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Needs = Mapping[str, Iterable[str]]


@dataclass(frozen=True)
class GraphLayout:
    """Middles of the boxes' upper edges, by name; routes of arrows as points; width and height of it all."""

    places: Mapping[str, tuple[float, float]]
    routes: Sequence[Sequence[tuple[float, float]]]
    width: float
    height: float


def layout(
    needs: Needs, box: tuple[float, float], gap: tuple[float, float], margin: float = 24.0
) -> GraphLayout:
    """`needs`: name -> the names that it needs, all of them keys. `box` and `gap`: width and height."""
    (wide, tall), (across, down) = box, gap
    found = layers(needs)
    paths = routed(found, needs)
    found = ordered(found, paths)
    widths = [sum(wide if name in needs else 0 for name in row) + (len(row) - 1) * across for row in found]
    width, height = 2 * margin + max(widths, default=0), 2 * margin + len(found) * (tall + down)
    places: dict[str, tuple[float, float]] = {}
    for level, (row, own) in enumerate(zip(found, widths, strict=True)):
        x = (width - own) / 2
        for name in row:
            mine = wide if name in needs else 0
            places[name] = x + mine / 2, margin + level * (tall + down)
            x += mine + across
    routes = [_points([places[name] for name in path], tall) for path in paths]
    return GraphLayout({name: places[name] for name in needs}, routes, width, height)


def _points(places: Sequence[tuple[float, float]], tall: float) -> list[tuple[float, float]]:
    """From the lower edge of the first place to the upper edge of the last, straight
    down through those in between."""
    (x, y), *passed, last = places
    return [(x, y + tall), *(point for a, b in passed for point in ((a, b), (a, b + tall))), last]


def direct(needs: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Needs without those that another need has already."""
    above: dict[str, set[str]] = {}
    for name in needs:
        _above(name, needs, above)
    return {
        name: {one for one in mine if not any(one in above[other] for other in mine)}
        for name, mine in needs.items()
    }


def _above(name: str, needs: Mapping[str, set[str]], found: dict[str, set[str]]) -> set[str]:
    if name not in found:
        found[name] = set()
        found[name] = needs[name].union(*(_above(one, needs, found) for one in needs[name]))
    return found[name]


def layers(needs: Needs) -> list[list[str]]:
    """Every name one row below the lowest of those that it needs. ValueError where names need each other."""
    depth: dict[str, int] = {}
    waiting = list(needs)[::-1]
    begun: set[str] = set()
    while waiting:  # no recursion: a network can be a thousand layers deep
        name = waiting[-1]
        missing = [one for one in needs[name] if one not in depth]
        if missing and name in begun:
            raise ValueError(f"{name!r} needs itself, by way of {missing[0]!r}")
        if missing:
            begun.add(name)
            waiting += missing
            continue
        waiting.pop()
        depth[name] = 1 + max((depth[one] for one in needs[name]), default=-1)
    rows: dict[int, list[str]] = defaultdict(list)
    for name in needs:
        rows[depth[name]].append(name)
    return [rows[number] for number in sorted(rows)]


def routed(rows: list[list[str]], needs: Needs) -> list[list[str]]:
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
