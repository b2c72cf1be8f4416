"""Vitis AI quant_info.json: bit width and fixed-point position of every tensor; scales are powers of two."""

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
    """real = code * 2^-position, signed codes. A name may have that of the network in front
    (`Net::conv1.weight`); of a node with several outputs the first counts."""

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
            for full, bits, place in _rows(held.get(kind, {})):
                name = full.rpartition("::")[2]
                quant = QuantType(bits, True, (2.0**-place,))
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


def _rows(held: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Name, width and position; what was not quantised has no position."""
    for name, given in held.items():
        row = given[0] if given and isinstance(given[0], list) else given
        if len(row) != 2 or (row[1] is not None and not isinstance(row[1], int)):
            raise DataError(
                f'"{name}" is not [bit width, position]',
                because=f"it is {given!r}",
                code="NF-TABLE-030",
            )
        if row[1] is not None and row[0] is not None:
            yield name, int(row[0]), int(row[1])
