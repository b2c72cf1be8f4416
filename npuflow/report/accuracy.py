"""The report's tables of accuracy: outputs from the recipe's widths to the final program,
what was widened, what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.strategies import Output
from npuflow.tune.precision.advice import Fix
from npuflow.tune.precision.judge import JudgedOutput
from npuflow.tune.precision.widened import Widened

Table = tuple[str, Sequence[str], Sequence[Sequence[Any]]]
LEAST = 1e-6                              # share of clipped values that is worth a row
MOST = 30                                 # rows of clipped tensors

OUTPUTS = (
    "output",
    "dB at the recipe's widths",
    "dB after [precision]",
    "dB of the program",
    "four of five samples reach",
    "equal answers, %",
    "judged",
)


def tables(
    before: Sequence[Output],
    after: Sequence[Output],
    found: Sequence[JudgedOutput],
    wider: Sequence[Widened],
    fixes: Sequence[Fix],
    clipped: Mapping[str, float],
) -> list[Table]:
    """For the page's notes."""
    first, second = ({o.name: _db(o.sqnr) for o in outputs} for outputs in (before, after))
    rows = [
        (
            o.name,
            first.get(o.name),
            second.get(o.name),
            _db(o.sqnr),
            _db(o.low),
            _share(o.agreement),
            "good" if s.ok else "poor",
        )
        for s in found
        for o in (s.output,)
    ]
    most = sorted(
        ((name, share) for name, share in clipped.items() if share > LEAST), key=lambda pair: -pair[1]
    )[:MOST]
    return [
        ("Accuracy: outputs on held-out calibration samples", OUTPUTS, rows),
        ("Accuracy: fixes that were applied and help", ("fix", "enough", "to paste"),
         [(f.line, "yes" if f.holds else "no", f.toml) for f in fixes]),
        ("Accuracy: in wider codes than the recipe's",
         ("tensor or weight", "layer", "kind", "became", "dB when it alone is narrow"),
         [(w.name, w.layer, w.kind, w.became, None if w.alone is None else _db(w.alone)) for w in wider]),
        ("Accuracy: clipped values, most first", ("tensor", "% of its values beyond its codes"),
         [(name, round(100 * share, 4)) for name, share in most]),
    ]


def _db(level: float) -> float:
    return round(level, 2)


def _share(agreement: float | None) -> float | None:
    return None if agreement is None else round(100 * agreement, 2)
