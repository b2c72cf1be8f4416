"""Figures of builds over commits: a panel for each figure, a line for each build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.report.figures.spec import Row, Spec, number, rows, shown

WIDTH, HEIGHT = 740, 130


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
    return {"width": WIDTH, "height": HEIGHT, "layer": layers, "data": rows(data)}
