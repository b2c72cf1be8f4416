"""Vitis AI quant_info.json: bit width and fixed-point position of every tensor.
Scales are powers of two; or, as quantised for other devices than a DPU, its bit width, scale and zero point.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import log2
from typing import Any, ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, exact, tree
from npuflow.ir.types import QuantType

KINDS = (("param", True), ("output", False), ("input", False))


@EXCHANGE.entry
class VitisAi:
    """real = code * 2^-position, signed codes, or scale * (code - zero point). A name may have that of the
    network in front (`Net::conv1.weight`); of a node with several outputs the first counts."""

    suffix: ClassVar[str] = ".json"
    rows: ClassVar[Rows] = "any"
    omits: ClassVar[str] = "scales become the next powers of two, per tensor, zero points are left out"

    def recognises(self, text: str) -> bool:
        held = tree(text)
        return (
            held is not None
            and {"param", "output"} <= set(held)
            and all(isinstance(held[key], Mapping) for key in ("param", "output"))
        )

    def read(self, text: str) -> dict[str, TensorEntry]:
        held = json.loads(text)
        table: dict[str, TensorEntry] = {}
        for kind, constant in KINDS:
            for full, quant in _rows(held.get(kind, {})):
                name = full.rpartition("::")[2]
                table.setdefault(name, exact(quant, "vitis_ai", constant, "" if constant else name))
        return table

    def write(self, table: Table) -> str:
        held: dict[str, dict[str, list[list[int]]]] = {key: {} for key, _ in KINDS}
        for name, entry in table.items():
            bits = entry.quant.bits if entry.quant is not None else 8
            top = max(abs(entry.lo), abs(entry.hi))
            if entry.quant is not None:
                place = -round(log2(max(entry.quant.scale)))
            else:
                place = bits - 1 - (max(-64, _exponent(top)) if top else 0)
            held["param" if entry.constant else "output"][name] = [[bits, place]]
        return json.dumps(held, indent=1) + "\n"


def _exponent(top: float) -> int:
    """The power of two that a magnitude does not exceed."""
    found = round(log2(top))
    return found if 2.0**found >= top else found + 1


def _rows(held: Mapping[str, Any]) -> Iterator[tuple[str, QuantType]]:
    """Name and codes; what was not quantised has no position, or null in the place of a row."""
    for name, given in held.items():
        row = given[0] if given and (given[0] is None or isinstance(given[0], list)) else given
        if row is None or row[:1] == [None] or (len(row) > 1 and row[1] is None):
            continue
        if len(row) == 4:
            yield name, _scaled(*row)
        elif len(row) == 2 and isinstance(row[1], int):
            yield name, QuantType(int(row[0]), True, (2.0 ** -row[1],))
        else:
            raise DataError(
                f'"{name}" is neither [bit width, position] nor [bit width, scale, zero point, largest]',
                because=f"it is {given!r}",
                code="NF-TABLE-030",
            )


def _scaled(bits: int, scale: Any, zero: Any, top: Any) -> QuantType:
    """Codes of a float scale, alone or by channel. The largest real number tells signed codes from unsigned
    ones, which the file does not."""
    many = isinstance(scale, list)
    scales, zeros, tops = (v if isinstance(v, list) else [v] for v in (scale, zero, top))
    highest = round(tops[0] / scales[0]) + int(zeros[0]) if scales[0] else 0
    signed = highest < 1 << (bits - 1)
    return QuantType(
        bits, signed, tuple(map(float, scales)), tuple(int(z) for z in zeros), 0 if many else None
    )
