"""The statistics of the Zhouyi Compass optimizer as JSON: extrema and running extrema by node and tensor."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, tree

KEYS = ("running_min", "running_max", "extrema_min", "extrema_max")


@EXCHANGE.entry
class CompassStatistics:
    """Running extrema, which the optimizer averages over batches, are the range; else the extrema. It
    keeps a pickle of this tree, which npuflow does not read: json.dump(tree, file, default=lambda v:
    v.tolist()) makes it one it does."""

    suffix: ClassVar[str] = "_statistic_info.json"
    rows: ClassVar[Rows] = "any"
    omits: ClassVar[str] = (
        "one range is used for both kinds of extrema; weights, codes and methods are left out"
    )

    def recognises(self, text: str) -> bool:
        nodes = [n for n in (tree(text) or {}).values() if isinstance(n, dict)]
        return any(isinstance(t, dict) and any(k in t for k in KEYS) for n in nodes for t in n.values())

    def read(self, text: str) -> dict[str, TensorEntry]:
        table: dict[str, TensorEntry] = {}
        for node, tensors in json.loads(text).items():
            for name, row in tensors.items():
                ends = [
                    _number(row.get(f"running_{end}"), row.get(f"extrema_{end}")) for end in ("min", "max")
                ]
                if None in ends:
                    raise DataError(
                        f'the tensor "{name}" of node "{node}" has no extrema',
                        because=f"it has {', '.join(row)}", code="NF-TABLE-008",
                    )
                table[name] = TensorEntry(
                    float(ends[0] or 0.0),
                    float(ends[1] or 0.0),
                    None,
                    "",
                    "extrema_min_key_axis" in row,
                    node,
                )
        return table

    def write(self, table: Table) -> str:
        nodes: dict[str, dict[str, Any]] = {}
        for name, entry in table.items():
            if not entry.constant:
                row = {key: entry.lo if key.endswith("min") else entry.hi for key in KEYS}
                nodes.setdefault(entry.node or name, {})[name] = row
        return json.dumps(nodes, indent=1) + "\n"


def _number(*values: Any) -> float | None:
    for value in values:
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, int | float):
            return float(value)
    return None
