"""Rows of text in aligned columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """A line for each row; rows have equally many cells. `right`: right-aligned columns, by number."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(f"{c:>{w}}" if i in right else f"{c:<{w}}" for i, (c, w) in cells).rstrip()
