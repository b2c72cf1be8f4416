"""What commands read and write as TOSA tensors: strided views of buffers, and buffers made of parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

import numpy as np

from npuflow.export_tosa.tensors import TosaTensors, TosaValue, held, less
from npuflow.hw.elements import ELEMENTS
from npuflow.ir.moves import dense
from npuflow.ir.types import Array
from npuflow.whole.export_c.whole import Buffers, Storage, TensorCommand

Ints = Sequence[int]


@dataclass(frozen=True)
class Written:
    """A tensor, and where its elements lie in a buffer, in elements."""

    value: TosaValue
    offset: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def steps(self) -> list[tuple[int, int, int]]:
        """(stride, extent, place) of dimensions that go on, the longest stride first."""
        rows = zip(self.strides, self.dims, range(len(self.dims)), strict=True)
        return sorted((row for row in rows if row[1] > 1), key=lambda row: -abs(row[0]))

    def places(self) -> Array:
        """Where each element lies, in the tensor's order."""
        return places_of(self.offset, self.dims, self.strides).reshape(-1)


def places_of(offset: int, dims: Ints, strides: Ints) -> Array:
    """Where each element of a strided view lies."""
    found = np.full((1,) * len(dims), offset, np.int64)
    for axis, (size, stride) in enumerate(zip(dims, strides, strict=True)):
        shape = [1] * len(dims)
        shape[axis] = size
        found = found + (np.arange(size) * stride).reshape(shape)
    return np.broadcast_to(found, tuple(dims))


