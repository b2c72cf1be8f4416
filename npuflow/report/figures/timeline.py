"""The schedule on the clock: what every queue of every core does when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuflow.report.figures.spec import GREY, QUEUES, Spec, coloured, figure, number, rows, zoom

WIDTH, ROW = 1000, 26


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
