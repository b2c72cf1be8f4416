"""Tensors of a checkpoint: mapped from its files, and read one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from npuflow.checkpoints.grouped import Grouped
from npuflow.ir.types import Array


class StoredTensor(Protocol):
    """One tensor of a checkpoint. `kind`: how its elements are stored ("F16", "Q4_1", "GPTQ 4 bits")."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...

    def floats(self) -> Array:
        """float32, in memory of its own."""

    def grouped(self) -> Grouped | None:
        """The codes as stored; None where the elements are floats."""


FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Names of float types, and how their bytes are read."""


@dataclass(frozen=True, eq=False)
class FloatTensor:
    """Elements that are floats. `data`: bytes, mapped."""

    name: str
    kind: str
    shape: tuple[int, ...]
    data: Array

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def floats(self) -> Array:
        held = self.data.view(FLOATS[self.kind])
        if self.kind == "BF16":           # the upper half of a float32
            held = (held.astype(np.uint32) << 16).view(np.float32)
        return held.astype(np.float32).reshape(self.shape)

    def grouped(self) -> Grouped | None:
        return None


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """Some rows of a tensor, in an order of their own: a part of a fused matrix, or rows put back in place.
    A slice, or the numbers of the rows."""

    of: StoredTensor
    name: str
    chosen: slice | Array

    @property
    def kind(self) -> str:
        return self.of.kind

    @property
    def shape(self) -> tuple[int, ...]:
        rows = self.chosen
        count = len(range(self.of.shape[0])[rows]) if isinstance(rows, slice) else len(rows)
        return (count, *self.of.shape[1:])

    @property
    def nbytes(self) -> int:
        return self.of.nbytes * self.shape[0] // max(self.of.shape[0], 1)

    def floats(self) -> Array:
        grouped = self.grouped()
        return np.ascontiguousarray(self.of.floats()[self.chosen]) if grouped is None else grouped.floats()

    def grouped(self) -> Grouped | None:
        whole = self.of.grouped()
        return None if whole is None else whole.channels(self.chosen)


@dataclass(frozen=True, eq=False)
class Turned:
    """A float matrix stored as [columns, rows]."""

    of: StoredTensor

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def kind(self) -> str:
        return self.of.kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of.shape[::-1]

    @property
    def nbytes(self) -> int:
        return self.of.nbytes

    def floats(self) -> Array:
        return np.ascontiguousarray(self.of.floats().T)

    def grouped(self) -> Grouped | None:
        return None
