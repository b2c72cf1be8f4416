"""The CONST section: constants packed tile by tile, each distinct block once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash

from npuflow.base.errors import InternalError
from npuflow.hw.elements import ELEMENTS, Element
from npuflow.ir.space import Box
from npuflow.ir.types import Array
from npuflow.program.container import LARGE
from npuflow.schedule.allocate import aligned
from npuflow.schedule.model import PACK

AT_ONCE = 1 << 20  # codes that are packed at a time, a multiple of 8


class UnknownBlock(Exception):
    """A block that a closed pool has not."""


class ConstPool:
    """Blocks of bytes at burst-aligned addresses; equal blocks share one address. `closed`: it takes no new
    ones."""

    def __init__(self, align: int) -> None:
        self._align = align
        self._data = bytearray()
        self._known: dict[bytes, int] = {}
        self._tables: dict[str, int] = {}                 # by content digest
        self.size = 0
        self.given = 0                                    # bytes asked for, before deduplication
        self.closed = False

    def add(self, block: bytes) -> int:
        key = xxhash.xxh3_128_digest(block) + len(block).to_bytes(8, "little")
        address = self._known.get(key)
        if self.closed:
            if address is None:
                raise UnknownBlock(len(block))
            return address
        self.given += len(block)
        if address is None:
            address = self._known[key] = self.size
            padded = aligned(len(block), self._align)
            self._data += block
            self._data += bytes(padded - len(block))
            self.size += padded
        return address

    def whole(self, digest: str, array: Array) -> int:
        """The address of a constant that is there once as a whole, in C order."""
        if digest not in self._tables:
            raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            self._tables[digest] = self.add(raw.tobytes())
        return self._tables[digest]

    def to_bytes(self) -> bytes | memoryview:
        """All blocks; a large section is given out as it is, so that memory holds it once."""
        return bytes(self._data) if len(self._data) < LARGE else memoryview(self._data).toreadonly()


def pack(arrays: Sequence[tuple[Array, str]], boxes: Sequence[Box]) -> tuple[bytes, list[int]]:
    """The boxes of several constants, each with the type it has in memory, one after
    another; and the offset of each."""
    out, offsets = bytearray(), []
    for (array, dtype), box in zip(arrays, boxes, strict=True):
        out += bytes(aligned(len(out), PACK) - len(out))
        offsets.append(len(out))
        part = array[tuple(slice(a, b) for a, b in box)] if box else array
        raw = np.ascontiguousarray(part, array.dtype.newbyteorder("<"))
        kind = ELEMENTS[dtype]
        out += _packed(raw, kind) if kind.packed else raw.tobytes()
    return bytes(out), offsets


def _packed(codes: Array, kind: Element) -> bytes:
    """The lowest bits of every code in C order, or of those that are stored, with their places."""
    if kind.sparse is None:
        return _bits(codes, kind.bits)
    kept, of = kind.sparse
    groups = codes.reshape(-1, of)
    # what is not zero first, then zeros that are stored in the place of others, each in order
    places = np.sort(np.argsort(groups == 0, axis=1, kind="stable")[:, :kept], axis=1)
    values = np.take_along_axis(groups, places, 1)
    if np.count_nonzero(values) < np.count_nonzero(groups):
        raise InternalError(
            f"more than {kept} of {of} consecutive weights are not zero", code="NF-INTERNAL-090",
        )
    fields = ((values, kind.bits), (places, kind.place_bits))
    planes = [_planes(field, width).reshape(len(groups), -1) for field, width in fields]
    return np.packbits(np.concatenate(planes, axis=1), bitorder="little").tobytes()


def _bits(codes: Array, width: int) -> bytes:
    """The lowest bits of every code in C order, one after another, the first in the
    lowest bits; at the end zeros."""
    flat = codes.reshape(-1)
    parts = (_planes(flat[at : at + AT_ONCE], width) for at in range(0, len(flat), AT_ONCE))
    return b"".join(np.packbits(part, bitorder="little").tobytes() for part in parts)


def _planes(codes: Array, width: int) -> Array:
    """[code, bit], the lowest first."""
    return ((codes.astype(np.int64).reshape(-1, 1) >> np.arange(width)) & 1).astype(np.uint8)
