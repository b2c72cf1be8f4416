"""Operators lowered on whole tensors: one tile that is the whole iteration space, as commands on buffers.

A buffer is known by its number: its bytes begin at `number << SHIFT`, so that any address that `lower`
computes names a buffer and an offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np

from npuflow.base.errors import ModelError
from npuflow.hw.numerics import quantize
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.graph import Graph
from npuflow.ir.lowering import Buffer
from npuflow.ir.moves import Move, dense, merged
from npuflow.ir.op import Node, OpContext
from npuflow.ir.space import Box, Operand
from npuflow.ir.types import Array
from npuflow.whole.lowering import lowered

SHIFT = 44
Kind = Literal["value", "const", "sum", "scratch"]


@dataclass(frozen=True)
class Storage:
    """One buffer: a value of the graph, a constant, sums between two commands, or a kernel's own scratch."""

    number: int
    kind: Kind
    name: str
    dtype: str
    size: int  # elements
    array: Array | None = None

    @property
    def bytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def base(self) -> int:
        return (self.number + 1) << SHIFT


@dataclass
class Buffers:
    """All buffers of a network, by number."""

    every: list[Storage] = field(default_factory=list)
    values: dict[str, Storage] = field(default_factory=dict)

    def add(self, kind: Kind, name: str, dtype: str, size: int, array: Array | None = None) -> Storage:
        made = Storage(len(self.every), kind, name, dtype, size, array)
        self.every.append(made)
        if kind == "value":
            self.values[name] = made
        return made

    def value(self, name: str, dtype: str, size: int) -> Storage:
        return self.values.get(name) or self.add("value", name, dtype, size)

    def at(self, address: int) -> tuple[Storage, int]:
        """The buffer of an address, and the offset in bytes."""
        return self.every[(address >> SHIFT) - 1], address & ((1 << SHIFT) - 1)


@dataclass(frozen=True)
class TensorCommand:
    """What the instruction set would be given for the whole tensor; pointers are addresses of buffers."""

    opcode: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name, 0)


