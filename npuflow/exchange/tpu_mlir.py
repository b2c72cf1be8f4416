"""The calibration table of TPU-MLIR: name, threshold, minimum and maximum of each tensor in a line."""

from __future__ import annotations

from typing import ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry

COLUMNS = "# op_name    threshold    min    max"
OTHERS = ("#weight_scale", "#int4_th", "#asym_op")       # sections of other things at the end


@EXCHANGE.entry
class TpuMlir:
    """The threshold is symmetric and cuts off what the minimum or maximum has beyond it."""

    suffix: ClassVar[str] = ".cali_table"
    rows: ClassVar[Rows] = "any"
    omits: ClassVar[str] = "weights, codes and tensors with blanks in their names are left out"

    def recognises(self, text: str) -> bool:
        return any(line.split() == COLUMNS.split() for line in text.splitlines()[:40])

    def read(self, text: str) -> dict[str, TensorEntry]:
        table: dict[str, TensorEntry] = {}
        method = ""
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if line.replace(" ", "").startswith(OTHERS):
                break
            if "method:" in line and line.startswith("#"):
                method = words[-1]
            if not words or line.startswith("#"):
                continue
            if len(words) != 4:
                raise DataError(
                    f"line {number} is not a name and three numbers", because=repr(line), code="NF-TABLE-014",
                )
            threshold, lo, hi = (float(w) for w in words[1:])
            low, high = max(lo, -abs(threshold)), min(hi, abs(threshold))
            table[words[0]] = TensorEntry(min(low, high), max(low, high), None, method)
        return table

    def write(self, table: Table) -> str:
        methods = {entry.method for entry in table.values() if entry.method}
        head = ["# quantization threshold calculation method: " + methods.pop()] if len(methods) == 1 else []
        rows = [
            f"{name} {max(abs(e.lo), abs(e.hi)):.9g} {e.lo:.9g} {e.hi:.9g}"
            for name, e in table.items()
            if not e.constant and len(name.split()) == 1
        ]
        return "\n".join([*head, "###", COLUMNS, *rows]) + "\n"
