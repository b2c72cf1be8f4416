"""SQNR of every tensor, in the network's order."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.report.figures.spec import BLUE, Row, Spec, figure, number, rows, zoom

WIDTH, HEIGHT = 1000, 130


def quality(tensors: Sequence[Row]) -> Spec:
    """`tensors`: id and sqnr (dB, or null: nothing is drawn)."""
    data = [
        {"place": i, "end": i + 0.9, "id": t["id"], "sqnr": t["sqnr"]}
        for i, t in enumerate(tensors)
        if t["sqnr"] is not None
    ]
    bars = {
        "mark": {"type": "bar", "color": BLUE, "clip": True, "cursor": "pointer"},
        "encoding": {
            "x": number("place", "tensors in order", {"nice": False}, axis={"labels": False, "ticks": False}),
            "x2": {"field": "end"},
            "y": number("sqnr", "SQNR, dB"),
            "y2": {"datum": 0},
            "tooltip": [{"field": "id", "title": "tensor"}, number("sqnr", "SQNR, dB", format=".1f")],
        },
        "params": [zoom("x")],
    }
    return figure(WIDTH, HEIGHT, [bars], data=rows(data))