@dataclass
class TosaViews:
    """Buffers of commands, by number, as tensors."""

    t: TosaTensors
    buffers: Buffers
    parts: dict[int, list[Written]] = field(default_factory=dict)
    flat: dict[int, TosaValue] = field(default_factory=dict)

    # --- reading
    def constant(self, address: int) -> Array | None:
        own, offset = self.buffers.at(address)
        return own.array if own.kind == "const" and not offset else None

    def read(
        self, c: TensorCommand, name: str, dims: Ints = (), order: Ints = (), spread: bool = False
    ) -> TosaValue:
        """An operand as held codes. `dims`: its extents (else the command's); `order`: its dimensions turned;
        `spread`: dimensions of stride 0 in full, else with extent 1, which broadcasts."""
        dtype = c[f"{name}_type"] if f"{name}_type" in c.fields else "int32"
        own, offset, dims, steps = self._laid(c, name, dtype, dims or c["dims"], order)
        found = self.view(own, offset, dims, steps, dtype)
        return self.t.broadcast(found, dims) if spread else found

    def _laid(
        self, c: TensorCommand, name: str, dtype: str, dims: Ints, order: Ints
    ) -> tuple[Storage, int, tuple[int, ...], tuple[int, ...]]:
        """An operand's buffer, its first element in it, extents and strides in elements, in an order."""
        item = ELEMENTS[dtype].bytes
        own, offset = self.buffers.at(c[name])
        order = order or range(len(dims))
        steps = [s // item for s in c[f"{name}_strides"]]
        return own, offset // item, tuple(dims[k] for k in order), tuple(steps[k] for k in order)

    def view(self, own: Storage, offset: int, dims: Ints, steps: Ints, dtype: str) -> TosaValue:
        shape = [1 if s == 0 else d for d, s in zip(dims, steps, strict=True)]
        if own.kind == "const":
            assert own.array is not None
            places = places_of(offset, shape, steps)
            picked = own.array.reshape(-1)[places].astype(np.int64) - less(dtype)
            return self.t.const(picked, held(dtype))
        found = self._whole(own, offset, shape, steps)
        return found if found is not None else self._strided(own, offset, shape, steps)

    def _whole(self, own: Storage, offset: int, shape: Ints, steps: Ints) -> TosaValue | None:
        """A buffer that was written at once, with its dimensions in another order."""
        (part, *more) = self.parts[own.number]
        if prod(part.dims) != own.size:
            return None
        want = {(s, d) for d, s in zip(shape, steps, strict=True) if d > 1}
        if more or offset or part.offset or {(s, d) for s, d, _ in part.steps} != want:
            return None
        if len(part.steps) != len(want):
            return None
        at = {s: axis for s, _, axis in part.steps}
        moving = [at[s] for d, s in zip(shape, steps, strict=True) if d > 1]
        still = [axis for axis in range(len(part.dims)) if axis not in moving]
        return self.t.reshape(self.t.transpose(part.value, [*still, *moving]), shape)

    def _strided(self, own: Storage, offset: int, shape: Ints, steps: Ints) -> TosaValue:
        """By a reshape to one dimension a stride, a slice and a transposition; else element by element."""
        flat, size = self.memory(own), own.size
        low = offset + sum(min(0, (d - 1) * s) for d, s in zip(shape, steps, strict=True))
        rows = sorted(((abs(s), d, k) for k, (d, s) in enumerate(zip(shape, steps, strict=True)) if d > 1),
                      reverse=True)
        strides = [size, *(s for s, _, _ in rows)]
        levels = [a // b if a % b == 0 else 0 for a, b in pairwise(strides)]
        starts, left = _index(low, strides[1:])
        last = strides[-1] if rows else size
        fits = all(o + d <= n for o, (_, d, _), n in zip(starts, rows, levels, strict=True)) and left < last
        if not fits:
            places = places_of(offset, shape, steps)
            return self.t.pick(flat, self.t.const(places, "int32"))
        made = self.t.reshape(flat, [*levels, last])
        made = self.t.cut(made, [*starts, left], [*(d for _, d, _ in rows), 1])
        for axis, (_, _, k) in enumerate(rows):
            if steps[k] < 0:
                made = self.t.op("REVERSE", [made], made.shape, made.dtype, axis=axis)
        made = self.t.reshape(made, [d for _, d, _ in rows] or [1])
        place = {k: axis for axis, (_, _, k) in enumerate(rows)}
        made = self.t.transpose(made, [place[k] for k in range(len(shape)) if k in place] or [0])
        return self.t.reshape(made, shape)

    # --- writing
    def write(
        self, c: TensorCommand, value: TosaValue, dims: Ints = (), order: Ints = (), name: str = "y"
    ) -> None:
        own, offset, dims, steps = self._laid(c, name, c[f"{name}_type"], dims or c["dims"], order)
        value = self.t.reshape(self.t.broadcast(value, dims), dims)
        self.put(own, Written(value, offset, dims, steps))

    def put(self, own: Storage, part: Written) -> None:
        if prod(part.dims) == own.size:
            self.parts[own.number] = []
        self.parts.setdefault(own.number, []).append(part)
        self.flat.pop(own.number, None)

    def sums(
        self, c: TensorCommand, value: TosaValue, dims: Ints, order: Ints = (), operator: str = "ADD"
    ) -> None:
        """Dense sums of a command, with the dimensions of `value` in another order; by an operator together
        with the old ones, where they are accumulated."""
        own, offset = self.buffers.at(c["acc"])
        order, steps = order or range(len(dims)), dense(dims)
        place = offset // ELEMENTS["int32"].bytes
        dims, steps = tuple(dims[k] for k in order), tuple(steps[k] for k in order)
        if c["accumulate"]:
            value = self.t.two(operator, value, self.view(own, place, dims, steps, "int32"))
        self.put(own, Written(value, place, dims, steps))

    def memory(self, own: Storage) -> TosaValue:
        """A buffer's elements in the order in which they lie."""
        if own.number not in self.flat:
            self.flat[own.number] = self._joined(own, self.parts[own.number])
        return self.flat[own.number]

    def _in_order(self, part: Written) -> TosaValue:
        moving = [axis for _, _, axis in part.steps]
        still = [axis for axis in range(len(part.dims)) if axis not in moving]
        return self.t.transpose(part.value, [*still, *moving])

    def _joined(self, own: Storage, parts: Sequence[Written]) -> TosaValue:
        if len(parts) == 1 and prod(parts[0].dims) == own.size:
            return self.t.reshape(self._in_order(parts[0]), (own.size,))
        beside = self._beside(own, parts)
        if beside is not None:
            return beside
        every = self.t.concat([self.t.reshape(p.value, (prod(p.dims),)) for p in parts], 0)
        index, at = np.zeros(own.size, np.int64), 0
        for part in parts:
            places = part.places()
            index[places] = at + np.arange(places.size)
            at += places.size
        return self.t.pick(every, self.t.const(index, "int32"))

    def _beside(self, own: Storage, parts: Sequence[Written]) -> TosaValue | None:
        """Parts that lie one behind the other along one dimension."""
        strides = sorted({s for part in parts for s, _, _ in part.steps} | {1}, reverse=True)
        chain = [own.size, *strides]
        if min(strides) < 1 or any(a % b for a, b in pairwise(chain)):
            return None
        levels = [a // b for a, b in pairwise(chain)]
        boxes = []
        for part in parts:
            extent = {s: d for s, d, _ in part.steps}
            sizes = [extent.get(s, 1) for s in strides]
            starts, _ = _index(part.offset, strides)
            if len(extent) != len(part.steps):
                return None
            if any(o + d > n for o, d, n in zip(starts, sizes, levels, strict=True)):
                return None
            boxes.append((starts, sizes, part))
        for axis in range(len(levels)):
            if (row := _in_a_row(boxes, levels, axis)) is not None:
                shaped = [self.t.reshape(self._in_order(part), sizes) for _, sizes, part in row]
                return self.t.reshape(self.t.concat(shaped, axis), (own.size,))
        return None


def _index(place: int, strides: Ints) -> tuple[list[int], int]:
    """The index of a place along strides, the longest first, and what is left of it."""
    found = []
    for stride in strides:
        found.append(place // stride)
        place %= stride
    return found, place


Box = tuple[list[int], list[int], Written]     # first, size, part


def _in_a_row(boxes: Sequence[Box], levels: Sequence[int], axis: int) -> list[Box] | None:
    """Boxes in their order along a dimension, where they fill it without a gap."""
    found, at = sorted(boxes, key=lambda box: box[0][axis]), 0
    for starts, sizes, _ in found:
        whole = zip(starts, sizes, levels, strict=True)
        rest = [(o, d) == (0, n) for k, (o, d, n) in enumerate(whole) if k != axis]
        if starts[axis] != at or not all(rest):
            return None
        at += sizes[axis]
    return found if at == levels[axis] else None
