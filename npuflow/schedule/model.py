"""What the planner knows of one node: operands as streams, and how its products map onto the MAC array."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal

from npuflow.base.errors import InternalError
from npuflow.hw.elements import ELEMENTS, packing, sparse_packing
from npuflow.hw.target import Numerics
from npuflow.ir import forms
from npuflow.ir.inner import in_wholes
from npuflow.ir.op import OpContext
from npuflow.ir.space import Axis, DimMap, Interval, IterationDomain, Operand, Tile
from npuflow.ir.types import GroupedType

# inner: made and used up tile by tile; source and result: lie in local memory before and
# after, in buffers of the group
Home = Literal["input", "const", "output", "inner", "acc", "source", "result"]
COLUMNS = "gathered"                    # key of the operand that the vector unit gathers; see tiles.py
WEIGHTS = frozenset({"weight", "kernel", "b"})    # names of constant operands that the array multiplies with
TABLE = 4096                            # bytes of a constant that may be a block of its own
PACK = 16                               # bytes to which constants are aligned inside a packed tile


@dataclass(frozen=True)
class Ref:
    """One operand of a group's member: an input or output by position, a parameter by name, or the sums.
    The operand's maps speak of the axes of the group's first member. `partial`: dimensions of which a window
    has a part only, so that its rows do not lie together in memory."""

    home: Home
    key: int | str
    operand: Operand
    dtype: str
    member: int = 0
    partial: frozenset[int] = frozenset()

    @cached_property
    def itemsize(self) -> int:
        return ELEMENTS[self.dtype].bytes

    @cached_property
    def bits(self) -> int:
        """That an element takes in memory."""
        return ELEMENTS[self.dtype].memory_bits

    @property
    def number(self) -> str:
        """The float type that it is of; empty: integers."""
        return self.dtype if ELEMENTS[self.dtype].kind == "float" else ""

    @property
    def sparse(self) -> str:
        """The type of sparse weights that it is of; empty: of none."""
        return self.dtype if ELEMENTS[self.dtype].sparse is not None else ""

    @cached_property
    def step(self) -> int:
        """From one element to the next: in bytes, of packed ones in elements."""
        return 1 if ELEMENTS[self.dtype].packed else self.itemsize

    def bytes(self, count: int) -> int:
        """Of so many elements one after another."""
        return ELEMENTS[self.dtype].storage(count)

    @cached_property
    def is_table(self) -> bool:
        return self.home == "const" and not self.axes and self.bytes(prod(self.operand.shape)) >= TABLE

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
        return "+".join(f"{r.operand.name}" + (f".{r.member}" if r.member else "") for r in self.refs)


@dataclass(frozen=True)
class MacMap:
    """How multiply-accumulates lie on the array. `rows` and `cols` are axes, or None
    when a tile does not vary them.

    `group_axis`: axis whose every `multiple` indices are an independent group of
    `group_rows` x `multiple` products.
    """

    rows: str | None
    cols: str | None
    positions: tuple[str, ...]
    kernel: int
    group_axis: str | None = None
    group_rows: int = 0
    part: int = 0                         # rows whose sums are scaled by themselves; 0: all of them
    # of the operand that streams through, and of the one that is held; the type of floats or sparse weights,
    # if there are any
    bits: tuple[int, int, str] = (8, 8, "")

    def blocks(self, depth: int, rows: int) -> int:
        """Blocks of so many array rows that a sum over `depth` terms takes, from the start of a part on."""
        if not self.part:
            return -(-depth // rows)
        return depth // self.part * -(-self.part // rows) + -(-(depth % self.part) // rows)

    @property
    def depthwise(self) -> bool:
        return self.group_axis is not None and self.group_rows == 1


@dataclass(frozen=True)
class Layer:
    """A group ready to be tiled; equal layers have equal answers, so the search is memoised by it.

    `space` is that of the first member; the others work point by point on its output.
    """

    space: IterationDomain
    streams: tuple[Stream, ...]
    mac: MacMap | None
    follower_ops: int = 0                 # vector operations of the other members, per output element
    followers: int = 0
    kept: tuple[Ref, ...] = ()            # activations that are in local memory whatever the tiling
    # commands, at least, that gather the columns of a tile; 0: there are none
    gathers: int = 0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Layers are looked up far more often than made."""
        more = self.follower_ops, self.followers, self.kept, self.gathers
        return hash((self.space, self.streams, self.mac, *more))

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        return self.space.axes

    @cached_property
    def out_elements(self) -> int:
        return sum(prod(o.shape) for o in self.space.outputs)

    @cached_property
    def vector_work(self) -> int:
        """Vector operations: a layer on the array has at least its requantisation."""
        if self.space.joins:
            return sum(prod(o.shape) for o in self.space.inputs if o is not None)
        return self.out_elements * ((self.space.ops or int(self.mac is not None)) + self.follower_ops)

    @cached_property
    def gathered(self) -> int:
        """Elements that the vector unit gathers into columns."""
        return sum(prod(r.operand.shape) for s in self.streams for r in s.refs if r.key == COLUMNS)

    @cached_property
    def const_bytes(self) -> int:
        return self.bytes_of("const")

    def bytes_of(self, *homes: Home) -> int:
        """Bytes of whole operands that live in external memory."""
        return sum(r.bytes(prod(r.operand.shape)) for s in self.streams for r in s.refs if r.home in homes)


