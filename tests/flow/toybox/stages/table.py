"""All scaled numbers in listing order."""

from __future__ import annotations

from npuflow.flow.stage import Items, stage
from toybox.kinds import Scaled, Table


@stage
def table(scaled: Items[Scaled]) -> Table:
    return Table(tuple(one.value for one in scaled.values()))
