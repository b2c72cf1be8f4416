"""The sum of the table."""

from __future__ import annotations

from npuflow.flow.stage import log, stage
from toybox.kinds import Table, Total


@stage
def total(table: Table) -> Total:
    log(f"sum of {len(table.rows)}")
    return Total(sum(table.rows))