def describe(
    sites: Sequence[OpContext], numerics: Numerics, stored: Collection[str], kept: Collection[str] = (),
    spaces: Sequence[IterationDomain] = (),
) -> Layer:
    """The layer of a part: its first member's space, and members that follow it point by point.

    `stored`: values that somebody outside the part needs; the others stay in local memory. `kept`: values
    that have a buffer in local memory, whether they are made here or before. `spaces`: where they are known.
    """
    spaces = spaces or [space_of(site, numerics) for site in sites]
    space = spaces[0]
    activations, constants, results = _operands(sites[0], space, 0, {}, {}, stored, numerics)
    made, ops = {v.id: 0 for v in sites[0].outputs}, 0
    for member, site in enumerate(sites[1:], 1):
        other = spaces[member]
        found = _operands(site, other, member, made, _axes_between(space, other), stored, numerics)
        for mine, theirs in zip((activations, constants, results), found, strict=True):
            mine += theirs
        made[site.outputs[0].id] = member
        ops += other.ops
    resident = [replace(r, home="source") for r in activations if _value(sites, r) in kept]
    resident += [replace(r, home="result") for r in results if sites[r.member].outputs[int(r.key)].id in kept]
    streams = [Stream("input", (r,)) for r in activations if _value(sites, r) not in kept]
    streams += bundles(constants, frozenset(a.name for a in space.axes))
    streams += [Stream(r.home, (r,)) for r in results if sites[r.member].outputs[int(r.key)].id not in kept]
    if space.accumulator is not None:
        held = Ref("acc", "acc", space.accumulator, forms.sum_type(sites[0], numerics))
        streams.append(Stream("acc", (held,)))
    own = [r for r in activations + constants if r.member == 0]
    mac = _mac_map(space, own, forms.block_type(sites[0]), forms.groups_type(sites[0]))
    return Layer(space, tuple(streams), mac, ops, len(sites) - 1, tuple(resident))


def _value(sites: Sequence[OpContext], ref: Ref) -> str:
    value = sites[ref.member].inputs[int(ref.key)]
    assert value is not None
    return value.id


def space_of(site: OpContext, numerics: Numerics) -> IterationDomain:
    space = forms.space(site, numerics) or site.op.local_space(site)
    if space is None:
        raise InternalError(
            f"{site.node.name} has neither an iteration space nor moves", code="NF-INTERNAL-017",
        )
    return in_wholes(space, site.op.inner) if site.op.inner else space


def _operands(
    site: OpContext,
    space: IterationDomain,
    member: int,
    made: Mapping[str, int],
    axes: Mapping[str, str | None],
    stored: Collection[str],
    numerics: Numerics,
) -> tuple[list[Ref], list[Ref], list[Ref]]:
    """(activations, constants, results) of one member, their maps on the first member's axes."""

    def moved(operand: Operand) -> Operand:
        if not member:
            return operand
        maps = tuple(
            DimMap() if m.axis is None or axes[m.axis] is None else replace(m, axis=axes[m.axis])
            for m in operand.maps
        )
        return replace(operand, maps=maps)

    activations: list[Ref] = []
    constants: list[Ref] = []
    for index, operand in enumerate(space.inputs):
        value = site.inputs[index] if index < len(site.inputs) else None
        if operand is None or value is None or value.id in made:
            continue
        fixed = site.consts[index] is not None
        dtype = (_packed(site, space, operand, numerics) if fixed else None) or value.element
        ref = Ref("const" if fixed else "input", index, moved(operand), dtype, member)
        (constants if fixed else activations).append(ref)
    for operand in space.params:
        dtype = _packed(site, space, operand, numerics) or site.array(operand.name).dtype.name
        constants.append(Ref("const", operand.name, moved(operand), dtype, member))
    results = [
        Ref("output" if value.id in stored else "inner", i, moved(o), value.element, member)
        for i, (value, o) in enumerate(zip(site.outputs, space.outputs, strict=False))
    ]
    return activations, constants, results


def _packed(site: OpContext, space: IterationDomain, operand: Operand, numerics: Numerics) -> str | None:
    """The type of weights that lie packed, where the target's array takes them in fewer
    bits than a byte has, or two."""
    if not space.macs or operand.name not in WEIGHTS or site.consts[1] is None or site.number:
        return None
    quant = site.quant(1)
    width = min((b for b in numerics.weight_bits if b >= quant.bits), default=8)
    if quant.sparse is not None:
        return sparse_packing(width, quant.signed, quant.sparse)
    # matrices of a batch need not begin on whole bytes
    flat = operand.name != "b" or len(operand.shape) == 2
    return packing(width, quant.signed) if flat else None


