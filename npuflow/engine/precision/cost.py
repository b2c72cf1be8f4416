"""Estimated cycles of a float network under a mixture of widths, layer by layer: enough to rank, not to promise.

A layer takes the longer of its array and vector work; wide operands take `wide_factor` times as long on the array. Weights
cross the external bus once, activations for a fixed share of their bytes: fusion keeps the rest in local memory. Nodes left
in float cost what the host takes for them. The plan of the chosen mixture is made by the tiling search; its cycles count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from npuflow.engine.host import node_cycles
from npuflow.engine.precision.fakequant import Network
from npuflow.hw.target import Target
from npuflow.ir.graph import Node
from npuflow.ir.macs import node_macs
from npuflow.ir.precision import FLOAT, NARROW, WIDE, Levels

CROSSING = 0.35                           # share of the bytes of activations that cross the external bus


@dataclass(frozen=True)
class Layer:
    """One node: cycles of the array with narrow operands, of the vector unit and of the host; the units that it reads, those
    that it writes, and its weights. What it writes does not slow the array down, however wide."""

    array: float
    vector: float
    host: float
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def units(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.reads, *self.writes, *self.weights)))


@dataclass(frozen=True)
class CostModel:
    """Cycles of a network whose units are its groups of activations, then its weights."""

    network: Network
    target: Target

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        network, mine = self.network, {id(n) for n in self.network.nodes}
        groups = {v: k for k, group in enumerate(network.groups) for v in group}
        first = len(network.groups)
        weights = {w.value: first + j for j, w in enumerate(network.weights)}
        found = []
        for node in network.graph.nodes:
            if id(node) not in mine:
                continue
            reads, writes = (tuple(dict.fromkeys(groups[v] for v in part if v in groups)) for part in (node.inputs, node.outputs))
            own = tuple(dict.fromkeys(weights[v] for v in node.inputs if v in weights))
            macs = node_macs(network.graph, node)
            elements = sum(network.graph.type(o).size for o in node.outputs if o)
            vector = elements / self.target.compute.vector_lanes
            host = node_cycles(network.graph, node, self.target)
            found.append(Layer(macs / self._rate(node), vector, host, reads, writes, own))
        return tuple(found)

    @cached_property
    def bytes(self) -> tuple[float, ...]:
        """By unit the bytes that cross the external bus, at one byte an element."""
        graph = self.network.graph
        moved = [CROSSING * sum(graph.type(v).size for v in group) for group in self.network.groups]
        stored = [graph.type(w.value).size for w in self.network.weights]
        return (*moved, *map(float, stored))

    @cached_property
    def at(self) -> tuple[tuple[int, ...], ...]:
        """By unit the layers that touch it."""
        found: list[list[int]] = [[] for _ in self.bytes]
        for i, layer in enumerate(self.layers):
            for unit in layer.units:
                found[unit].append(i)
        return tuple(map(tuple, found))

    def neighbours(self, unit: int) -> tuple[int, ...]:
        """Units that a layer of this one's touches."""
        return tuple(dict.fromkeys(u for i in self.at[unit] for u in self.layers[i].units if u != unit))

    def cycles(self, levels: Levels) -> float:
        work = sum(self._layer(layer, levels) for layer in self.layers)
        return work + sum(self._bus(unit, level) for unit, level in enumerate(levels))

    def delta(self, levels: Levels, unit: int, level: int) -> float:
        changed = list(levels)
        changed[unit] = level
        work = sum(self._layer(self.layers[i], changed) - self._layer(self.layers[i], levels) for i in self.at[unit])
        return work + self._bus(unit, level) - self._bus(unit, levels[unit])

    def _layer(self, layer: Layer, levels: Sequence[int]) -> float:
        if any(levels[u] == FLOAT for u in (*layer.reads, *layer.writes)):
            return layer.host
        wide = any(levels[u] == WIDE for u in (*layer.reads, *layer.weights))
        return max(layer.array * (self.target.compute.wide_factor if wide else 1), layer.vector)

    def _bus(self, unit: int, level: int) -> float:
        times = {NARROW: 1, WIDE: 2, FLOAT: 4}[level]
        return times * self.bytes[unit] / self.target.memory.external_bandwidth

    def _rate(self, node: Node) -> float:
        """Multiply-accumulates of a cycle: the array's peak, less what channels leave idle at its edges."""
        compute = self.target.compute
        peak = float(compute.array_rows * compute.array_cols * compute.array_pixels)
        for operand, value_id in enumerate(node.inputs):
            if not value_id or node.op.role(operand) != "weight":
                continue
            shape = self.network.graph.type(value_id).shape
            if len(shape) < 2:
                break
            outputs, inputs = (shape[0], shape[1]) if len(shape) > 2 else (shape[-1], shape[-2])
            if len(shape) > 2 and inputs == 1 and outputs > 1:
                return float(compute.depthwise_macs)
            return peak * _filled(inputs, compute.array_rows) * _filled(outputs, compute.array_cols)
        return peak


def _filled(size: int, edge: int) -> float:
    return size / (ceil(size / edge) * edge)
