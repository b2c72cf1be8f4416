"""The histogram of a tensor with its calibration thresholds; a sheet of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuflow.report.figures.spec import BLUE, RED, Row, Spec, figure, number, rows, shortened

WIDTH, HEIGHT = 400, 150
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


def template() -> Spec:
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
    return figure(WIDTH, HEIGHT, layers, data=rows([]))


def histogram(panel: Panel) -> Spec:
    """A histogram with its title."""
    title = {"text": shortened(panel.title, 62), "subtitle": [shortened(line, 88) for line in panel.lines]}
    return {**template(), "data": rows([panel.row()]), "title": {**title, "offset": 16}}


def sheet(panels: Sequence[Panel], columns: int = 2) -> Spec:
    """Histograms side by side."""
    return {"concat": [histogram(panel) for panel in panels], "columns": columns}
