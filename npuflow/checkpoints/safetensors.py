"""Reads safetensors files: names, types and shapes from the header; tensors stay mapped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from npuflow.checkpoints.mapped_file import MappedFile
from npuflow.checkpoints.tensors import FLOATS, FloatTensor
from npuflow.ir.types import Array

WHOLE = {"BOOL": "u1", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
         "U64": "<u8", "I64": "<i8"}
"""Types of whole numbers, and how their bytes are read."""
MOST_HEADER = 100_000_000                 # bytes, as the format's own library has it


@dataclass(frozen=True, eq=False)
class WholeTensor(FloatTensor):
    """Elements that are whole numbers: packed codes, zero points, the order of columns."""

    def numbers(self) -> Array:
        return self.data.view(WHOLE[self.kind]).reshape(self.shape)

    def floats(self) -> Array:
        return self.numbers().astype(np.float32)


def read(path: Path) -> dict[str, FloatTensor]:
    """The tensors of one file by name."""
    file = MappedFile(path)
    size = file.number("Q", "the size of the header")
    if size > min(MOST_HEADER, file.size - file.at):
        file.fail(f"its header has {size:,} bytes, and the file {file.size:,}")
    start = file.take(size, "the header")
    try:
        header = json.loads(bytes(file.map[start : start + size]))
    except (ValueError, RecursionError) as fault:
        file.fail(f"its header is not JSON: {fault}", "is it a safetensors file?")
    if not isinstance(header, dict):
        file.fail("its header is no table of tensors", "is it a safetensors file?")
    return {name: _tensor(file, name, row) for name, row in header.items() if name != "__metadata__"}


def _tensor(file: MappedFile, name: str, row: Any) -> FloatTensor:
    try:
        kind, shape, (begin, end) = row["dtype"], row["shape"], row["data_offsets"]
        sound = all(type(d) is int and d >= 0 for d in (*shape, begin, end)) and isinstance(kind, str)
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        file.fail(f'the header says of the tensor "{name}": {str(row)[:80]}')
    if kind not in FLOATS and kind not in WHOLE:
        file.unread(name, kind, (*FLOATS, *WHOLE), "store it in one of these")
    width = np.dtype(FLOATS.get(kind) or WHOLE[kind]).itemsize
    if end - begin != prod(shape) * width:
        file.fail(f'the tensor "{name}" is {kind} {list(shape)} and has {end - begin:,} bytes')
    data = file.part(file.at + begin, end - begin, f'the tensor "{name}"')
    made = FloatTensor if kind in FLOATS else WholeTensor
    return made(name, kind, tuple(shape), data)
