"""The roofline: every layer's multiply-accumulates per cycle over those per byte, under the roofs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10, sqrt

from npuflow.report.figures.spec import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    Row,
    Spec,
    coloured,
    figure,
    number,
    rows,
    shown,
)

WIDTH, HEIGHT = 760, 420
NAMED = 12  # layers with a name beside the dot, at most
COLOURS = {"array": BLUE, "bandwidth": ORANGE, "vector": GREEN, "other": RED}
X, Y = "multiply-accumulates per byte transferred", "multiply-accumulates per cycle"


def roofline(title: str, points: Sequence[Row], roofs: Sequence[Row], slopes: Sequence[Row]) -> Spec:
    """`points`: name, intensity, rate, cycles, limit. `roofs`: name and rate (MAC/cycle) of compute units,
    the highest first. `slopes`: name and rate (bytes per cycle) of memories, the external one first."""
    peak, wide = roofs[0]["rate"], slopes[0]["rate"]
    x = _decades([p["intensity"] for p in points] + [peak / wide], 2.0)
    y = _decades([p["rate"] for p in points] + [peak], 1.05)
    total = sum(p["cycles"] for p in points) or 1.0
    dots = [_dot(p, total) for p in sorted(points, key=lambda p: -p["cycles"])]
    axes = {"x": _log("x", X, x), "y": _log("y", Y, y)}
    lines = [*_flat(roofs, wide, x), *_sloped(slopes, peak, x, y)]
    ends = [line for line in lines if line["label"]]
    layers = [
        {
            "data": rows(lines),
            "mark": {"type": "line", "strokeWidth": 1.5, "clip": True, "aria": False},
            "encoding": {
                **axes,
                "detail": {"field": "line"},
                "strokeDash": {
                    "field": "dash",
                    "type": "nominal",
                    "legend": None,
                    "scale": {"domain": [False, True], "range": [[1, 0], [5, 4]]},
                },
            },
        },
        {
            "data": rows(ends),
            "mark": {"type": "text", "align": "right", "dx": -4, "dy": -7, "aria": False},
            "encoding": {**axes, "text": {"field": "label"}},
        },
        {
            "data": rows(dots),
            "mark": {"type": "circle", "opacity": 0.65},
            "encoding": {
                **axes,
                "size": {"field": "area", "type": "quantitative", "scale": None, "legend": None},
                "color": coloured("limit", COLOURS, "busiest"),
                **shown("label"),
            },
        },
        {
            "data": rows(_named(dots, x, y)),
            "mark": {"type": "text", "align": "left", "fontSize": 10, "aria": False},
            "encoding": {**axes, "text": {"field": "name"}},
        },
    ]
    subtitle = "area of a dot: its layer's cycles"
    return figure(WIDTH, HEIGHT, layers, title={"text": title, "subtitle": subtitle})


def _dot(point: Row, total: float) -> Row:
    words = (
        f"{point['name']}: {point['rate']:.1f} MAC/cycle, {point['intensity']:.1f} MAC/byte, "
        f"{point['cycles']:,.0f} cycles, {point['limit']}"
    )
    limit = point["limit"] if point["limit"] in COLOURS else "other"
    radius = 3.0 + 26.0 * sqrt(point["cycles"] / total)
    where = {"x": point["intensity"], "y": point["rate"], "area": 3.14 * radius**2, "radius": radius}
    return {**where, "limit": limit, "label": words, "name": brief(point["name"])}


def _flat(roofs: Sequence[Row], wide: float, x: tuple[float, float]) -> Iterator[Row]:
    for index, roof in enumerate(roofs):
        common = {"line": f"roof {index}", "y": roof["rate"], "dash": index > 0}
        yield {**common, "x": max(x[0], roof["rate"] / wide), "label": ""}
        yield {**common, "x": x[1], "label": f"{roof['name']} {roof['rate']:,} MAC/cycle"}


def _sloped(
    slopes: Sequence[Row], peak: float, x: tuple[float, float], y: tuple[float, float]
) -> Iterator[Row]:
    """The roofs that memories of some bytes per cycle set."""
    for index, slope in enumerate(slopes):
        common, wide = {"line": f"slope {index}", "dash": index > 0}, slope["rate"]
        low, high = max(x[0], y[0] / wide), peak / wide
        yield {**common, "x": low, "y": low * wide, "label": ""}
        middle = sqrt(low * high)
        yield {**common, "x": middle, "y": middle * wide, "label": f"{slope['name']} {wide:g} bytes/cycle"}
        yield {**common, "x": high, "y": peak, "label": ""}


def _named(dots: Sequence[Row], x: tuple[float, float], y: tuple[float, float]) -> Iterator[Row]:
    """The largest layers, without those whose name would lie on another."""
    taken: list[tuple[float, float, float]] = []
    for dot in dots[:NAMED]:
        left = log10(dot["x"] / x[0]) / log10(x[1] / x[0]) * WIDTH + dot["radius"] + 3
        down, wide = log10(dot["y"] / y[0]) / log10(y[1] / y[0]) * HEIGHT, 5.6 * len(dot["name"])
        if all(left > b or left + wide < a or abs(down - c) > 12 for a, b, c in taken):
            taken.append((left, left + wide, down))
            yield {**dot, "x": x[0] * (x[1] / x[0]) ** (left / WIDTH)}


def _decades(values: Sequence[float], room: float) -> tuple[float, float]:
    """Powers of ten around all values."""
    low, high = floor(log10(min(values) / 1.5)), ceil(log10(max(values) * room))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _log(name: str, title: str, ends: tuple[float, float]) -> Spec:
    label = "datum.value < 1 ? format(datum.value, '~g') : format(datum.value, '~s')"
    axis = {"labelExpr": label, "tickCount": round(log10(ends[1] / ends[0]))}
    return number(name, title, {"type": "log", "domain": list(ends), "nice": False}, axis=axis)


def brief(name: str, most: int = 30) -> str:
    """A path without the operator at its end; of long names the end, where they differ."""
    parts = [p for p in name.split("/") if p]
    operator = len(parts) > 1 and parts[-1].rstrip("0123456789_").isalpha() and parts[-1][:1].isupper()
    short = "/".join(parts[:-1] if operator else parts)
    return short if len(short) <= most else ".." + short[2 - most :]
