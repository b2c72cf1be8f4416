"""Profiles as flat rows, CSV text and XLSX workbooks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from npuflow.base.errors import UsageError
from npuflow.base.extras import needs
from npuflow.report.profile import memory
from npuflow.report.profile.loops import loops
from npuflow.report.profile.measure import Profile, Row

INNER = {"stalls": "stall", "path": "path", "terms": "clock", "schedule_terms": "schedule"}


def flat(row: Mapping[str, Any]) -> Row:
    """Inner tables as columns of their own; lists as text."""
    found: Row = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= {f"{INNER.get(key, key)} {name}": inner for name, inner in value.items()}
        else:
            found[key] = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return found


def columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All keys, in the order in which they first come."""
    return list(dict.fromkeys(key for row in rows for key in row))


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    shown = [flat(row) for row in rows]
    file = io.StringIO()
    writer = csv.DictWriter(file, columns(shown), lineterminator="\n")
    writer.writeheader()
    writer.writerows(shown)
    return file.getvalue()


def save_workbook(path: Path, found: Profile) -> None:
    """Sheets with totals, layers, groups, commands and both memories; needs the package xlsxwriter."""
    with needs(
        "XLSX needs the package xlsxwriter",
        kind=UsageError,
        hint="pip install 'npuflow[xlsx]', or --csv",
        code="NF-USAGE-051",
    ):
        import xlsxwriter
    totals = [{"what": k, "value": v} for k, v in flat(found.totals()).items()]
    sheets = {
        "totals": totals, "layers": [*found.operators(), *found.host_rows], "groups": found.layers(),
        "commands": list(found.commands()),
        **({"loops": loops(found)} if found.program.meta.get("loops") else {}),
        "external memory": memory.external(found), "local memory": memory.local(found),
    }
    book = xlsxwriter.Workbook(str(path), {"constant_memory": True})
    try:
        bold, number = book.add_format({"bold": True}), book.add_format({"num_format": "#,##0.###"})
        for name, rows in sheets.items():
            _sheet(book.add_worksheet(name), [flat(r) for r in rows], bold, number)
    finally:
        try:
            book.close()
        except (OSError, xlsxwriter.exceptions.FileCreateError) as error:
            raise UsageError(f'cannot write "{path}": {error}', code="NF-USAGE-025") from error


def _sheet(sheet: Any, rows: Sequence[Mapping[str, Any]], bold: Any, number: Any) -> None:
    names = columns(rows)
    sheet.freeze_panes(1, 1)
    if names:
        sheet.autofilter(0, 0, len(rows), len(names) - 1)
    for x, name in enumerate(names):
        sheet.set_column(x, x, max(10, min(40, len(name) + 2)))
        sheet.write_string(0, x, name, bold)
    for y, row in enumerate(rows[: 1_048_575], 1):
        for x, name in enumerate(names):
            value = row.get(name)
            if isinstance(value, bool | str):
                sheet.write_string(y, x, str(value))
            elif value is not None:
                sheet.write_number(y, x, value, number)
