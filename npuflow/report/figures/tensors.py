"""Figures of tensors: histograms and channels with calibration thresholds, and SQNR in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.report.figures.spec import BLUE, RED, Row, Spec, figure, number, rows, shortened, zoom

HISTOGRAM, CHANNELS, QUALITY = (400, 150), (400, 130), (1000, 130)    # width and height
FORMAT = ".4~g"


@dataclass(frozen=True)
class Panel:
    """One tensor: counts of equal bins over [lo, hi], thresholds, and lines to write under its name."""

    title: str
    lo: float
    hi: float
    counts: Sequence[float]
    threshold: tuple[float, float] | None = None
    lines: Sequence[str] = ()

    def row(self) -> Row:
        low, high = self.threshold if self.threshold is not None else (None, None)
        return {"lo": self.lo, "hi": self.hi, "counts": list(self.counts), "low": low, "high": high}


def histogram_template() -> Spec:
    """A histogram without data: `data.values` takes one row with lo, hi, counts, low and high (thresholds, or
    null). Bins and shaded areas are computed from it where the figure is drawn."""
    bins = [
        {"calculate": "length(datum.counts)", "as": "bins"},
        {"flatten": ["counts"]},
        {"window": [{"op": "row_number", "as": "bin"}]},
        {"calculate": "datum.lo + (datum.bin - 1) * (datum.hi - datum.lo) / datum.bins", "as": "from"},
        {"calculate": "datum.lo + datum.bin * (datum.hi - datum.lo) / datum.bins", "as": "to"},
        {"filter": "datum.counts > 0"},
    ]
    ends = [
        {"calculate": "[datum.low, datum.high]", "as": "end"},
        {"calculate": "[min(datum.low, datum.lo), max(datum.high, datum.hi)]", "as": "edge"},
        {"flatten": ["end", "edge"]},
        {"filter": "isValid(datum.low)"},
    ]
    x = number("end", scale={"zero": False, "nice": False}, axis={"format": FORMAT})
    quiet = {"color": RED, "aria": False}
    layers = [
        {
            "mark": {"type": "rect", "opacity": 0.13, **quiet},
            "transform": ends,
            "encoding": {"x": x, "x2": {"field": "edge"}},
        },
        {
            "mark": {"type": "bar", "color": BLUE, "binSpacing": 0, "aria": False},
            "transform": bins,
            "encoding": {
                "x": {**x, "field": "from", "bin": "binned"},
                "x2": {"field": "to"},
                "y": number("counts", scale={"type": "symlog"}, axis=None),
                "tooltip": [number(name, name, format=FORMAT) for name in ("from", "to", "counts")],
            },
        },
        {
            "mark": {"type": "rule", "strokeWidth": 1.5, **quiet},
            "transform": ends,
            "encoding": {"x": x, "tooltip": number("end", "threshold", format=FORMAT)},
        },
        {
            "mark": {"type": "text", "y": -6, **quiet},
            "transform": ends,
            "encoding": {"x": x, "text": number("end", format=FORMAT)},
        },
    ]
    return figure(*HISTOGRAM, layers, data=rows([]))


def histogram(panel: Panel) -> Spec:
    """A histogram with its title."""
    title = {"text": shortened(panel.title, 62), "subtitle": [shortened(line, 88) for line in panel.lines]}
    return {**histogram_template(), "data": rows([panel.row()]), "title": {**title, "offset": 16}}


def sheet(panels: Sequence[Panel], columns: int = 2) -> Spec:
    """Histograms side by side."""
    return {"concat": [histogram(panel) for panel in panels], "columns": columns}


def channel_template() -> Spec:
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
    return figure(*CHANNELS, layers, data=rows([]))


def channels(
    title: str, lowest: Sequence[float], highest: Sequence[float], threshold: tuple[float, float] | None
) -> Spec:
    """Ranges of channels with a title."""
    low, high = threshold if threshold is not None else (None, None)
    row: Row = {"lowest": list(lowest), "highest": list(highest), "low": low, "high": high}
    return {**channel_template(), "data": rows([row]), "title": title}


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
    return figure(*QUALITY, [bars], data=rows(data))
