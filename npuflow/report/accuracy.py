"""The report's tables of accuracy: what a build compared, outputs at all widths, what was widened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.checks.qdq_check import TensorParting
from npuflow.checks.qdq_verdict import QdqVerdict
from npuflow.checks.rewrite_check import OutputError, RewriteCulprit
from npuflow.rewrite.rewrite import Applied
from npuflow.strategies import Output
from npuflow.tune.precision.advice import Fix
from npuflow.tune.precision.output_check import JudgedOutput
from npuflow.tune.precision.widened import Widened

Table = tuple[str, Sequence[str], Sequence[Sequence[Any]]]

ERRORS = ("output", "largest error", "part of its largest value", "accepted", "not comparable because")
CULPRITS = ("rule", "nodes", "error before", "error after")
ALONE = ("tensor", "layer", "elements", "equal, %", "SQNR, dB")
FED = ("fed: different", "fed: by rounding", "fed: mean difference, codes", "bias")
LEAST = 1e-6                              # share of clipped values that is worth a row
MOST = 30                                 # rows of clipped tensors

OUTPUTS = (
    "output",
    "dB at the recipe's widths",
    "dB after [precision]",
    "dB of the program",
    "give or take",
    "dB on parts of the samples",
    "four of five samples reach",
    "equal answers, %",
    "judged",
)


def of_rewrites(
    applied: Sequence[Applied], errors: Sequence[OutputError], culprits: Sequence[RewriteCulprit], reason: str
) -> list[Table]:
    """Every output beside the source model's, what moved values, and every change."""
    rows = [(e.name, e.absolute, e.relative, e.limit, e.note) for e in errors]
    moved = [(c.change.rule, c.change.line() if c.change.node else "", c.before, c.after) for c in culprits]
    changes = [
        (c.rule, *(", ".join(f"{op} {name}" for op, name in nodes) for nodes in (c.removed, c.made)))
        for c in applied
    ]
    return [
        (
            "Rewritten float graph compared with the source model",
            ERRORS,
            rows or [("", None, None, None, reason)],
        ),
        *([("Rewrites that moved values", CULPRITS, moved)] if moved else []),
        ("Rewrites", ("rule", "nodes before", "nodes after"), changes),
    ]


def of_qdq(tensors: Mapping[str, TensorParting], verdict: QdqVerdict | None, reason: str) -> list[Table]:
    """What they say together, and every tensor that has other codes than the program's."""
    rows = [_row(name, one) for name, one in tensors.items() if one.different or one.fed_different]
    said = verdict.text if verdict is not None else f"not compared: {reason}"
    return [
        ("QDQ model compared with the program", ("in a sentence",), [(said,)]),
        *(
            [("QDQ model compared with the program: tensors that differ", (*ALONE, *FED), rows)]
            if rows
            else []
        ),
    ]


def _row(name: str, one: TensorParting) -> tuple[Any, ...]:
    sqnr = None if one.sqnr is None else round(one.sqnr, 1)
    alone = name, one.layer, one.elements, round(100 * (1 - one.different / one.elements), 2), sqnr
    return *alone, one.fed_different, one.rounding, round(one.mean, 4), "yes" if one.biased else ""


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
            None if s.give_or_take is None else _db(s.give_or_take),
            ", ".join(f"{level:.1f}" for level in s.parts_db),
            _db(o.low),
            _share(o.equal),
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


def judged(found: Sequence[JudgedOutput]) -> list[dict[str, Any]]:
    """For machines: every output as the verdict has it. `FIELDS` says what the fields mean."""
    return [dict(zip(FIELDS, _fields(one), strict=True)) for one in found]


FIELDS = {
    "name": "the output, or one of the tensors that it joins",
    "good": "whether it is close to the float model's",
    "sqnr_db": "dB on the held-out samples together",
    "four_of_five_db": "what four of five of them reach",
    "agreement": "share of equal answers; null for outputs that are no answers",
    "give_or_take_db": "how far `sqnr_db` of other samples of the same kind may be off, 19 times of 20, by "
    "how far parts of the samples disagree; null where they are too few",
    "parts_db": "dB on each of four disjoint parts of the samples; empty where they are fewer than 8",
    "where": "the output that says at which places this one counts, as boxes count where a score is high; "
    "empty where it counts everywhere",
    "disagree": "whether the parts disagree by so much that the build warns, unless a metric of the output "
    "is kept",
}
"""Of a row of `accuracy.outputs` in report.json."""


def _fields(one: JudgedOutput) -> tuple[Any, ...]:
    output, off = one.output, one.give_or_take
    levels = [_db(level) for level in one.parts_db]
    figures = output.name, one.ok, _db(output.sqnr), _db(output.low), output.equal
    return *figures, None if off is None else _db(off), levels, one.where, one.unsteady


def _db(level: float) -> float:
    return round(level, 2)


def _share(agreement: float | None) -> float | None:
    return None if agreement is None else round(100 * agreement, 2)
