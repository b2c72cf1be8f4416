"""AIMET encodings and QNN's overrides: bit width, scale and offset of activations and parameters.
Versions 0.4 to 1.0, 2.0 and 2.1 are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, exact, grid, tree
from npuflow.ir.types import QuantType

KINDS = (("activation_encodings", False), ("param_encodings", True))


@EXCHANGE.entry
class Aimet:
    """real = scale * (code + offset), codes from 0 up; written as version 1.0.0. Of the two ends of a range
    alone, as QNN and SNPE take them, the scale is their distance over the number of steps; a row that states
    neither scale nor range says nothing of its tensor."""

    suffix: ClassVar[str] = ".encodings"
    rows: ClassVar[Rows] = "held"
    omits: ClassVar[str] = "the axis of a per-channel scale is not stated"

    def recognises(self, text: str) -> bool:
        held = tree(text)
        return held is not None and bool({"activation_encodings", "param_encodings", "encodings"} & set(held))

    def read(self, text: str) -> dict[str, TensorEntry]:
        held = json.loads(text)
        if "encodings" in held:
            return {
                row["name"]: _onnx_like(row)
                for row in held["encodings"]
                if "float" not in str(row["output_dtype"])
            }
        table: dict[str, TensorEntry] = {}
        for key, constant in KINDS:
            for name, rows in _rows(held.get(key, ())):
                found = _entry(name, rows, constant)
                if found is not None:
                    table[name] = found
        return table

    def write(self, table: Table) -> str:
        lists: dict[str, list[Any]] = {key: [] for key, _ in KINDS}
        for name, entry in table.items():
            lists[KINDS[entry.constant][0]].append({"name": name, **_encoding(entry)})
        held = {"version": "1.0.0", **lists, "excluded_layers": [], "producer": "npuflow"}
        return json.dumps(held, indent=1) + "\n"


def _rows(held: Any) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """(tensor, encodings): version 1 is a list of named ones with lists in them,
    older ones a mapping to lists."""
    if isinstance(held, Mapping):
        for name, rows in held.items():
            yield name, [rows] if isinstance(rows, Mapping) else list(rows)
        return
    for row in held:
        scales, offsets = row.get("scale", []), row.get("offset", [])
        if any(row.get("zero_point_shift", ())):
            raise _between(row["name"])
        shared = {
            "bitwidth": row["bw"],
            "dtype": row.get("dtype", "INT"),
            "is_symmetric": row.get("is_sym", False),
        }
        if row.get("enc_type", "PER_TENSOR") not in ("PER_TENSOR", "PER_CHANNEL"):
            raise DataError(
                f'"{row["name"]}" is encoded {row["enc_type"]}',
                hint="export it PER_TENSOR or PER_CHANNEL, or leave its row out", code="NF-TABLE-005",
            )
        yield (
            row["name"],
            [{**shared, "scale": s, "offset": o} for s, o in zip(scales, offsets, strict=True)] or [shared],
        )


def _entry(name: str, rows: Sequence[Mapping[str, Any]], constant: bool) -> TensorEntry | None:
    """None for a tensor left in floating point, or of which only the width is stated."""
    first = rows[0]
    if str(first.get("dtype", "int")).lower() == "float" or not {"scale", "max"} & set(first):
        return None
    bits, signed = int(first["bitwidth"]), str(first.get("is_symmetric", False)).lower() == "true"
    rows = [_scaled(row, bits) for row in rows]
    zeros = [_zero(row, bits) for row in rows]
    # A symmetric grid that is all positive has its zero at the lower end: those codes stay unsigned.
    signed = signed and all(z == 1 << (bits - 1) for z in zeros)
    shift = 1 << (bits - 1) if signed else 0
    scales = tuple(float(row["scale"]) for row in rows)
    axis = 0 if len(rows) > 1 else None
    return exact(QuantType(bits, signed, scales, tuple(z - shift for z in zeros), axis), "aimet", constant)


def _scaled(row: Mapping[str, Any], bits: int) -> Mapping[str, Any]:
    """The row with a scale: of a range alone, that of the grid which covers it and zero."""
    if "scale" in row:
        return row
    lo, hi = min(float(row["min"]), 0.0), max(float(row["max"]), 0.0)
    return {**row, "min": lo, "max": hi, "scale": (hi - lo) / ((1 << bits) - 1) or 1.0}


def _between(name: str) -> DataError:
    return DataError(
        f'"{name}" has its zero between two codes',
        because="its zero point is no whole number, so no code stands for 0",
        hint="quantise the tensor with a grid that holds zero, or leave its row out", code="NF-TABLE-031",
    )


def _zero(row: Mapping[str, Any], bits: int) -> int:
    """The code of zero. The offset is its negative; very old files have other signs
    there, so the minimum decides."""
    if "min" in row and float(row["min"]) <= 0:
        return min(max(round(-float(row["min"]) / float(row["scale"])), 0), (1 << bits) - 1)
    return round(-float(row["offset"]))


def _onnx_like(row: Mapping[str, Any]) -> TensorEntry:
    """Version 2: the parameters of QuantizeLinear by name; a negative axis counts from the last."""
    dtype = str(row["output_dtype"])
    signed, bits = not dtype.startswith("uint"), int(dtype.removeprefix("u").removeprefix("int"))
    given = row.get("y_scale")
    scales = given if isinstance(given, list) else [given]
    if row.get("block_size") is not None or not all(isinstance(s, int | float) for s in scales):
        raise DataError(
            f'"{row["name"]}" has scales per block, or scales that are quantised themselves',
            hint="export it with scales per tensor or per channel, or leave its row out",
            code="NF-TABLE-006",
        )
    zeros = row.get("y_zero_point")
    zeros = zeros if isinstance(zeros, list) else [zeros or 0] * len(scales)
    if any(zero != int(zero) for zero in zeros):
        raise _between(row["name"])
    axis = int(row.get("axis") or 0) if isinstance(given, list) else None
    return exact(QuantType(bits, signed, tuple(map(float, scales)), tuple(map(int, zeros)), axis), "aimet")


def _encoding(entry: TensorEntry) -> dict[str, Any]:
    quant = grid(entry)
    zeros = [z + (1 << (quant.bits - 1)) * quant.signed for z in quant.zero_point]
    kind = "PER_TENSOR" if quant.axis is None else "PER_CHANNEL"
    symmetric = quant.signed and not any(quant.zero_point)
    return {
        "bw": quant.bits, "dtype": "INT", "enc_type": kind, "is_sym": symmetric,
        "offset": [-z for z in zeros], "scale": list(quant.scale),
    }
