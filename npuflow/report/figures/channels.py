"""The range of every channel of a tensor, beside the tensor's calibration thresholds."""

from __future__ import annotations

from collections.abc import Sequence

from npuflow.report.figures.spec import BLUE, RED, Row, Spec, figure, number, rows

WIDTH, HEIGHT = 400, 130


def template() -> Spec:
    """Ranges of channels without data: `data.values` takes one row with lowest and highest (a list each) and
    the thresholds low and high, or null."""
    each = [
        {"flatten": ["lowest", "highest"]},
        {"window": [{"op": "row_number", "as": "number"}]},
        {"calculate": "datum.number - 1", "as": "channel"},
        {"calculate": "datum.number - 0.1", "as": "end"},
    ]
    ends = [
        {"calculate": "[datum.low, datum.high]", "as": "lowest"},
        {"filter": "isValid(datum.low)"},
        {"flatten": ["lowest"]},
    ]
    y = number("lowest", "range", {"zero": False}, axis={"format": ".3~g"})
    tooltip = [number(name, name, format=".4~g") for name in ("channel", "lowest", "highest")]
    layers = [
        {
            "transform": each,
            "mark": {"type": "bar", "color": BLUE, "aria": False},
            "encoding": {
                "x": number("channel", "channel", {"nice": False}),
                "x2": {"field": "end"},
                "y": y,
                "y2": {"field": "highest"},
                "tooltip": tooltip,
            },
        },
        {
            "transform": ends,
            "mark": {"type": "rule", "color": RED, "strokeWidth": 1.5, "aria": False},
            "encoding": {"y": y},
        },
    ]
    return figure(WIDTH, HEIGHT, layers, data=rows([]))


def channels(
    title: str, lowest: Sequence[float], highest: Sequence[float], threshold: tuple[float, float] | None
) -> Spec:
    """Ranges of channels with a title."""
    low, high = threshold if threshold is not None else (None, None)
    row: Row = {"lowest": list(lowest), "highest": list(highest), "low": low, "high": high}
    return {**template(), "data": rows([row]), "title": title}
