"""Says what loops cost, for estimates: plans in which some steps stand for all, and the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from npuflow.base.errors import TargetError
from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.ir.loops import has_loops, loops, steps_of
from npuflow.ir.unroll import rolled, step_times, values_of_steps, written_out
from npuflow.place.host import HostPricing
from npuflow.schedule.choice import Costs
from npuflow.schedule.frame import Topology
from npuflow.schedule.groups import FusionGroup
from npuflow.schedule.machine import Machine
from npuflow.search.finalists import Finalist, time_by_group
from npuflow.search.memory import SearchMemory
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.unfit import PlanRequest, explained
from npuflow.strategies import FLOAT
from npuflow.tune import tuned
from npuflow.tune.precision.fakequant import FakeQuantNetwork

ResultCosts = tuple[tuple[str, ...], Costs]
"""The results of a group, by their names in the network with its loops, and its costs in all rounds."""


def costs_by_results(groups: Iterable[FusionGroup], graph: Graph, source: Graph) -> Iterator[ResultCosts]:
    """Of the groups of a planned graph, which has some steps of the loops of `source`."""
    times, named = step_times(graph), values_of_steps(source)
    for group in groups:
        made = (o for n in group.nodes for o in graph.nodes[n].outputs)
        costs = group.costs.times(times.get(group.nodes[0], 1.0))
        yield tuple(named.get(o, o) for o in made), costs


@dataclass(frozen=True)
class LoopPlan:
    """A plan, what was asked of the planner, and the graph with loops that it was made of."""

    plan: TilingPlan
    wanted: PlanRequest
    source: Graph

    def groups(self) -> Iterator[ResultCosts]:
        return costs_by_results(self._timed(), self.wanted.graph, self.source)

    @property
    def timed(self) -> bool:
        """Whether costs of groups are those of the schedule."""
        return has_loops(self.source) and self.plan.replayed > 0

    def _timed(self) -> Sequence[FusionGroup]:
        """The groups; in a network with loops with their costs in the schedule. The estimates of the search
        load all weights in every step, and transfers would hide every other cost. `const` is 0 where weights
        are resident."""
        plan, wanted = self.plan, self.wanted
        if not self.timed:
            return plan.groups
        topology = Topology(wanted.graph, wanted.machine, wanted.numerics)
        finalist = Finalist(plan.groups, plan.kept, early=plan.early, ahead=plan.ahead)
        time = time_by_group(finalist, topology, wanted.machine, plan.allocation)
        return [
            replace(group, costs=replace(
                group.costs, cycles=span, tensor=term.array, vector=term.vector, bus=term.bus, load=term.bus,
                store=term.bus, bytes=term.bytes,
                const=group.costs.const if term.bytes >= group.costs.const else 0.0,
            ))
            for group, span, term in zip(plan.groups, time.spans, time.terms, strict=True)
        ]


@dataclass(frozen=True)
class LoopOnHost:
    """A loop as the host would run it, whole: the units that its nodes touch, and its cycles beside those of
    its nodes alone, by node of the network and in all."""

    units: frozenset[int]
    layers: tuple[tuple[tuple[int, ...], float], ...]
    cycles: float

    def more(self, levels: Sequence[int]) -> float:
        """Cycles that no node accounts for where one has a unit in float: a loop runs in one place."""
        if all(levels[u] != FLOAT for u in self.units):
            return 0.0
        own = sum(cycles for units, cycles in self.layers if any(levels[u] == FLOAT for u in units))
        return max(self.cycles - own, 0.0)


@dataclass(frozen=True)
class LoopWeights:
    """The weights of a loop: elements by unit, the loop's steps, and bytes of local memory. Weights beyond
    these are loaded again in every step."""

    elements: Mapping[int, int]
    steps: int
    room: int

    def reloaded(self, size: Callable[[int], float]) -> float:
        """Bytes that are loaded again. `size`: bytes of an element of a unit."""
        held = sum(size(unit) * count for unit, count in self.elements.items())
        return (self.steps - 1) * max(held - self.room, 0.0)


def weights_of_loops(network: FakeQuantNetwork, room: int) -> tuple[LoopWeights, ...]:
    """By loop of a network with weights."""
    graph, first, found = network.graph, len(network.groups), []
    for loop in loops(graph):
        own = set(loop.nodes)
        elements = {
            first + j: graph.type(w.value).size for j, w in enumerate(network.weights) if w.node in own
        }
        if elements:
            found.append(LoopWeights(elements, loop.steps, room))
    return tuple(found)


def loops_on_host(
    network: FakeQuantNetwork, hosts: Sequence[float], target: Target
) -> tuple[LoopOnHost, ...]:
    """The loops of a network. `hosts`: cycles of each of its nodes on the host, by the order of `nodes`."""
    graph, prices, found = network.graph, HostPricing(network.graph), []
    first, at = len(network.groups), {n.outputs: i for i, n in enumerate(network.nodes)}
    for loop in loops(graph):
        nodes = [graph.nodes[i] for i in loop.nodes]
        own = [at[n.outputs] for n in nodes if n.outputs in at]
        layers = tuple((tuple(u for u in network.touched[i] if u < first), hosts[i]) for i in own)
        units = frozenset(u for some, _ in layers for u in some)
        found.append(LoopOnHost(units, layers, prices.work(nodes).cycles(target)))
    return tuple(found)


def refused_in_loops(graph: Graph, refused: Mapping[str, str]) -> dict[str, str]:
    """Of nodes that the target refuses, by what they make, those of loops: with each a whole loop goes to
    the host."""
    inner = steps_of(graph)
    return {value: why for value, why in refused.items() if value in inner}


def planned_loops(
    graph: Graph, request: Callable[[Graph], PlanRequest], memory: SearchMemory | None = None
) -> LoopPlan:
    """A plan for a quantised graph, its loops by some steps that stand for all. Where they do not, loops are
    written out. `memory`: what searches before this one have found."""
    wanted = request(rolled(graph))
    try:
        return LoopPlan(plan_network(*wanted.arguments, memory), wanted, graph)
    except TargetError as fault:
        if not wanted.graph.rolls:
            raise explained(wanted, fault, {}) from None
    wanted = request(written_out(graph))
    try:
        return LoopPlan(plan_network(*wanted.arguments, memory), wanted, graph)
    except TargetError as fault:
        raise explained(wanted, fault, {}) from None


def mixture_plan(graph: Graph, target: Target, memory: SearchMemory) -> LoopPlan:
    """The plan that gives the cycles of a mixture. `memory`: see `plan_network`."""
    machine = Machine(target.compute, target.memory, target.dma)
    return planned_loops(
        graph, lambda form: PlanRequest(form, machine, target.numerics, tuned.MIXTURE_LEVEL), memory
    )
