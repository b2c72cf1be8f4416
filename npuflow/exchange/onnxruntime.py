"""The ranges of onnxruntime's calibrators: the JSON of TensorsData, and
`calibration.json` and `.cache` files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, tree


@EXCHANGE.entry
class OnnxRuntime:
    """Read are `lowest` and `highest`; histograms are not. Written as of the MinMax method."""

    suffix: ClassVar[str] = ".json"
    rows: ClassVar[Rows] = "every"
    omits: ClassVar[str] = "weights and codes are left out"

    def recognises(self, text: str) -> bool:
        held = tree(text)
        if held is not None:
            rows = held.get("data", held)
            return isinstance(rows, dict) and any(
                isinstance(r, dict) and r.get("CLS") == "TensorData" for r in rows.values()
            )
        lines = [line.split() for line in text.split("\n")[:5]]
        # with a colon behind every name they are MQBench's
        return (
            bool(lines[0])
            and all(len(words) == 2 and _number(words[1]) for words in lines if words)
            and not all(words[0].endswith(":") for words in lines if words)
        )

    def read(self, text: str) -> dict[str, TensorEntry]:
        held = tree(text)
        if held is None:
            return _lines(text)
        method = held.get("calibration_method", "")
        said = method.get("value", "").split(".")[-1] if isinstance(method, Mapping) else str(method)
        rows = held["data"] if held.get("CLS") == "TensorsData" else held
        return {name: TensorEntry(*_range(name, row), None, said.lower()) for name, row in rows.items()}

    def write(self, table: Table) -> str:
        rows = {
            name: {"lowest": _array(entry.lo), "highest": _array(entry.hi), "CLS": "TensorData"}
            for name, entry in table.items()
            if not entry.constant
        }
        method = {"CLS": "CalibrationMethod", "value": "CalibrationMethod.MinMax"}
        return json.dumps({"CLS": "TensorsData", "data": rows, "calibration_method": method}) + "\n"


def _array(value: float) -> dict[str, Any]:
    """A float32 scalar; the digits that name it among all float32 suffice, but all are kept."""
    return {"data": value, "dtype": "float32", "CLS": "numpy.array"}


def _range(name: str, row: Mapping[str, Any]) -> tuple[float, float]:
    ends = []
    for key in ("lowest", "highest"):
        value = row.get(key)
        value = value.get("data") if isinstance(value, Mapping) else value
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, list):
            raise DataError(
                f'"{name}" has {len(value)} ranges, one per channel',
                hint="calibrate without per_channel", code="NF-TABLE-009",
            )
        if not isinstance(value, int | float):
            raise DataError(
                f'"{name}" has no "{key}"',
                because="a calibrator of the Distribution method keeps none", code="NF-TABLE-010",
            )
        ends.append(float(value))
    return ends[0], ends[1]


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _lines(text: str) -> dict[str, TensorEntry]:
    """`calibration.cache`: a name and the larger end of its range."""
    table = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.rsplit(maxsplit=1)
        if not words:
            continue
        if len(words) != 2 or not _number(words[1]):
            raise DataError(
                f"line {number} is not a name and a number", because=repr(line), code="NF-TABLE-011",
            )
        top = abs(float(words[1]))
        table[words[0]] = TensorEntry(-top, top)
    return table
