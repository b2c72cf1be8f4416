"""Estimated energy of a network under a mixture of widths: its products, its traffic and its time.

Products cost what the target's table says of the widest operands of a layer; traffic is what crosses the
borders of the plan's groups, which is read or written in local memory, too. Work of the vector unit hardly
depends on widths and is left out. A layer that is left to the host counts as one at the widest operands: no
table knows the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from npuflow.hw.elements import WIDEST
from npuflow.hw.energy import Energy
from npuflow.ir.macs import node_macs
from npuflow.strategies import FLOAT, NARROW, Levels
from npuflow.tune.precision.cost import CostModel


@dataclass(frozen=True)
class EnergyModel:
    """Energy of mixtures of a network, by its estimated cycles' own plan and sums."""

    cost: CostModel
    table: Energy

    @cached_property
    def macs(self) -> tuple[int, ...]:
        """Multiply-accumulates by node."""
        network = self.cost.network
        return tuple(node_macs(network.graph, node) for node in network.nodes)

    def relative(self, levels: Levels) -> float:
        """As a multiple of the energy with the recipe's widths."""
        return self.picojoules(levels) / self._usual

    @cached_property
    def _usual(self) -> float:
        return self.picojoules((NARROW,) * len(self.cost.at)) or 1.0

    def picojoules(self, levels: Levels) -> float:
        """What depends on widths, in all."""
        table, cost = self.table, self.cost
        products = sum(count * self._product(i, levels) for i, count in enumerate(self.macs) if count)
        byte = table.external_byte + 2 * table.local_byte
        cycle = table.idle_mw / cost.target.compute.clock_mhz * 1000
        return products + byte * cost.moved(levels) + (cycle * cost.cycles(levels) if cycle else 0.0)

    def _product(self, index: int, levels: Levels) -> float:
        """pJ of a product of a layer."""
        layer, cost = self.cost.layers[index], self.cost
        if any(levels[u] == FLOAT for u in (*layer.reads, *layer.writes)):
            return self.table.mac(WIDEST, WIDEST) if self.table.macs else 0.0
        level = cost.types.of_layer(layer.units, levels)
        number = cost.types.number(level) if level else ""
        if number:
            return self.table.mac(0, 0, number)
        streamed = max((cost.bits(u, levels[u]) for u in layer.reads), default=8)
        held = max((cost.bits(u, levels[u]) for u in layer.weights), default=streamed)
        return self.table.mac(min(streamed, WIDEST), min(held, WIDEST))
