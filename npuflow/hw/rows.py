"""Indices of a table's rows: the check where they enter a program.
Runner and reference share it, so it has no arithmetic of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from npuflow.base.errors import DataError


def check_rows(indices: npt.NDArray[Any], rows: int, name: str, parts: Sequence[int] = ()) -> None:
    """An error where an index points outside of a table of so many rows; a negative one counts from its end.
    No rows: they are no indices. `parts`: how many elements, in the order of memory, and the rows of their
    table, by turns; then these are what counts."""
    if parts:
        begin, held = 0, indices.reshape(-1)
        for count, own in zip(parts[::2], parts[1::2], strict=True):
            check_rows(held[begin : begin + count], own, name)
            begin += count
        return
    if not rows or not indices.size:
        return
    low, high = indices.min(), indices.max()
    if not -rows <= low <= high < rows:
        wrong = high if high >= rows else low
        raise DataError(
            f'"{name}" has the index {int(wrong)}; the table has {rows} rows',
            because=f"indices from {-rows} to {rows - 1} name a row",
            hint="check that the data were made for this network: its vocabulary, its tokenizer",
            code="NF-DATA-137",
        )
