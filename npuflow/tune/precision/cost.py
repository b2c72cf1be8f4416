"""Estimated cycles of a network under a mixture of widths: the tiling search's own plan,
its groups re-priced by width.

The network with the recipe's widths is planned once. A fusion group has three parts: array cycles, where
layers with wide operands are as slow as `array_rates` says; vector cycles; and transfers, which grow with the
bytes of the tensors and weights that cross the group's border. The engines overlap in part, so the group
takes the p-norm of the three, with the exponent at which its narrow cycles come out; it can therefore not be
widened for nothing up to its longest engine. Nodes left in float cost what the host takes for them, in a
loop what it takes for the loop. Layers in a float type of the NPU take the array as long as `float_rates`
says; their tables of functions and the wider weights are transferred, and the vector unit casts what they
share with layers in integers. It ranks mixtures and promises nothing: what is taken or reported by a search
for a front is planned anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from npuflow.base.errors import TargetError
from npuflow.hw.elements import ELEMENTS
from npuflow.hw.target import Target
from npuflow.ir.forms import float_table
from npuflow.ir.graph import Graph
from npuflow.ir.loops import times
from npuflow.ir.macs import node_macs
from npuflow.ir.op import Node
from npuflow.ir.types import QuantType
from npuflow.ir.unroll import rolled, values_of_steps
from npuflow.place.host import HostPricing, host_work, total_work
from npuflow.place.names import names_of
from npuflow.place.place import op_name
from npuflow.schedule.choice import Costs
from npuflow.schedule.machine import Machine
from npuflow.search.memory import SearchMemory
from npuflow.search.plan import layers_alone
from npuflow.search.unfit import PlanRequest, explained, without_tile
from npuflow.strategies import FLOAT, NARROW, WIDE, Levels
from npuflow.tune import tuned
from npuflow.tune.bias import originals
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.group_cost import GroupCost, GroupSums, NodeCost, crossing_of, norm, overlap
from npuflow.tune.precision.levels import LevelTypes
from npuflow.tune.precision.loop_cost import (
    LoopOnHost,
    LoopPlan,
    LoopWeights,
    ResultCosts,
    costs_by_results,
    loops_on_host,
    mixture_plan,
    weights_of_loops,
)


@dataclass(frozen=True)
class CostModel:
    """Cycles of a network whose units are its groups of activations, then its weights. `narrow`: its
    quantised graph with the recipe's widths; `memory`: what searches for tilings have found, which plans of
    mixtures share."""

    network: FakeQuantNetwork
    target: Target
    narrow: Graph
    types: LevelTypes = field(default_factory=LevelTypes)
    memory: SearchMemory = field(default_factory=SearchMemory, compare=False)

    @property
    def units(self) -> Mapping[str, int]:
        """Value -> its unit."""
        return self.network.units

    @cached_property
    def layers(self) -> tuple[NodeCost, ...]:
        network, units, first = self.network, self.units, len(self.network.groups)
        macs = [node_macs(network.graph, node) for node in network.nodes]
        array = [0.0] * len(network.nodes)
        for layers, costs in self._placed(self._alone()):
            total = sum(macs[i] for i in layers) or 1
            for i in layers:
                array[i] += costs.tensor * macs[i] / total
        found, prices = [], HostPricing(network.graph)
        for node, cycles in zip(network.nodes, array, strict=True):
            reads, writes = (
                tuple(dict.fromkeys(units[v] for v in ids if v in units))
                for ids in (node.inputs, node.outputs)
            )
            weights = tuple(u for u in reads if u >= first)
            host = prices.work([node]).cycles(self.target)
            given = tuple(u for u in reads if u < first)
            numbers = map(self.types.number, self.types.float_levels)
            tables = {n: float_table(node.op, n) for n in numbers}
            found.append(
                NodeCost(
                    cycles, host, given, writes, weights, self._casts(node), tables,
                    min(cycles, self._overhead(node)) if cycles else 0.0,
                )
            )
        return tuple(found)

    def _casts(self, node: Node) -> dict[int, float]:
        """Cycles that the vector unit takes for a cast of what a node reads and writes, by unit."""
        compute, found = self.target.compute, dict[int, float]()
        for v in dict.fromkeys((*node.inputs, *node.outputs)):
            if v in self.units and self.network.graph.const(v) is None:
                cycles = self.network.graph.type(v).size / compute.vector_lanes + compute.command_cycles
                found[self.units[v]] = found.get(self.units[v], 0.0) + cycles
        return found

    @cached_property
    def groups(self) -> tuple[GroupCost, ...]:
        found, timed = [], self._narrow_plan.timed
        for layers, costs in self._placed(self._narrow_plan.groups()):
            parts = costs.tensor, costs.vector, max(costs.bus, costs.load, costs.store)
            exponent = overlap(parts, costs.cycles)
            rest = costs.cycles - norm(parts, exponent)
            crossing = crossing_of(self.network.graph, [self.network.nodes[i] for i in layers], self.units)
            if not timed:
                rest = max(rest, 0.0)
            elif not costs.const:                           # resident weights
                crossing = {u: n for u, n in crossing.items() if u < len(self.network.groups)}
            found.append(GroupCost(layers, *parts, exponent, rest, crossing))
        return tuple(found)

    def _overhead(self, node: Node) -> float:
        """Command and fill cycles of a product in a loop, one command a step."""
        compute, runs = self.target.compute, times(self.network.graph, node)
        return float(runs * (compute.command_cycles + compute.fill_cycles)) if runs > 1 else 0.0

    def _alone(self) -> Iterator[ResultCosts]:
        """The narrow network's layers, each by itself."""
        wanted = PlanRequest(rolled(self.narrow), self.machine, self.target.numerics, tuned.MIXTURE_ALONE)
        try:
            found = layers_alone(wanted.graph, wanted.machine, wanted.numerics, wanted.level)
        except TargetError as fault:
            raise explained(wanted, fault, {}) from None
        return costs_by_results(found, wanted.graph, self.narrow)

    def _placed(self, groups: Iterable[ResultCosts]) -> Iterator[tuple[tuple[int, ...], Costs]]:
        """By group of the narrow network its layers and costs; of a loop those of all steps."""
        named = originals(self.network.graph, self.narrow)
        places = {o: i for i, node in enumerate(self.network.nodes) for o in node.outputs if o}
        for outputs, costs in groups:
            values = (named.get(o, o) for o in outputs)
            yield tuple(dict.fromkeys(places[v] for v in values if v in places)), costs

    def _plan(self, graph: Graph) -> LoopPlan:
        return mixture_plan(graph, self.target, self.memory)

    @cached_property
    def _narrow_plan(self) -> LoopPlan:
        return self._plan(self.narrow)

    def replayed(self, graph: Graph | None = None) -> float:
        """Cycles of a quantised graph by a plan of its own, those of the host included; None: with the
        recipe's widths. As dear as the tiling search of a build, and as exact."""
        plan = (self._narrow_plan if graph is None else self._plan(graph)).plan
        host = total_work(host_work(self.narrow if graph is None else graph))
        return plan.cycles + host.cycles(self.target) or 1.0

    @cached_property
    def at(self) -> tuple[tuple[int, ...], ...]:
        """By unit the groups that it touches."""
        found: list[dict[int, None]] = [
            {} for _ in range(len(self.network.groups) + len(self.network.weights))
        ]
        for g, group in enumerate(self.groups):
            for unit in (*group.crossing, *(u for i in group.layers for u in self.layers[i].units)):
                found[unit][g] = None
        return tuple(map(tuple, found))

    def neighbours(self, unit: int) -> tuple[int, ...]:
        """Units that a group of this one's touches."""
        near = (u for g in self.at[unit] for i in self.groups[g].layers for u in self.layers[i].units)
        return tuple(dict.fromkeys(u for u in near if u != unit))

    @cached_property
    def machine(self) -> Machine:
        return Machine(self.target.compute, self.target.memory, self.target.dma)

    def without_room(self, wide: Graph) -> frozenset[int]:
        """Units that layers read, write or hold of which no tile fits local memory in `wide`, the network
        quantised with every unit at its widest."""
        named, graph = originals(self.network.graph, wide), rolled(wide)
        missing = without_tile(PlanRequest(graph, self.machine, self.target.numerics, tuned.MIXTURE_LEVEL))
        around = (v for i in missing for v in (*graph.nodes[i].inputs, *graph.nodes[i].outputs))
        inner = values_of_steps(wide)
        values = (inner.get(v, v) for v in around)
        return frozenset(self.units[u] for v in values if (u := named.get(v, v)) in self.units)

    def bits(self, unit: int, level: int) -> int:
        """The width of a unit's codes at a level; of float, 32."""
        known = self._bits.get(level)
        if known is None:
            count = len(self.network.groups) + len(self.network.weights)
            known = self._bits[level] = tuple(self._width(u, level) for u in range(count))
        return known[unit]

    @cached_property
    def _bits(self) -> dict[int, tuple[int, ...]]:
        """By level the width of every unit: prices ask for them millions of times."""
        return {}

    def _width(self, unit: int, level: int) -> int:
        numerics, weight = self.target.numerics, unit >= len(self.network.groups)
        if level == FLOAT:
            return 32
        if level == WIDE:
            return max(numerics.weight_bits if weight else numerics.activation_bits)
        if self.types.number(level):
            return ELEMENTS[self.types.number(level)].bits
        return self.types.bits(level) or self.recipe_bits[unit]

    @cached_property
    def recipe_bits(self) -> tuple[int, ...]:
        """By unit the width that the recipe gives it."""
        network, scheme = self.network, self.network.quantize
        given = {
            was: self.narrow.values[now].quant for now, was in originals(network.graph, self.narrow).items()
        }
        quants = (given.get(group[0]) or self._quant(group[0]) for group in network.groups)
        weights = (network.graph.nodes[w.node] for w in network.weights)
        widths = [scheme.weights_of(names_of(node), op_name(node)).bits for node in weights]
        return (*(scheme.activations.bits if q is None else q.bits for q in quants), *widths)

    def _quant(self, value_id: str) -> QuantType | None:
        value = self.narrow.values.get(value_id)
        return None if value is None else value.quant

    def size(self, unit: int, level: int) -> float:
        """Bytes that an element takes in memory: whole ones, or half of one where the target packs 4 bits."""
        bits, weight = self.bits(unit, level), unit >= len(self.network.groups)
        packed = 4 in (self.target.numerics.weight_bits if weight else self.target.numerics.activation_bits)
        return 0.5 if bits <= 4 and packed else float(-(-bits // 8))

    @cached_property
    def elements(self) -> tuple[int, ...]:
        """Of every weight, in their order."""
        return tuple(self.network.graph.type(w.value).size for w in self.network.weights)

    def weight_bytes(self, levels: Levels) -> float:
        """Bytes of all weights as the target stores them, as a share of 8 bits for each."""
        first = len(self.network.groups)
        stored = sum(n * self.size(first + j, levels[first + j]) for j, n in enumerate(self.elements))
        return stored / max(sum(self.elements), 1)

    def weight_bits(self, levels: Levels) -> float:
        """The average width of a weight."""
        first = len(self.network.groups)
        held = sum(n * self.bits(first + j, levels[first + j]) for j, n in enumerate(self.elements))
        return held / max(sum(self.elements), 1)

    def cycles(self, levels: Levels) -> float:
        groups = sum(self._cycles(g, self._sums(g, levels)) for g in range(len(self.groups)))
        loops = sum(loop.more(levels) for loop in self._loops)
        # 1.0: everything was refused, and equal for all
        reloads = sum(self._reloads(one, levels) for one in self._weights) - self._usual_reloads
        return groups + loops + reloads or 1.0

    @cached_property
    def _loops(self) -> tuple[LoopOnHost, ...]:
        return loops_on_host(self.network, [layer.host for layer in self.layers], self.target)

    @cached_property
    def _weights(self) -> tuple[LoopWeights, ...]:
        return weights_of_loops(self.network, self.target.memory.local_bytes)

    def _reloads(self, weights: LoopWeights, levels: Sequence[int]) -> float:
        """Cycles to load weights of a loop again, which local memory does not hold."""
        return weights.reloaded(lambda u: self.size(u, levels[u])) / self.target.memory.external_bandwidth

    @cached_property
    def _usual_reloads(self) -> float:
        """With the recipe's widths: part of the plan's cycles."""
        narrow = (NARROW,) * (len(self.network.groups) + len(self.network.weights))
        return sum(self._reloads(one, narrow) for one in self._weights)

    def moved(self, levels: Levels) -> float:
        """Bytes that cross the borders of the plan's groups."""
        return sum(self._sums(g, levels).moved for g in range(len(self.groups)))

    def delta(self, levels: Levels, unit: int, level: int) -> float:
        changed = list(levels)
        changed[unit] = level
        mine = [loop for loop in self._loops if unit in loop.units]
        hosted = sum(loop.more(changed) - loop.more(levels) for loop in mine)
        held = [one for one in self._weights if unit in one.elements]
        reloads = sum(self._reloads(one, changed) - self._reloads(one, levels) for one in held)
        return sum(self._step(g, levels, changed, unit) for g in self.at[unit]) + hosted + reloads

    def _step(self, at: int, levels: Sequence[int], changed: Sequence[int], unit: int) -> float:
        """What a unit's change costs in a group: of its sums only those of layers and bytes that depend on
        the unit are formed anew, for groups may have hundreds of layers."""
        before, touched = self._sums(at, levels), self._touched[at][unit]
        old, new = (self._part(self.groups[at], *touched, some) for some in (levels, changed))
        after = before.replaced(old, new)
        return self._cycles(at, after) - self._cycles(at, before)

    @cached_property
    def _touched(self) -> tuple[Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]], ...]:
        """By group and unit the layers that read, write or multiply by it, and what crosses the group's
        border at a width that depends on it: layers in a float type hold their weights in it."""
        found = []
        for group, units in zip(self.groups, self._around, strict=True):
            of: dict[int, list[int]] = {u: [] for u in units}
            for i in group.layers:
                for u in self.layers[i].units:
                    of[u].append(i)
            beside = {u: (u, *(w for i in some for w in self.layers[i].weights)) for u, some in of.items()}
            crossing = {
                u: tuple(w for w in dict.fromkeys(some) if w in group.crossing) for u, some in beside.items()
            }
            found.append({u: (tuple(some), crossing[u]) for u, some in of.items()})
        return tuple(found)

    @cached_property
    def _around(self) -> tuple[tuple[int, ...], ...]:
        """By group the units that its cycles depend on."""
        return tuple(
            tuple(dict.fromkeys((*group.crossing, *(u for i in group.layers for u in self.layers[i].units))))
            for group in self.groups
        )

    @cached_property
    def _summed(self) -> dict[tuple[int, ...], GroupSums]:
        """By group and levels of its units: a search asks for the same few again and again."""
        return {}

    def _sums(self, at: int, levels: Sequence[int]) -> GroupSums:
        key = (at, *(levels[u] for u in self._around[at]))
        found = self._summed.get(key)
        if found is None:
            group = self.groups[at]
            found = self._summed[key] = self._part(group, group.layers, tuple(group.crossing), levels)
        return found

    def _part(
        self, group: GroupCost, layers: Sequence[int], crossing: Sequence[int], levels: Sequence[int]
    ) -> GroupSums:
        """The sums of some layers of a group and of some of what crosses its border."""
        array = host = casts = tables = 0.0
        for i in layers:
            layer = self.layers[i]
            if any(levels[u] == FLOAT for u in (*layer.reads, *layer.writes)):
                host += layer.host
                continue
            own = self.types.of_layer(layer.units, levels)
            was, now = (self._factor(layer.reads, layer.weights, some) for some in (None, levels))
            if own:
                number = self.types.number(own)
                now = float(self.target.compute.slowness(0, 0, number))
                casts += sum(cycles for u, cycles in layer.casts.items() if levels[u] != own)
                tables += layer.tables[number] / self.target.memory.external_bandwidth
            array += layer.fixed + (layer.array - layer.fixed) * now / was
        moved = sum(self.size(u, self._held(group, u, levels)) * group.crossing[u] for u in crossing)
        return GroupSums(array, host, casts, tables, moved)

    def _held(self, group: GroupCost, unit: int, levels: Sequence[int]) -> int:
        """The level at which a unit crosses: a weight at that of its layer, where that is a float type."""
        if unit < len(self.network.groups) or not self.types.floats:
            return levels[unit]
        found = levels[unit]
        for i in group.layers:
            layer = self.layers[i]
            if unit in layer.weights and all(levels[u] != FLOAT for u in (*layer.reads, *layer.writes)):
                found = self.types.of_layer(layer.units, levels) or found
        return found

    @cached_property
    def _narrow(self) -> tuple[tuple[float, float], ...]:
        """Of every group array cycles and bytes at the recipe's widths."""
        return tuple(
            (
                sum(self.layers[i].array for i in group.layers),
                sum(self.size(u, NARROW) * count for u, count in group.crossing.items()),
            )
            for group in self.groups
        )

    def _cycles(self, at: int, sums: GroupSums) -> float:
        return self.groups[at].cycles(sums, *self._narrow[at])

    def _factor(self, reads: Sequence[int], weights: Sequence[int], levels: Sequence[int] | None) -> float:
        """How much longer the array takes than with 8-bit operands; `levels` None:
        with the recipe's widths."""

        def widest(units: Sequence[int]) -> int:
            return max((self.bits(u, NARROW if levels is None else levels[u]) for u in units), default=0)

        streamed = widest(reads) or 8
        widths = streamed, widest(weights) or streamed
        if widths not in self._slowness:
            self._slowness[widths] = float(self.target.compute.slowness(*widths))
        return self._slowness[widths]

    @cached_property
    def _slowness(self) -> dict[tuple[int, int], float]:
        return {}
