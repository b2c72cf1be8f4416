"""AIMET encodings: bit width, scale and offset of activations and parameters; versions
0.4 to 1.0 and 2.0 are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, exact, tree
from npuflow.ir.types import QuantType

KINDS = (("activation_encodings", False), ("param_encodings", True))


@EXCHANGE.entry
class Aimet:
    """real = scale * (code + offset), codes from 0 up; written as version 1.0.0."""

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
        yield from ((name, list(rows)) for name, rows in held.items())
        return
    for row in held:
        scales, offsets = row.get("scale", []), row.get("offset", [])
        shared = {
            "bitwidth": row["bw"],
            "dtype": row.get("dtype", "INT"),
            "is_symmetric": row.get("is_sym", False),
        }
        if row.get("enc_type", "PER_TENSOR") not in ("PER_TENSOR", "PER_CHANNEL"):
            raise DataError(
                f'"{row["name"]}" is encoded {row["enc_type"]}',
                hint="PER_TENSOR and PER_CHANNEL are supported", code="NF-TABLE-005",
            )
        yield (
            row["name"],
            [{**shared, "scale": s, "offset": o} for s, o in zip(scales, offsets, strict=True)] or [shared],
        )


def _entry(name: str, rows: Sequence[Mapping[str, Any]], constant: bool) -> TensorEntry | None:
    """None for a tensor left in floating point."""
    first = rows[0]
    if str(first.get("dtype", "int")).lower() == "float":
        return None
    bits, signed = int(first["bitwidth"]), str(first["is_symmetric"]).lower() == "true"
    zeros = [_zero(row, bits) for row in rows]
    # A symmetric grid that is all positive has its zero at the lower end: those codes stay unsigned.
    signed = signed and all(z == 1 << (bits - 1) for z in zeros)
    shift = 1 << (bits - 1) if signed else 0
    scales = tuple(float(row["scale"]) for row in rows)
    axis = 0 if len(rows) > 1 else None
    return exact(QuantType(bits, signed, scales, tuple(z - shift for z in zeros), axis), "aimet", constant)


def _zero(row: Mapping[str, Any], bits: int) -> int:
    """The code of zero. The offset is its negative; very old files have other signs
    there, so the minimum decides."""
    if "min" in row and float(row["min"]) <= 0:
        return min(max(round(-float(row["min"]) / float(row["scale"])), 0), (1 << bits) - 1)
    return round(-float(row["offset"]))


def _onnx_like(row: Mapping[str, Any]) -> TensorEntry:
    """Version 2: the parameters of QuantizeLinear by name."""
    dtype = str(row["output_dtype"])
    signed, bits = not dtype.startswith("uint"), int(dtype.removeprefix("u").removeprefix("int"))
    if row.get("block_size") is not None or "per_block_int_scale" in row:
        raise DataError(
            f'"{row["name"]}" has scales per block',
            hint="scales per tensor and per channel are supported", code="NF-TABLE-006",
        )
    scales = row["y_scale"] if isinstance(row["y_scale"], list) else [row["y_scale"]]
    zeros = row.get("y_zero_point")
    zeros = zeros if isinstance(zeros, list) else [zeros or 0] * len(scales)
    axis = int(row.get("axis") or 0) if isinstance(row["y_scale"], list) else None
    return exact(QuantType(bits, signed, tuple(map(float, scales)), tuple(map(int, zeros)), axis), "aimet")


def _encoding(entry: TensorEntry) -> dict[str, Any]:
    quant = entry.quant
    if quant is None:                     # a range alone: the 8-bit grid that covers it and zero
        lo, hi = min(entry.lo, 0.0), max(entry.hi, 0.0)
        scale = (hi - lo) / 255 or 1.0
        quant = QuantType(8, False, (scale,), (min(max(round(-lo / scale), 0), 255),))
    zeros = [z + (1 << (quant.bits - 1)) * quant.signed for z in quant.zero_point]
    kind = "PER_TENSOR" if quant.axis is None else "PER_CHANNEL"
    symmetric = quant.signed and not any(quant.zero_point)
    return {
        "bw": quant.bits, "dtype": "INT", "enc_type": kind, "is_sym": symmetric,
        "offset": [-z for z in zeros], "scale": list(quant.scale),
    }
