"""What the planner knows of one node: operands as streams, and how its products map onto the MAC array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

import numpy as np

from npuflow.base.errors import InternalError
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Site
from npuflow.ir.space import Axis, DimMap, Operand, Space

Home = Literal["input", "const", "output", "acc"]
PACK = 16                               # bytes to which constants are aligned inside a packed tile


@dataclass(frozen=True)
class Ref:
    """One operand of a node: an input or output by position, a parameter by name, or the accumulator."""

    home: Home
    key: int | str
    operand: Operand
    dtype: str

    @cached_property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    @cached_property
    def axes(self) -> frozenset[str]:
        return frozenset(m.axis for m in self.operand.maps if m.axis is not None)


@dataclass(frozen=True)
class Stream:
    """Operands that change together from tile to tile: one activation, or constants packed into one block."""

    home: Home
    refs: tuple[Ref, ...]

    @cached_property
    def axes(self) -> frozenset[str]:
        return frozenset().union(*(r.axes for r in self.refs))

    @cached_property
    def name(self) -> str:
        return "+".join(f"{r.home}:{r.key}" for r in self.refs)


@dataclass(frozen=True)
class MacMap:
    """How multiply-accumulates lie on the array. `rows` and `cols` are axes, or None when a tile does not vary them.

    `group_axis`: axis whose every `multiple` indices are an independent group of `group_rows` x `multiple` products.
    """

    rows: str | None
    cols: str | None
    positions: tuple[str, ...]
    kernel: int
    group_axis: str | None = None
    group_rows: int = 0
    wide: bool = False

    @property
    def depthwise(self) -> bool:
        return self.group_axis is not None and self.group_rows == 1


@dataclass(frozen=True)
class Layer:
    """A node ready to be tiled; equal layers have equal answers, so the search is memoised by it."""

    space: Space
    streams: tuple[Stream, ...]
    mac: MacMap | None

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        return self.space.axes

    @cached_property
    def out_elements(self) -> int:
        return sum(prod(o.shape) for o in self.space.outputs)

    @cached_property
    def vector_ops(self) -> int:
        """Vector operations per output element: a layer on the array has at least its requantisation."""
        return self.space.ops or int(self.mac is not None)

    def bytes_of(self, *homes: Home) -> int:
        """Bytes of whole operands that live in external memory."""
        return sum(prod(r.operand.shape) * r.itemsize for s in self.streams for r in s.refs if r.home in homes)


def describe(site: Site, numerics: Numerics) -> Layer:
    """The layer of a node that has an iteration space."""
    space = site.op.space(site, numerics)
    if space is None:
        raise InternalError(f"{site.node.name} has neither an iteration space nor moves")
    activations: list[Ref] = []
    constants: list[Ref] = []
    for index, operand in enumerate(space.inputs):
        value = site.inputs[index] if index < len(site.inputs) else None
        if operand is None or value is None:
            continue
        home: Home = "input" if site.consts[index] is None else "const"
        (activations if home == "input" else constants).append(Ref(home, index, operand, value.dtype))
    for operand in space.params:
        constants.append(Ref("const", operand.name, operand, site.array(operand.name).dtype.name))
    outputs = [Ref("output", i, o, site.outputs[i].dtype) for i, o in enumerate(space.outputs)]
    streams = [Stream("input", (r,)) for r in activations]
    streams += bundles(constants, frozenset(a.name for a in space.axes))
    streams += [Stream("output", (r,)) for r in outputs]
    if space.accumulator is not None:
        container = "int32" if numerics.acc_bits <= 32 else "int64"
        streams.append(Stream("acc", (Ref("acc", "acc", space.accumulator, container),)))
    return Layer(space, tuple(streams), _mac_map(space, activations + constants))


def bundles(refs: list[Ref], split: frozenset[str]) -> list[Stream]:
    """Constants grouped by the split axes that they follow: each group is packed and loaded as one block."""
    groups: dict[tuple[str, ...], list[Ref]] = {}
    for ref in refs:
        groups.setdefault(tuple(sorted(ref.axes & split)), []).append(ref)
    return [Stream("const", tuple(g)) for g in groups.values()]


def _mac_map(space: Space, refs: list[Ref]) -> MacMap | None:
    """Operand 0 streams through the array, operand 1 is held in it: their axes say what rows and columns are."""
    if not space.macs:
        return None
    moving = next((r for r in refs if r.key == 0), None)
    held = next((r for r in refs if r.key == 1), None)
    if held is None:                     # the weight in a layout of its own, as a parameter
        held = next((r for r in refs if isinstance(r.key, str) and len(r.operand.shape) > 1), None)
    if moving is None or held is None:
        raise InternalError("a space with multiply-accumulates needs input 0 and a weight")
    wide = max(moving.itemsize, held.itemsize) > 1
    sums = [a.name for a in space.axes if a.kind == "sum"]
    rows = sums[0] if sums else None
    own = [a for a in space.axes if a.name in held.axes - moving.axes and a.kind != "sum"]
    cols = own[0].name if own else None
    group_axis, group_rows, kernel = None, 0, space.macs
    if cols is None:
        shared = [a for a in space.axes if a.name in held.axes & moving.axes and a.kind == "par" and a.name != rows]
        shared = [a for a in shared if a.name in held.axes]
        if shared and rows is None:
            group_axis = shared[0].name
            group_rows = _group_rows(moving.operand, shared[0])
            kernel = max(1, space.macs // max(1, group_rows))
    elif rows is None:
        inner = (held.operand.maps[1:] and held.operand.shape[1]) or 1
        group_rows = int(inner)
        kernel = max(1, space.macs // group_rows)
    named = {rows, cols, group_axis}
    positions = tuple(a.name for a in space.axes if a.name not in named)
    return MacMap(rows, cols, positions, kernel, group_axis, group_rows, wide)


def _group_rows(operand: Operand, axis: Axis) -> int:
    """Input channels that one group of the axis reads."""
    for m, size in zip(operand.maps, operand.shape, strict=True):
        if m.axis == axis.name:
            a, b = _clip(m, 0, axis.multiple, size)
            return b - a
    return 1


def _clip(m: DimMap, a: int, b: int, size: int) -> tuple[int, int]:
    lo, hi = m.window(a, b)
    return max(0, lo), min(size, hi)
