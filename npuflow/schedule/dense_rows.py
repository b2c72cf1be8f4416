"""Whole rows for strided layers: the last columns are loaded, too, although no window reads them.

A 1 x 1 kernel of stride 2 reads every second column, and not the last one of an even number. Without it the
rows of a box are not contiguous in external memory, and each costs a burst of its own. With it they are
contiguous. The layer's windows stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from npuflow.ir.space import IterationDomain, Operand
from npuflow.schedule.cycles import box_transfer
from npuflow.schedule.machine import Machine
from npuflow.schedule.model import Layer, Ref

ROOM = 2                                  # times so much as the row of an image takes fits local memory


def with_whole_rows(layer: Layer, machine: Machine, loaded: Callable[[Ref], bool]) -> Layer:
    """The layer with whole rows of its first operand where they are loaded faster. `loaded`: whether what
    lies in a buffer of the group comes from external memory."""
    if layer.mac is None:
        return layer

    def wider(ref: Ref) -> Ref:
        first = ref.member == 0 and ref.key == 0
        if not first or not (ref.home == "input" or (ref.home == "source" and loaded(ref))):
            return ref
        operand = _whole(ref.operand, layer.space)
        pays = operand != ref.operand and _pays(ref, operand, layer.space, machine)
        return replace(ref, operand=operand) if pays else ref

    streams = tuple(replace(s, refs=tuple(map(wider, s.refs))) for s in layer.streams)
    kept = tuple(map(wider, layer.kept))
    return layer if (streams, kept) == (layer.streams, layer.kept) else replace(
        layer, streams=streams, kept=kept,
    )


def _whole(operand: Operand, space: IterationDomain) -> Operand:
    """Windows that reach on to the next one, in the last dimension, where they leave its end out. Rows that
    they leave out stay out: a tile of one row reads no other."""
    *others, m = operand.maps
    if len(operand.maps) < 3 or m.axis is None or m.den > 1:
        return operand
    left = operand.shape[-1] - m.window(0, space.axis(m.axis).size)[1]
    if not 0 < left < m.num - (m.hi - m.lo):
        return operand
    return replace(operand, maps=(*others, replace(m, hi=m.hi + left)))


def _pays(ref: Ref, wider: Operand, space: IterationDomain, machine: Machine) -> bool:
    """Whether that takes fewer cycles, and a tile's rows fit local memory."""
    shape, full = wider.shape, space.full
    times = []
    for operand in (ref.operand, wider):
        moved = box_transfer(shape, operand.box(full), ref.itemsize, machine)
        times.append(moved.front + moved.bytes / machine.memory.external_bandwidth)
    row = shape[1] * shape[-1] * ref.itemsize
    return times[1] < times[0] and row * ROOM <= machine.memory.local_bytes
