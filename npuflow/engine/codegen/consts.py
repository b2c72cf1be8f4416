"""The CONST section: constants packed tile by tile, each distinct block once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash

from npuflow.engine.allocate import aligned
from npuflow.engine.schedule.model import PACK
from npuflow.hw.elements import ELEMENTS
from npuflow.ir.space import Box
from npuflow.ir.types import Array


class ConstPool:
    """Blocks of bytes at burst-aligned addresses; equal blocks share one address."""

    def __init__(self, align: int) -> None:
        self._align = align
        self._parts: list[bytes] = []
        self._known: dict[bytes, int] = {}
        self._tables: dict[str, int] = {}                 # by content digest
        self.size = 0
        self.given = 0                                    # bytes asked for, before deduplication

    def add(self, block: bytes) -> int:
        key = xxhash.xxh3_128_digest(block) + len(block).to_bytes(8, "little")
        self.given += len(block)
        address = self._known.get(key)
        if address is None:
            address = self._known[key] = self.size
            padded = aligned(len(block), self._align)
            self._parts += [block, bytes(padded - len(block))]
            self.size += padded
        return address

    def whole(self, digest: str, array: Array) -> int:
        """The address of a constant that is there once as a whole, in C order."""
        if digest not in self._tables:
            raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            self._tables[digest] = self.add(raw.tobytes())
        return self._tables[digest]

    def to_bytes(self) -> bytes:
        return b"".join(self._parts)


def pack(arrays: Sequence[tuple[Array, str]], boxes: Sequence[Box]) -> tuple[bytes, list[int]]:
    """The boxes of several constants, each with the type it has in memory, one after
    another; and the offset of each."""
    out, offsets = bytearray(), []
    for (array, dtype), box in zip(arrays, boxes, strict=True):
        out += bytes(aligned(len(out), PACK) - len(out))
        offsets.append(len(out))
        part = array[tuple(slice(a, b) for a, b in box)] if box else array
        raw = np.ascontiguousarray(part, array.dtype.newbyteorder("<"))
        out += _bits(raw, ELEMENTS[dtype].bits) if ELEMENTS[dtype].packed else raw.tobytes()
    return bytes(out), offsets


def _bits(codes: Array, width: int) -> bytes:
    """The lowest bits of every code in C order, one after another, the first in the
    lowest bits; at the end zeros."""
    planes = (codes.astype(np.int64).reshape(-1, 1) >> np.arange(width)) & 1
    return np.packbits(planes.astype(np.uint8), bitorder="little").tobytes()