def strides_of(shape: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Strides in elements: C order, or with dimension 1 innermost."""
    if not channels_last:
        return dense(shape)
    batch, channel, *rest = shape
    order = dense((batch, *rest, channel))
    return (order[0], 1, *order[1:-1])


def commands_of(
    graph: Graph,
    node: Node,
    numerics: Numerics,
    last: frozenset[str],
    all_: Buffers,
    site: OpContext | None = None,
) -> list[TensorCommand]:
    """A node as commands on whole tensors. `last`: the values whose channels lie innermost."""
    site = site or graph.site(node)
    moves = site.op.moves(site)
    if moves is not None:
        return [_moved(site, move, last, all_) for move in moves or _as_it_lies(site)]
    space = forms.space(site, numerics)
    if space is None:
        raise ModelError(f"{node.name}: neither an iteration space nor moves", code="NF-PROGRAM-048")

    def held(operand: Operand | None, i: int) -> Buffer | None:
        value = site.inputs[i] if i < len(site.inputs) else None
        constant = site.consts[i] if value is not None else None
        if value is not None and constant is not None and (operand is not None or space.fetches):
            shape = constant.shape if operand is None else operand.shape
            return _constant(all_, value.id, constant.reshape(shape))
        if operand is None or value is None:
            return None
        own = all_.value(value.id, value.dtype, value.type.size)
        return _buffer(own, operand.shape, value.id in last)

    inputs = tuple(held(operand, i) for i, operand in enumerate(space.inputs))
    outputs = tuple(
        _buffer(all_.value(v.id, v.dtype, v.type.size), v.type.shape, v.id in last) for v in site.outputs
    )
    params = {
        p.name: _constant(all_, f"{node.outputs[0]}.{p.name}", site.array(p.name)) for p in space.params
    }
    acc = None
    if space.accumulator is not None:
        shape, held_in = space.accumulator.shape, forms.sum_type(site, numerics)
        acc = _buffer(all_.add("sum", f"{node.outputs[0]}.sums", held_in, prod(shape)), shape, False)
    emitted = lowered(site, space, numerics, inputs, outputs, params, acc)
    return [TensorCommand(opcode, fields) for opcode, fields in emitted]


def _buffer(own: Storage, shape: Sequence[int], channels_last: bool) -> Buffer:
    item = np.dtype(own.dtype).itemsize
    strides = tuple(s * item for s in strides_of(shape, channels_last))
    return Buffer(own.base, own.dtype, tuple((0, d) for d in shape), strides)


def _constant(all_: Buffers, name: str, array: Array) -> Buffer:
    shape: tuple[int, ...] = array.shape
    array = np.ascontiguousarray(array).reshape(shape)
    box: Box = tuple((0, size) for size in shape)
    own = all_.add("const", name, array.dtype.name, array.size, array)
    return Buffer(own.base, own.dtype, box, tuple(s * array.dtype.itemsize for s in dense(array.shape)))


def _as_it_lies(site: OpContext) -> tuple[Move, ...]:
    """The bytes of the input in their order, as a copy of one run."""
    size = site.outputs[0].type.size
    return (Move(0, (size,), (1,), (1,)),)


def _moved(site: OpContext, move: Move, last: frozenset[str], all_: Buffers) -> TensorCommand:
    """A strided copy as a COPY or FILL of elements."""
    target = site.outputs[move.output]
    item = np.dtype(target.dtype).itemsize
    out = all_.value(target.id, target.dtype, target.type.size)
    source = None if move.source is None else site.inputs[move.source]
    shapes = [None if source is None or source.const or source.id not in last else source.type.shape]
    shapes.append(target.type.shape if target.id in last else None)
    if any(shapes):
        move = restrided(
            move,
            None if source is None else source.type.shape,
            target.type.shape,
            shapes[0] is not None,
            shapes[1] is not None,
        )
    else:
        move = merged(move)
    if len(move.dims) > 6:
        raise Unsuited(f"a copy over {len(move.dims)} dimensions")
    fields: dict[str, object] = {
        "y": out.base + move.dst_offset * item,
        "y_type": target.dtype,
        "dims": move.dims,
        "y_strides": tuple(s * item for s in move.dst_strides),
    }
    if source is None:
        quant = target.quant
        assert quant is not None
        code = int(quantize(move.value, quant.scale[0], quant.zero_point[0], quant.lo, quant.hi))
        return TensorCommand("FILL", {**fields, "value": code})
    assert move.source is not None
    constant = site.consts[move.source]
    base = (
        all_.add("const", source.id, constant.dtype.name, constant.size, constant).base
        if constant is not None
        else all_.value(source.id, source.dtype, source.type.size).base
    )
    return TensorCommand(
        "COPY",
        {
            **fields,
            "x": base + move.src_offset * item,
            "x_type": target.dtype,
            "element": item,
            "x_strides": tuple(s * item for s in move.src_strides),
        },
    )


class Unsuited(Exception):
    """A node cannot work on channels-last values."""


def restrided(
    move: Move, source: Sequence[int] | None, target: Sequence[int], source_last: bool, target_last: bool
) -> Move:
    """A move between canonical tensors as one between tensors of which some are channels-last.

    Dimensions are split where either tensor's dimensions end; then each index walks one dimension of both.
    """
    sides: list[tuple[tuple[int, ...], list[int], int, bool]] = []
    if source is not None:
        sides.append((tuple(source), list(move.src_strides), move.src_offset, source_last))
    sides.append((tuple(target), list(move.dst_strides), move.dst_offset, target_last))
    dims = list(move.dims)
    strides = [list(s[1]) for s in sides]
    k = 0
    while k < len(dims):
        inner = _inner(dims[k], [(shape, strides[n][k]) for n, (shape, *_) in enumerate(sides)])
        if inner < dims[k]:
            outer = dims[k] // inner
            dims[k : k + 1] = [outer, inner]
            for own in strides:
                own[k : k + 1] = [own[k] * inner, own[k]]
        k += 1
    moved = [
        _walked(shape, dims, strides[n], offset, is_last)
        for n, (shape, _, offset, is_last) in enumerate(sides)
    ]
    dst = moved[-1]
    src = moved[0] if source is not None else ([], 0)
    return merged(
        Move(move.source, tuple(dims), tuple(src[0]), tuple(dst[0]), src[1], dst[1], move.output, move.value)
    )


def _inner(size: int, sides: Sequence[tuple[tuple[int, ...], int]]) -> int:
    """The length of the innermost run of a dimension that stays within one dimension of every tensor."""
    best = size
    for shape, stride in sides:
        step = abs(stride)
        if not step:
            continue
        for extent, own in zip(shape, dense(shape), strict=True):
            # the run would leave this dimension's line: cut at its end
            line = own * extent
            if own <= step < line and step * (size - 1) >= line:
                run = line // step
                if line % step or size % run:
                    raise Unsuited("a copy that crosses dimensions")
                best = min(best, run)
    if size % best:
        raise Unsuited("a copy that crosses dimensions")
    return best


def _walked(
    shape: tuple[int, ...], dims: Sequence[int], strides: Sequence[int], offset: int, last: bool
) -> tuple[list[int], int]:
    """Strides and offset of one side in the tensor's own layout; every index must walk one dimension."""
    own, new = dense(shape), strides_of(shape, last)

    def place(flat: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(flat, shape))

    first = place(offset)
    start = sum(i * s for i, s in zip(first, new, strict=True))
    found, reach = [], [0] * len(shape)
    for size, stride in zip(dims, strides, strict=True):
        if size == 1 or stride == 0:
            found.append(0)
            continue
        axis = next(
            (
                a
                for a, (o, e) in enumerate(zip(own, shape, strict=True))
                if e > 1 and abs(stride) % o == 0 and abs(stride) < o * e
            ),
            None,
        )
        if axis is None:
            raise Unsuited("a copy that crosses dimensions")
        step = stride // own[axis] if stride > 0 else -(-stride // own[axis])
        reach[axis] += step * (size - 1)
        low, high = first[axis] + min(0, step * (size - 1)), first[axis] + max(0, step * (size - 1))
        if low < 0 or high >= shape[axis]:
            raise Unsuited("a copy that crosses dimensions")
        found.append(step * new[axis])
    if any(not 0 <= i + r < e for i, r, e in zip(first, reach, shape, strict=True)):
        raise Unsuited("a copy that crosses dimensions")
    return found, start
