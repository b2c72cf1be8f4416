"""Points of a sweep: one goal over another, and the front of those that no other point beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npuflow.report.figures.spec import BLUE, ORANGE, Row, Spec, coloured, figure, number, rows, shown

WIDTH, HEIGHT = 740, 420
COLOURS = {"Pareto-optimal": ORANGE, "other": BLUE}


def pareto(
    names: Sequence[str], points: Sequence[Mapping[str, float]], best: Sequence[bool], right: str, up: str
) -> Spec:
    """`right` and `up` name the figures of the axes; points that lack one are left out."""
    shown_points = [
        {
            "name": name,
            "x": point[right],
            "y": point[up],
            "kind": "Pareto-optimal" if good else "other",
            "label": f"{name}: {right} {point[right]:g}, {up} {point[up]:g}",
        }
        for name, point, good in zip(names, points, best, strict=True)
        if up in point and right in point
    ]
    scale = {"zero": False, "padding": 24}
    axes = {"x": number("x", right, scale), "y": number("y", up, scale)}
    colour = coloured("kind", COLOURS)
    layers: list[Row] = [
        {
            "transform": [{"filter": "datum.kind == 'Pareto-optimal'"}],
            "mark": {"type": "line", "color": ORANGE, "aria": False},
            "encoding": {**axes, "order": number("x")},
        },
        {
            "mark": {"type": "circle", "size": 90, "opacity": 0.9},
            "encoding": {**axes, "color": colour, **shown("label")},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 9, "fontSize": 10, "aria": False},
            "encoding": {**axes, "text": {"field": "name"}},
        },
    ]
    return figure(WIDTH, HEIGHT, layers, data=rows(shown_points))
