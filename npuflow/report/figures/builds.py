"""Figures of several builds: over commits, by network and target, and points of a sweep with their front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.report.figures.spec import BLUE, ORANGE, Row, Spec, coloured, figure, number, rows, shown

WIDTH, PANEL, PLANE = 740, 130, 420
COLOURS = {"Pareto-optimal": ORANGE, "other": BLUE}


def history(points: Sequence[Row], figures: Mapping[str, str]) -> Spec:
    """`points`: rows of commit, build and figures, the oldest first; `figures`: name -> title, of which those
    that no row has are left out."""
    order = list(dict.fromkeys(str(row["commit"]) for row in points))
    panels = [
        _panel(points, name, title, order)
        for name, title in figures.items() if any(row.get(name) is not None for row in points)
    ]
    return {"vconcat": panels, "resolve": {"scale": {"color": "shared"}}}


def _panel(points: Sequence[Row], name: str, title: str, order: Sequence[str]) -> Spec:
    data = [
        {
            "commit": row["commit"], "build": row["build"], "value": row[name],
            "label": f"{row['build']} at {row['commit']}: {title} {row[name]:g}",
        }
        for row in points if row.get(name) is not None
    ]
    x = {"field": "commit", "type": "ordinal", "sort": list(order), "title": None,
         "axis": {"labelAngle": -40, "labelLimit": 90}}
    scale = {"zero": False, "padding": 8}
    colour = {"field": "build", "type": "nominal", "title": None}
    axes: dict[str, Any] = {"x": x, "y": number("value", title, scale), "color": colour}
    layers: list[Row] = [
        {"mark": {"type": "line", "aria": False}, "encoding": axes},
        {"mark": {"type": "circle", "size": 60}, "encoding": {**axes, **shown("label")}},
    ]
    return {"width": WIDTH, "height": PANEL, "layer": layers, "data": rows(data)}


def networks(points: Sequence[Row], figures: Mapping[str, tuple[str, str]]) -> Spec:
    """A panel for each figure (name -> title, scale), networks to the right, a colour for each target."""
    order = list(dict.fromkeys(str(row["network"]) for row in points))
    panels: list[Row] = []
    for name, (title, scale) in figures.items():
        data = [
            {"network": row["network"], "target": row["target"], "value": row[name],
             "label": f"{row['network']} on {row['target']}: {title} {row[name]:g}"}
            for row in points if isinstance(row.get(name), int | float)
        ]
        x = {"field": "network", "type": "nominal", "sort": order, "title": None,
             "scale": {"domain": order}, "axis": {"labelAngle": -40, "labelLimit": 90}}
        colour = {"field": "target", "type": "nominal", "title": None}
        y = number("value", title, {"type": scale, "zero": False, "padding": 6})
        axes = {"x": x, "y": y, "color": colour}
        mark = {"type": "circle", "size": 45, "opacity": 0.8}
        panels.append({
            "width": WIDTH, "height": PANEL, "mark": mark, "encoding": {**axes, **shown("label")},
            "data": rows(data),
        })
    return {"vconcat": panels, "resolve": {"scale": {"color": "shared"}}}


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
    return figure(WIDTH, PLANE, layers, data=rows(shown_points))
