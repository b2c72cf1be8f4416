"""Tables of the report on what a build compared: float graph and source model,
program and exported QDQ model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuflow.checks.qdq_check import TensorParting
from npuflow.checks.qdq_verdict import QdqVerdict
from npuflow.checks.rewrite_check import OutputError, RewriteCulprit
from npuflow.rewrite.rewrite import Applied

Table = tuple[str, Sequence[str], Sequence[Sequence[Any]]]

ERRORS = ("output", "largest error", "part of its largest value", "accepted", "not comparable because")
CULPRITS = ("rule", "nodes", "error before", "error after")
ALONE = ("tensor", "layer", "elements", "equal, %", "SQNR, dB")
FED = ("fed: different", "fed: by rounding", "fed: mean difference, codes", "bias")


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
