"""npuflow's own table in JSON: lo and hi of each tensor, codes where they are to be exact."""

from __future__ import annotations

import json
from typing import ClassVar

from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, plain_row, row_of, tree


@EXCHANGE.entry
class Json:
    """Says everything."""

    suffix: ClassVar[str] = ".json"
    rows: ClassVar[Rows] = "any"
    omits: ClassVar[str] = ""

    def recognises(self, text: str) -> bool:
        rows = (tree(text) or {}).values()
        return bool(rows) and all(isinstance(row, dict) and ("lo" in row or "codes" in row) for row in rows)

    def read(self, text: str) -> dict[str, TensorEntry]:
        return {name: row_of(name, row) for name, row in json.loads(text).items()}

    def write(self, table: Table) -> str:
        return json.dumps({name: plain_row(entry) for name, entry in table.items()}, indent=1) + "\n"
