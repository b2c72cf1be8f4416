"""Memory over time: a box for everything that has an address, from its first step or cycle to its last."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.report.figures.spec import GREY, Row, Spec, figure, hue, number, rows, shown

WIDTH, HEIGHT = 860, 320
MOST = 6_000  # boxes of one map: the largest ones
HUES = 24


def memory_map(
    title: str, boxes: Sequence[Row], total: int, across: str, end: float, marks: Sequence[Row] = ()
) -> Spec:
    """`boxes`: start, end, address, size, group (of one colour) and label. `marks`: addresses with a line and
    a label across the map. The horizontal axis, called `across`, goes from 0 to `end`."""
    kept = sorted(boxes, key=lambda b: -b["size"] * (b["end"] - b["start"]))[:MOST]
    taken = [
        {**box, "top": box["address"] + box["size"], "group": f"{box['group'] % HUES}"}
        for box in sorted(kept, key=lambda b: (b["start"], b["address"]))
    ]
    groups = [str(i) for i in range(HUES)]
    scale = {"domain": groups, "range": [hue(i) for i in range(HUES)]}
    y = number("address", "address", {"domain": [0, total], "nice": False}, axis={"format": ",d"})
    lives = {
        "data": rows(taken),
        "mark": {"type": "rect", "strokeWidth": 0.5, "stroke": "white"},
        "encoding": {
            "x": number("start", across, {"domain": [0, end], "nice": False}),
            "x2": {"field": "end"},
            "y": y,
            "y2": {"field": "top"},
            "color": {"field": "group", "type": "nominal", "scale": scale, "legend": None},
            **shown("label"),
        },
    }
    lines = [
        {
            "data": rows(marks),
            "mark": {"type": "rule", "strokeDash": [5, 3], "color": GREY, "aria": False},
            "encoding": {"y": y},
        },
        {
            "data": rows(marks),
            "mark": {
                "type": "text",
                "align": "right",
                "x": WIDTH - 4,
                "dy": -6,
                "color": GREY,
                "aria": False,
            },
            "encoding": {"y": y, "text": {"field": "label"}},
        },
    ]
    return figure(WIDTH, HEIGHT, [lives, *(lines if marks else [])], title=title)


def maps(title: str, parts: Sequence[Spec]) -> Spec:
    """Several maps below each other."""
    return {"title": title, "vconcat": list(parts)}
