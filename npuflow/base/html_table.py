"""Tables of rows: lists of dictionaries, which pandas takes as they are and notebooks show as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

MOST = 200  # rows that are shown
STYLE = "text-align: left; font-variant-numeric: tabular-nums"


class Rows(list[dict[str, Any]]):
    """Rows with named cells: `pandas.DataFrame(rows)` is a data frame of them."""

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The cells of every column; None where a row has none."""
        names = dict.fromkeys(name for row in self for name in row)
        return {name: [row.get(name) for row in self] for name in names}

    def _repr_html_(self) -> str:
        return table(self)


def table(rows: Sequence[Mapping[str, Any]], most: int = MOST) -> str:
    """An HTML table; of very many rows the first ones and how many there are."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f'<th style="{STYLE}">{escape(name)}</th>' for name in names)
    body = ""
    for row in rows[:most]:
        cells = (f'<td style="{STYLE}">{escape(shown(row.get(name)))}</td>' for name in names)
        body += f"<tr>{''.join(cells)}</tr>"
    more = f"<p>the first {most} of {len(rows):,} rows</p>" if len(rows) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def titled(title: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """A title, facts in one line each, and a table."""
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(shown(value))}</td></tr>" for name, value in facts.items()
    )
    return f"<b>{escape(title)}</b><table><tbody>{lines}</tbody></table>{table(rows) if rows else ''}"


def shown(value: Any) -> str:
    """A cell: numbers as a person reads them, sequences with commas."""
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.5g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(one)}" for name, one in value.items())
    if isinstance(value, Iterable):
        return ", ".join(map(shown, value))
    return str(value)
