"""Whether a TFLite file has variables: by its table of operator codes alone, without a parser's package.

Source: schema.fbs of TensorFlow Lite (fields 0 and 3 of OperatorCode, field 1 of Model) and the format of
FlatBuffers (a table begins with the distance to its table of fields).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

READ_VARIABLE = 143
MOST = 4096                                     # operator codes; a file has one for each kind


def has_variables(path: Path) -> bool:
    """Whether an operator of the file reads a variable. False for what is no whole TFLite file: whoever
    reads it says so."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data[4:8] == b"TFL3" and READ_VARIABLE in set(_codes(data))
    except (OSError, ValueError, struct.error):
        return False


def _codes(data: mmap.mmap) -> Iterator[int]:
    model = _u32(data, 0)
    at = _field(data, model, 1)
    if at is None:
        return
    vector = at + _u32(data, at)
    for i in range(min(_u32(data, vector), MOST)):
        place = vector + 4 + 4 * i
        code = place + _u32(data, place)
        old, new = _field(data, code, 0), _field(data, code, 3)
        yield max(0 if old is None else data[old], 0 if new is None else _u32(data, new))


def _field(data: mmap.mmap, table: int, number: int) -> int | None:
    """Where a field of a table lies; None where it has its default."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    if fields < 0 or 4 + 2 * number >= struct.unpack_from("<H", data, fields)[0]:
        return None
    offset = struct.unpack_from("<H", data, fields + 4 + 2 * number)[0]
    return table + offset if offset else None


def _u32(data: mmap.mmap, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])
