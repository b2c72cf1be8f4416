"""Figures of a program: what every queue of every core does when, and where values lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuflow.report.figures.spec import (
    GREY,
    QUEUES,
    Row,
    Spec,
    coloured,
    figure,
    hue,
    number,
    rows,
    shown,
    zoom,
)

WIDTH, ROW = 1000, 26
MAP = 860, 320
MOST = 6_000                              # boxes of one map: the largest ones
HUES = 24


def timeline(
    queues: Sequence[str], events: Sequence[Sequence[Any]], names: Sequence[str], cycles: float
) -> Spec:
    """`events`: (queue, start, end, layer, opcode), queue and layer by place in `queues` and `names`."""
    commands = {"values": [dict(zip("qsenc", event, strict=True)) for event in events]}
    layers = rows({"layer": i, "name": name} for i, name in enumerate(names))
    labels = rows({"queue": i, "label": label, "kind": kind(label)} for i, label in enumerate(queues))
    transform = [
        {"lookup": "q", "from": {"data": labels, "key": "queue", "fields": ["label", "kind"]}},
        {"lookup": "n", "from": {"data": layers, "key": "layer", "fields": ["name"]}, "default": "?"},
    ]
    titles = {"name": "layer", "c": "opcode", "label": "queue", "s": "from cycle", "e": "to cycle"}
    bars = {
        "mark": {"type": "bar", "clip": True, "height": ROW - 8, "aria": False},
        "encoding": {
            "x": number("s", "cycle", {"domain": [0, cycles], "nice": False}),
            "x2": {"field": "e"},
            "y": {"field": "label", "type": "nominal", "title": None, "sort": list(queues)},
            "color": coloured("kind", {**QUEUES, "other": GREY}, legend=None),
            "tooltip": [{"field": field, "title": title} for field, title in titles.items()],
        },
        "params": [zoom("x")],
    }
    return figure(WIDTH, ROW * max(1, len(queues)), [bars], data=commands, transform=transform)


def kind(queue: str) -> str:
    """Of a queue such as "1.LOAD0": what it does."""
    word = queue.rpartition(".")[2].rstrip("0123456789")
    return word if word in QUEUES else "other"

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
                "x": MAP[0] - 4,
                "dy": -6,
                "color": GREY,
                "aria": False,
            },
            "encoding": {"y": y, "text": {"field": "label"}},
        },
    ]
    return figure(*MAP, [lives, *(lines if marks else [])], title=title)


def maps(title: str, parts: Sequence[Spec]) -> Spec:
    """Several maps below each other."""
    return {"title": title, "vconcat": list(parts)}
