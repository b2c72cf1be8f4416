"""The least work of a layer on each engine, whatever its tiles.
Useful products on the array, operations of the vector unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from npuflow.hw.target import Compute, Numerics
from npuflow.ir.op import OpContext
from npuflow.schedule.columns import slides
from npuflow.schedule.cycles import Extents, held_operand
from npuflow.schedule.model import Layer, MacMap, describe
from npuflow.schedule.needed import NeededPart, size, touched


@dataclass(frozen=True)
class LayerWork:
    """Cycles of one core; both at once where the engines overlap perfectly."""

    array: float
    vector: float


@dataclass(frozen=True)
class LeastWork:
    """Ways to compute a layer (as it is; with gathered columns), and what one tile cannot do without:
    `latency`: a command of each engine that the layer needs, one behind the other."""

    ways: tuple[LayerWork, ...]
    latency: int

    @property
    def alone(self) -> float:
        """Cycles of the layer on a core that does nothing else."""
        return min(max(way.array, way.vector) for way in self.ways)


def least_work(site: OpContext, part: NeededPart, numerics: Numerics, c: Compute) -> LeastWork:
    """Of a node with an iteration space, of which a part is needed. Products with padding or inserted zeros
    do not count."""
    layer = describe([site], numerics, {o.id for o in site.outputs})
    if layer.space.fetches:                               # neither engine has a part in it
        return LeastWork((LayerWork(0.0, 0.0),), c.command_cycles)
    if site.op.copies(site):
        return LeastWork((LayerWork(0.0, 0.0),), 0)
    sizes, made = {a: len(i) for a, i in part.items()}, touched(layer.space.outputs[0], part)
    places = site.op.tap_places(site, [indices.tolist() for indices in made[2:]])
    served = [prod(at) * len(made[0]) for at in product(*places)] if places else []
    vector = layer.vector_work * size(made) / prod(layer.space.outputs[0].shape) / c.vector_lanes
    if layer.mac is None:
        useful = sum(served) / (size((made[0], *made[2:])) * len(served)) if sum(served) else 1.0
        return LeastWork((LayerWork(0.0, c.command_cycles + vector * useful),), c.command_cycles)
    front, ending = c.command_cycles + c.fill_cycles, c.command_cycles + vector
    ways = [LayerWork(front + _array(layer, layer.mac, sizes, served, c), ending)]
    if slides(layer.space) and c.dataflow == "weight_stationary":
        array, gathered = _by_columns(layer, layer.mac, sizes, served, c)
        ways.append(LayerWork(front + array, ending + gathered))
    return LeastWork(tuple(ways), front + c.command_cycles)


def _array(layer: Layer, mac: MacMap, sizes: Extents, served: Sequence[int], c: Compute) -> float:
    """Array cycles of the useful products of all positions, with the edges of rows and columns. `served`:
    by tap of a window the positions where it meets data."""
    slow, (depth, width, groups) = float(c.slowness(*mac.bits)), _block(layer, mac, sizes)
    blocks, (batch, points) = groups * ceil(width / c.array_cols), _positions(layer, mac, sizes)
    served = served or [points] * mac.kernel
    if c.dataflow == "weight_stationary":
        rounds = sum(ceil(n / c.array_pixels) + c.pass_cycles for n in served if n)
        dense = blocks * batch * mac.blocks(depth, c.array_rows) * rounds * slow
    else:
        rounds = depth * ceil(sum(served) / c.array_rows) + ceil(points / c.array_rows) * c.pass_cycles
        dense = blocks * batch * rounds * slow
    if depth == 1 and groups > 1:
        return min(dense, batch * groups * width * sum(served) * slow / c.depthwise_macs)
    return float(dense)


def _by_columns(
    layer: Layer, mac: MacMap, sizes: Extents, served: Sequence[int], c: Compute
) -> tuple[float, float]:
    """(array cycles, cycles of gathering) where the taps of a window are channels of the array."""
    depth, width, _ = _block(layer, mac, sizes)
    terms = depth * sum(served)
    passes = ceil(width / c.array_cols) * float(c.slowness(*mac.bits))
    return passes * terms / c.array_rows / c.array_pixels, terms / c.vector_lanes


def _block(layer: Layer, mac: MacMap, sizes: Extents) -> tuple[int, int, int]:
    """Input channels and output channels of a group, and groups."""
    if mac.group_axis is not None:
        each = layer.space.axis(mac.group_axis).multiple
        return mac.group_rows, each, sizes[mac.group_axis] // each
    return sizes[mac.rows] if mac.rows else max(1, mac.group_rows), sizes[mac.cols] if mac.cols else 1, 1


def _positions(layer: Layer, mac: MacMap, sizes: Extents) -> tuple[int, int]:
    """(products of different matrices, positions of each): a batch whose held operand changes is computed one
    after the other."""
    held = held_operand(layer)
    own = held.axes if held is not None else frozenset()
    return (
        prod(sizes[name] for name in mac.positions if name in own),
        prod(sizes[name] for name in mac.positions if name not in own),
    )
