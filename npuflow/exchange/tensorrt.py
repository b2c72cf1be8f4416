"""The calibration cache of TensorRT: one scale per tensor, amax / 127, as the
hexadecimal bits of a float32."""

from __future__ import annotations

import re
import struct
from typing import ClassVar

from npuflow.base.errors import DataError
from npuflow.exchange import EXCHANGE, Rows, Table, TensorEntry

# readers compare the calibrator's name; the version is not looked at
HEAD = "TRT-8601-EntropyCalibration2"
LINE = re.compile(r"^(?P<name>.+): (?P<bits>[0-9a-fA-F]{1,8})$")


@EXCHANGE.entry
class TensorRt:
    """A header line, then `NAME: BITS` lines."""

    suffix: ClassVar[str] = ".cache"
    rows: ClassVar[Rows] = "any"
    omits: ClassVar[str] = (
        "ranges are symmetric: the larger end counts for both; weights and codes are left out"
    )

    def recognises(self, text: str) -> bool:
        return text.startswith("TRT-")

    def read(self, text: str) -> dict[str, TensorEntry]:
        head, *lines = text.splitlines()
        if not head.startswith("TRT-"):
            raise DataError(
                "a TensorRT calibration cache begins with TRT-VERSION-CALIBRATOR",
                because=f"this one with {head!r}", code="NF-TABLE-012",
            )
        table: dict[str, TensorEntry] = {}
        for number, line in enumerate(lines, 2):
            if not line.strip():
                continue
            found = LINE.match(line.strip())
            if found is None:
                raise DataError(f"line {number} is not NAME: SCALE", because=repr(line), code="NF-TABLE-013")
            (scale,) = struct.unpack(">f", bytes.fromhex(found["bits"].zfill(8)))
            table[found["name"]] = TensorEntry(-127 * scale, 127 * scale, None, head.split("-")[-1])
        return table

    def write(self, table: Table) -> str:
        lines = [HEAD]
        for name, entry in table.items():
            if not entry.constant:
                scale = max(abs(entry.lo), abs(entry.hi)) / 127
                lines.append(f"{name}: {struct.pack('>f', scale).hex()}")
        return "\n".join(lines) + "\n"
