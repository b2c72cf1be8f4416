"""MQBench's clip ranges, the table beside a deployed model, in the forms of its back ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil, log2
from typing import Any, ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, exact, grid, tree
from npuflow.ir.types import QuantType

BACKENDS = ("ppl", "vitis", "tensorrt", "sophgo_tpu", "ppl-cuda")


@EXCHANGE.entry
class Mqbench:
    """`MODEL_clip_ranges.json` of the back ends ppl (scales, zero points, ends of ranges), vitis (scales of
    signed codes of 8 bits), tensorrt and ppl-cuda (the larger end of a range) and sophgo_tpu (both ends).
    Written as of ppl. What its back end snpe writes is read as `aimet`."""

    suffix: ClassVar[str] = "_clip_ranges.json"
    rows: ClassVar[Rows] = "any"
    omits: ClassVar[str] = "the axis of a per-channel scale is not stated; a range alone becomes 8-bit codes"

    def recognises(self, text: str) -> bool:
        held = tree(text)
        if held is not None:
            return any(isinstance(held.get(name), Mapping) for name in BACKENDS)
        lines = [line for line in text.splitlines() if line.strip()]
        return bool(lines) and all(_line(line) is not None for line in lines)

    def read(self, text: str) -> dict[str, TensorEntry]:
        held = tree(text)
        if held is None:                                 # what ppl-cuda leaves in the end: lines of text
            rows = dict(_line(line) or _no_line(line) for line in text.splitlines() if line.strip())
            return {name: TensorEntry(-top, top) for name, top in rows.items()}
        backend = next((name for name in BACKENDS if name in held), None)
        if backend is None:
            raise DataError(
                "the file has clip ranges of no known back end",
                because=f"its keys are {', '.join(held) or 'none'}",
                hint=f"one of {', '.join(BACKENDS)}", code="NF-TABLE-032",
            )
        rows = held[backend]
        if backend == "tensorrt":
            rows = rows["blob_range"]
        return {name: _entry(row) for name, row in rows.items()}

    def write(self, table: Table) -> str:
        return json.dumps({"ppl": {name: _row(entry) for name, entry in table.items()}}, indent=4) + "\n"


def _line(line: str) -> tuple[str, float] | None:
    name, colon, number = line.rpartition(": ")
    try:
        return (name, abs(float(number))) if colon and name else None
    except ValueError:
        return None


def _no_line(line: str) -> tuple[str, float]:
    raise DataError("a line is not a name and a number", because=repr(line), code="NF-TABLE-033")


def _entry(row: Any) -> TensorEntry:
    if not isinstance(row, Mapping):
        return TensorEntry(-abs(float(row)), abs(float(row)))
    if "step" in row:
        return _codes(row)
    if "scale" in row:
        return exact(QuantType(8, True, (float(row["scale"]),)), "mqbench")
    return TensorEntry(float(row["min"]), float(row["max"]))


def _codes(row: Mapping[str, Any]) -> TensorEntry:
    """A row of ppl: real = step * (code - zero point). The ends tell which codes there are; the stated number
    of bits is one too small where the lowest code is not used."""
    many = isinstance(row["step"], list)
    steps, zeros, lows, highs = (
        value if isinstance(value, list) else [value]
        for value in (row[key] for key in ("step", "zero_point", "min", "max"))
    )
    lowest, highest = (round(end[0] / steps[0]) + int(zeros[0]) for end in (lows, highs))
    signed = lowest < 0
    bits = ceil(log2(max(highest + 1, -lowest))) + 1 if signed else ceil(log2(highest + 1))
    axis = 0 if many else None
    quant = QuantType(max(bits, 1), signed, tuple(map(float, steps)), tuple(map(int, zeros)), axis)
    return exact(quant, "mqbench", many)


def _row(entry: TensorEntry) -> dict[str, Any]:
    quant = grid(entry)
    lowest = -(1 << (quant.bits - 1)) if quant.signed else 0
    pairs = list(zip(quant.scale, quant.zero_point, strict=True))
    held: dict[str, list[Any]] = {
        "step": list(quant.scale),
        "zero_point": list(quant.zero_point),
        "min": [scale * (lowest - zero) for scale, zero in pairs],
        "max": [scale * (lowest + (1 << quant.bits) - 1 - zero) for scale, zero in pairs],
    }
    alone = {key: values[0] for key, values in held.items()}
    return {**(held if quant.axis is not None else alone), "bit": quant.bits, "type": "biased"}