def packed_arrays(site: OpContext, space: IterationDomain, numerics: Numerics) -> Iterator[tuple[str, str]]:
    """Digests of a node's constants that lie packed, and their types."""
    params = {name: digest for name, digest in site.node.params or () if isinstance(digest, str)}
    for index, operand in (*enumerate(space.inputs), *((None, p) for p in space.params)):
        dtype = None if operand is None else _packed(site, space, operand, numerics)
        if operand is None or dtype is None:
            continue
        value = site.inputs[index] if index is not None else None
        digest = value.const if value is not None else params.get(operand.name)
        if digest is not None:
            yield digest, dtype


def _axes_between(first: IterationDomain, other: IterationDomain) -> dict[str, str | None]:
    """Axes of a follower -> axes of the first member, by the dimensions of their outputs."""
    pairs = zip(other.outputs[0].maps, first.outputs[0].maps, strict=True)
    return {theirs.axis: mine.axis for theirs, mine in pairs if theirs.axis is not None}


def follower_ranges(first: IterationDomain, other: IterationDomain, tile: Tile) -> dict[str, Interval]:
    """The tile of a follower that belongs to a tile of the first member."""
    between = _axes_between(first, other)
    return {
        a.name: tile[mine] if (mine := between.get(a.name)) is not None else (0, a.size) for a in other.axes
    }


def leads(space: IterationDomain) -> bool:
    """Whether other members can work on this space's output: one output, each dimension an axis as it is."""
    return len(space.outputs) == 1 and all(m == DimMap(m.axis) for m in space.outputs[0].maps)


def apart(m: DimMap) -> DimMap:
    """The map without the place where a part of a value begins."""
    return replace(m, lo=0, hi=0) if m.lo == m.hi > 0 else m


def follows(space: IterationDomain, shape: tuple[int, ...], inner: Collection[int]) -> bool:
    """Whether a space works point by point on tensors of a shape; `inner`: inputs made inside the group."""
    plain = (
        all(a.kind == "par" and a.multiple == 1 for a in space.axes)
        and not space.macs
        and space.accumulator is None
    )
    if not plain or not leads(space) or space.outputs[0].shape != shape:
        return False
    operands = [o for o in (*space.inputs, *space.params) if o is not None]
    if any(apart(m) != DimMap(m.axis) for o in operands for m in o.maps):
        return False
    whole = [o for i, o in enumerate(space.inputs) if i in inner and o is not None]
    return bool(whole) and all(o.shape == shape and o.maps == space.outputs[0].maps for o in whole)


def bundles(refs: list[Ref], split: frozenset[str]) -> list[Stream]:
    """Constants by the split axes that they follow: each group is one block, a large table one alone."""
    groups: dict[tuple[str, ...] | Ref, list[Ref]] = {}
    for ref in refs:
        groups.setdefault(ref if ref.is_table else tuple(sorted(ref.axes & split)), []).append(ref)
    return [Stream("const", tuple(g)) for g in groups.values()]


def _mac_map(
    space: IterationDomain, refs: list[Ref], blocks: str, groups: GroupedType | None
) -> MacMap | None:
    """Operand 0 streams through the array, operand 1 is held in it: their axes say
    what rows and columns are. `blocks`, `groups`: the type of a weight whose last dimension is bytes."""
    if not space.macs:
        return None
    moving = next((r for r in refs if r.key == 0), None)
    held = next((r for r in refs if r.key == 1), None)
    if held is None:                     # the weight in a layout of its own, as a parameter
        held = next((r for r in refs if isinstance(r.key, str) and len(r.operand.shape) > 1), None)
    if moving is None or held is None:
        raise InternalError(
            "a space with multiply-accumulates needs input 0 and a weight", code="NF-INTERNAL-018",
        )
    sums = [a.name for a in space.axes if a.kind == "sum"]
    rows = sums[0] if sums else None
    own = [a for a in space.axes if a.name in held.axes - moving.axes and a.kind != "sum"]
    # before it: dimensions of a batch that the moving operand repeats along
    cols = own[-1].name if own else None
    group_axis, group_rows = None, 0
    # The array goes through every tap of a window, also those of a transposed one that meet inserted zeros.
    end = -1 if blocks or groups is not None else None
    taps = zip(held.operand.maps[2:end], held.operand.shape[2:end], strict=True)
    kernel = prod(size for m, size in taps if m.axis is None)
    if cols is None:
        shared = [
            a for a in space.axes if a.name in held.axes & moving.axes and a.kind == "par" and a.name != rows
        ]
        shared = [a for a in shared if a.name in held.axes]
        if shared and rows is None:
            group_axis = shared[0].name
            group_rows = _group_rows(moving.operand, shared[0])
    elif rows is None:
        inner = (held.operand.maps[1:] and held.operand.shape[1]) or 1
        group_rows = int(inner)
    named = {rows, cols, group_axis}
    positions = tuple(a.name for a in space.axes if a.name not in named)
    scaled = (a.multiple for a in space.axes if a.name == rows and a.multiple > 1)
    special = blocks or moving.number or held.sparse
    part = 0 if special else next(scaled, 0)              # their sums end between chunks, and are not scaled
    own_bits = ELEMENTS[held.dtype].bits if groups is None else groups.bits
    bits = (moving.bits, own_bits, special)
    return MacMap(rows, cols, positions, kernel, group_axis, group_rows, part, bits)


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
