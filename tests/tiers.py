"""Long tests in tiers: every run or the slow suite takes a share of their cases, the next tier the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Any, TypeVar

import pytest

Row, Column = TypeVar("Row"), TypeVar("Column")


def tiered(cases: Iterable[Any], slow: int | Collection[Any]) -> list[Any]:
    """The cases as parameters of a test: the first `slow` of them, or those that it names, are marked slow,
    the others campaign. A tuple has the values of several parameters."""
    listed = list(cases)
    chosen = listed[:slow] if isinstance(slow, int) else list(slow)
    unknown = [case for case in chosen if case not in listed]
    assert chosen and not unknown, f"no cases of the test: {unknown}"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=pytest.mark.slow if case in chosen else pytest.mark.campaign,
        )
        for case in listed
    ]


def often(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases as parameters of a test: each `every`-th of them, from the first on, is run always, the
    others are marked slow. A tuple has the values of several parameters."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow if k % every else ()
        )
        for k, case in enumerate(cases)
    ]


def covering(rows: Sequence[Row], columns: Sequence[Column], each: int = 1) -> list[tuple[Row, Column]]:
    """Of the product of both: every row with `each` columns, taken by turns, so that every column has as many
    rows as any other, or one less."""
    assert each <= len(columns) and each * len(rows) >= len(columns), "some columns have no row"
    turns = (columns[turn % len(columns)] for turn in range(each * len(rows)))
    return [(row, next(turns)) for row in rows for _ in range(each)]


def spread(rows: Sequence[Row], columns: Sequence[Column], each: int = 1) -> list[Any]:
    """The product of both as parameters of a test: what `covering` takes of it is run always, the others are
    marked slow."""
    always = covering(rows, columns, each)
    return [
        pytest.param(*pair, marks=() if pair in always else pytest.mark.slow)
        for pair in product(rows, columns)
    ]
