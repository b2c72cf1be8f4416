"""How compiled kernels see operands: flat typed arrays with offsets, from memory, from
constants, or from a sum's own array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from npuflow.hw.command import Command
from npuflow.hw.elements import ELEMENTS, Element
from npuflow.kernels.dataflow import CommandFacts, Definition
from npuflow.kernels.memory import SimulatedMemory

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FlatOperand:
    """Element offsets into a flat array: `base`, one step per sample, one per dimension."""

    flat: Array
    base: int
    sample: int
    strides: tuple[int, ...]

    @property
    def parts(self) -> tuple[Array, int, int, tuple[int, ...]]:
        """As kernels take it."""
        return self.flat, self.base, self.sample, self.strides


class Bench:
    """What binding a command needs: memories, facts, sums' arrays, scratch space."""

    def __init__(self, memory: SimulatedMemory, facts: CommandFacts) -> None:
        self.memory, self.facts, self.batch = memory, facts, memory.batch
        self._views: dict[tuple[int, str], Array] = {}
        self._sums: dict[int, Array] = {}
        self._free: list[Array] = []
        self._due: dict[int, list[int]] = {}
        self._scratch: dict[str, Array] = {}
        self._codes: dict[tuple[int, str, int], Array] = {}
        # largest magnitude that a sum's commands can have reached
        self.peaks: dict[int, int] = {}

    def operand(
        self, i: int, c: Command, name: str, dtype: str = "", strides: tuple[int, ...] | None = None
    ) -> FlatOperand:
        """A tensor operand (dtype and strides from its fields), or a dense one."""
        dtype = dtype or c.text(f"{name}_type")
        size = ELEMENTS[dtype].bytes
        steps = tuple(s // size for s in (c.vector(f"{name}_strides") if strides is None else strides))
        known = self.facts.consts.get(i, {}).get(name)
        if ELEMENTS[dtype].packed:
            assert known is not None, "packed elements are read where they are known alone"
            whole = c.vector(f"{name}_strides") if strides is None else strides
            return FlatOperand(self._spread(known, dtype, c.number(name) - known.base), 0, 0, whole)
        if known is not None:
            assert known.content is not None
            content = known.content.view(ELEMENTS[dtype].numpy)
            return FlatOperand(content, (c.number(name) - known.base) // size, 0, steps)
        block = self.memory.local[c.core]
        return FlatOperand(
            self._view(block, c.core, dtype), c.number(name) // size, block.strides[0] // size, steps
        )

    def constant(self, i: int, c: Command, name: str, dtype: str, count: int) -> Array | None:
        """The known values of a dense parameter, or None if they are not constant."""
        known = self.facts.consts.get(i, {}).get(name)
        if known is None or known.content is None:
            return None
        at = c.number(name) - known.base
        if ELEMENTS[dtype].packed:
            return self._spread(known, dtype, at)[:count]
        return np.ndarray((count,), np.dtype(dtype), buffer=known.content, offset=at)

    def knows(self, i: int, name: str) -> bool:
        """Whether an operand's bytes are known before the program runs."""
        return name in self.facts.consts.get(i, {})

    def _spread(self, known: Definition, dtype: str, at: int) -> Array:
        """The packed elements of a constant block from a byte on, each by itself."""
        key = known.position, dtype, at
        if key not in self._codes:
            assert known.content is not None
            self._codes[key] = unpacked(known.content[at:], dtype)
        return self._codes[key]

    def sum(self, i: int, c: Command, count: int) -> tuple[Array, Array]:
        """Flat array of an accumulator operand and where each sample's starts in it."""
        definition = self.facts.sums.get(i)
        if definition is None:
            whole = self.operand(i, c, "acc", c.text("acc_type"), ())
            return whole.flat, whole.base + np.arange(self.batch) * whole.sample
        return self._own(i, definition, count), np.arange(self.batch) * count

    def _own(self, i: int, definition: Definition, count: int) -> Array:
        key = definition.position
        if key not in self._sums:
            for due in [d for d in self._due if d < i]:
                self._free += [self._sums[k] for k in self._due.pop(due)]
            need = self.batch * count
            self._free.sort(key=lambda a: a.size)
            fit = next((a for a in self._free if a.size >= need and a.dtype == definition.dtype), None)
            if fit is None:
                fit = np.empty(need, definition.dtype)
            else:
                self._free = [a for a in self._free if a is not fit]
            self._sums[key] = fit
            self._due.setdefault(definition.last, []).append(key)
        return self._sums[key]

    def scratch(self, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """Space that any command may use while it runs; contents do not survive it."""
        count = int(np.prod(shape))
        key = f"{name}:{dtype}"
        if key not in self._scratch or self._scratch[key].size < count:
            self._scratch[key] = np.empty(count, dtype)
        return self._scratch[key][:count].reshape(shape)

    def peak(self, i: int, c: Command) -> int:
        """A bound on |acc| of an accumulator operand."""
        definition = self.facts.sums.get(i)
        limit = 1 << (31 if c.text("acc_type") == "int32" else 63)
        return limit if definition is None else min(limit, self.peaks.get(definition.position, limit))

    def grow(self, i: int, peak: int, keep: bool) -> None:
        """A command adds at most `peak` to its sum (or starts it)."""
        definition = self.facts.sums.get(i)
        if definition is not None:
            self.peaks[definition.position] = peak + (
                self.peaks.get(definition.position, 1 << 63) if keep else 0
            )

    def _view(self, block: Array, core: int, dtype: str) -> Array:
        key = (core, dtype)
        if key not in self._views:
            self._views[key] = block.reshape(-1).view(ELEMENTS[dtype].numpy)
        return self._views[key]


def unpacked(raw: Array, dtype: str) -> Array:
    """Packed elements as an array of their numpy type; bits at the end that make no
    whole element are left out."""
    kind = ELEMENTS[dtype]
    stream = np.unpackbits(raw, bitorder="little")
    if kind.sparse is not None:
        return _spread_out(stream, kind)
    bits = stream[: stream.size // kind.bits * kind.bits].reshape(-1, kind.bits)
    code = bits.astype(np.int64) @ (np.int64(1) << np.arange(kind.bits))
    return (code - (bits[:, -1].astype(np.int64) << kind.bits) * kind.signed).astype(kind.numpy)


def _spread_out(stream: Array, kind: Element) -> Array:
    """The elements of a stream of bits that stores some of them, and their places."""
    assert kind.sparse is not None
    kept, of = kind.sparse
    size = kept * (kind.bits + kind.place_bits)
    groups = stream[: stream.size // size * size].reshape(-1, size)
    values, places = groups[:, : kept * kind.bits], groups[:, kept * kind.bits :]
    codes = values.reshape(-1, kept, kind.bits).astype(np.int64) @ (np.int64(1) << np.arange(kind.bits))
    if kind.signed:
        codes = np.where(codes >> (kind.bits - 1), codes - (1 << kind.bits), codes)
    where = places.reshape(-1, kept, kind.place_bits).astype(np.int64) @ (1 << np.arange(kind.place_bits))
    found = np.zeros((len(groups), of), np.int64)
    np.add.at(found, (np.arange(len(groups))[:, None], where), codes)
    return found.astype(kind.numpy).reshape(-1)


@lru_cache(maxsize=4096)
def walk(
    dims: tuple[int, ...], strides: tuple[tuple[int, ...], ...], keep: int = -1
) -> tuple[int, tuple[Array, ...], tuple[int, ...], Array]:
    """Iterate `dims` as rows: (row length, offsets of every row per operand, step within a row
    per operand, kept index by row).

    Dimensions are merged where every operand allows it; dimension `keep` (if any) stays by itself, and if it
    ends up innermost the kept index is empty: it runs along the row.
    """
    axes: list[tuple[int, tuple[int, ...], bool]] = []
    for d, extent in enumerate(dims):
        steps = tuple(s[d] for s in strides)
        if extent == 1 and d != keep:
            continue
        if (
            axes
            and d != keep
            and not axes[-1][2]
            and all(p == q * extent for p, q in zip(axes[-1][1], steps, strict=True))
        ):
            axes[-1] = (axes[-1][0] * extent, steps, False)
        else:
            axes.append((extent, steps, d == keep))
    if not axes:
        axes = [(1, (0,) * len(strides), False)]
    *outer, (length, inner, innermost) = axes
    offsets = [np.zeros(1, np.int64) for _ in strides]
    kept = np.zeros(1, np.int64)
    for extent, steps, here in outer:
        index = np.arange(extent)
        kept = (kept[:, None] + (index if here else 0 * index)).reshape(-1)
        offsets = [(o[:, None] + index * s).reshape(-1) for o, s in zip(offsets, steps, strict=True)]
    return length, tuple(offsets), inner, kept[:0] if innermost else kept
