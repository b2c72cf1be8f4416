"""A directed graph as boxes and arrows: the tasks of a build, the layers of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from npuflow.report.figures.layered import GraphLayout, Needs, layout
from npuflow.report.figures.spec import GREY, LIGHT, Row, Spec, coloured, figure, hidden, rows, shown

BOX, GAP = (150.0, 34.0), (20.0, 24.0)


def boxes(nodes: Mapping[str, Row], needs: Needs, colours: Mapping[str, tuple[str, str]]) -> Spec:
    """`nodes`: name -> text, below (a second line), label (under the pointer) and kind; `colours`: kind ->
    fill and edge. A click gives the row of the box, with its name: the
    one that the row has, else its key."""
    placed = layout(needs, BOX, GAP)
    x = {name: hidden(name, 0, placed.width) for name in ("x", "left")}
    y = hidden("top", 0, placed.height, down=True)
    layers = [*_arrows(placed, x["x"], y), *_boxes(nodes, colours, x, y)]
    data = rows(_placed(nodes, placed))
    found = figure(placed.width, placed.height, layers, data=data, view={"stroke": None})
    return {**found, "config": {"legend": {"orient": "bottom", "direction": "horizontal"}}}


def _placed(nodes: Mapping[str, Row], placed: GraphLayout) -> Iterator[Row]:
    wide, tall = BOX
    for name, (x, y) in placed.places.items():
        across = {"left": x - wide / 2, "x": x, "right": x + wide / 2}
        yield {"name": name, **nodes[name], **across, "top": y, "bottom": y + tall}


def _arrows(placed: GraphLayout, x: Spec, y: Spec) -> Iterator[Row]:
    points = [
        {"route": i, "step": k, "x": across, "top": down}
        for i, route in enumerate(placed.routes)
        for k, (across, down) in enumerate(route)
    ]
    ends = [{"x": route[-1][0], "top": route[-1][1] - 3} for route in placed.routes]
    line = {"type": "line", "strokeWidth": 0.8, "interpolate": "monotone", "orient": "vertical"}
    head = {"type": "point", "shape": "triangle-down", "filled": True, "size": 26, "opacity": 1}
    yield {
        "data": rows(points),
        "mark": {**line, "color": GREY, "aria": False},
        "encoding": {"x": x, "y": y, "detail": {"field": "route"}, "order": {"field": "step"}},
    }
    yield {
        "data": rows(ends),
        "mark": {**head, "color": GREY, "aria": False},
        "encoding": {"x": x, "y": y},
    }


def _boxes(
    nodes: Mapping[str, Row], colours: Mapping[str, tuple[str, str]], x: Mapping[str, Spec], y: Spec
) -> Iterator[Row]:
    kinds = {node["kind"] for node in nodes.values()}
    fills, edges = ({k: both[end] for k, both in colours.items() if k in kinds} for end in (0, 1))
    yield {
        "mark": {"type": "rect", "cornerRadius": 4, "strokeWidth": 1, "cursor": "pointer"},
        "encoding": {
            "x": x["left"],
            "x2": {"field": "right"},
            "y": y,
            "y2": {"field": "bottom"},
            "fill": coloured("kind", fills),
            "stroke": coloured("kind", edges),
            **shown("label"),
        },
    }
    text = {"type": "text", "align": "center", "limit": BOX[0] - 8, "aria": False}
    for name, look in (
        ("text", {"dy": 14, "fontSize": 12, "color": LIGHT["ink"]}),
        ("below", {"dy": 27, "fontSize": 9, "color": LIGHT["soft"]}),
    ):
        yield {
            "mark": {**text, **look},
            "encoding": {"x": x["x"], "y": y, "text": {"field": name}},
        }
