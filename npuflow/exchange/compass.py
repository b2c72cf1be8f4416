"""The per-node configuration of the Zhouyi Compass optimizer (opt_config JSON), with
the codes it displays."""

from __future__ import annotations

import ast
import json
import struct
from collections.abc import Mapping
from typing import Any, ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry, tree
from npuflow.ir.types import QuantType

SHOWN, INFO = "just_for_display", "quantization_info"


@EXCHANGE.entry
class Compass:
    """By node; code = scale * real - zerop, so both are turned round here."""

    suffix: ClassVar[str] = "_opt_template.json"
    rows: ClassVar[Rows] = "any"
    omits: ClassVar[str] = "weights are left out; methods of the optimizer are not npuflow's"

    def recognises(self, text: str) -> bool:
        held = tree(text) or {}
        return any(isinstance(n, dict) and INFO in n.get(SHOWN, {}) for n in held.values())

    def read(self, text: str) -> dict[str, TensorEntry]:
        table: dict[str, TensorEntry] = {}
        for node, attributes in json.loads(text).items():
            shown = attributes.get(SHOWN, {}).get(INFO)
            tensors = ast.literal_eval(shown) if isinstance(shown, str) else shown or {}
            table.update({name: _entry(node, name, row) for name, row in tensors.items()})
        return table

    def write(self, table: Table) -> str:
        nodes: dict[str, dict[str, Any]] = {}
        for name, entry in table.items():
            if not entry.constant:
                nodes.setdefault(entry.node or name, {})[name] = entry
        return json.dumps({node: _attributes(tensors) for node, tensors in nodes.items()}, indent=4) + "\n"


def _entry(node: str, name: str, row: Mapping[str, Any]) -> TensorEntry:
    """Every value is text, as the optimizer writes it."""
    value = {
        key: ast.literal_eval(text) if isinstance(text, str) and _literal(text) else text
        for key, text in row.items()
    }
    quant = None
    if (
        isinstance(value.get("scale"), int | float)
        and isinstance(value.get("qbits"), int)
        and value["scale"] > 0
    ):
        signed = int(value.get("qmin", 0)) < 0
        # The nearest float32, as models keep scales: the reciprocal of a reciprocal is then itself.
        (scale,) = struct.unpack("f", struct.pack("f", 1.0 / value["scale"]))
        quant = QuantType(value["qbits"], signed, (scale,), (-round(value.get("zerop") or 0),))
    lo, hi = value.get("fmin"), value.get("fmax")
    if not isinstance(lo, int | float) or not isinstance(hi, int | float):
        raise DataError(
            f'the tensor "{name}" of node "{node}" has no fmin and fmax',
            because=f"it has {', '.join(row)}", code="NF-TABLE-007",
        )
    return TensorEntry(float(lo), float(hi), quant, "", False, node)


def _literal(text: str) -> bool:
    return text[:1] in "-[0123456789" or text in ("None", "True", "False")


def _attributes(tensors: Mapping[str, TensorEntry]) -> dict[str, Any]:
    first = next(iter(tensors.values())).quant
    symmetric = first is not None and not any(first.zero_point)
    found: dict[str, Any] = {}
    if first is not None:
        found["q_mode_activation"] = (
            "per_tensor_symmetric_full_range" if symmetric else "per_tensor_asymmetric"
        )
        found["q_bits_activation"] = first.bits
    info = {
        name: {key: str(value) for key, value in _shown(entry).items()} for name, entry in tensors.items()
    }
    return {**found, SHOWN: {INFO: str(info), "optimization_info": "", "brief_info": ""}}


def _shown(entry: TensorEntry) -> dict[str, Any]:
    quant, row = entry.quant, {"fmin": entry.lo, "fmax": entry.hi}
    if quant is None or quant.axis is not None:
        return row
    return {
        "scale": 1.0 / quant.scale[0], "zerop": -quant.zero_point[0], "qbits": quant.bits,
        "dtype": f"Dtype.{quant.dtype.upper()}", "qmin": quant.lo, "qmax": quant.hi, **row,
    }
