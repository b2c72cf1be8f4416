"""Plans of networks with loops, for estimates: some steps' groups stand for those of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from npuflow.base.errors import TargetError
from npuflow.ir.graph import Graph
from npuflow.ir.unroll import rolled, step_times, written_out
from npuflow.schedule.choice import Costs
from npuflow.search.plan import TilingPlan, plan_network
from npuflow.search.unfit import PlanRequest, explained


@dataclass(frozen=True)
class LoopPlan:
    """A plan, the graph that was planned, and the one with loops that it was made of."""

    plan: TilingPlan
    graph: Graph
    source: Graph

    def groups(self) -> Iterator[tuple[tuple[str, ...], Costs]]:
        """What each group makes, by the names in the source, and its costs; of a loop's rounds all."""
        times = step_times(self.graph)
        for group in self.plan.groups:
            made = (o for n in group.nodes for o in self.graph.nodes[n].outputs)
            costs = group.costs.times(times.get(group.nodes[0], 1.0))
            yield tuple(value_of(self.source, o) for o in made), costs


def value_of(graph: Graph, name: str) -> str:
    """The value of a loop's body that has this name in a step which is written out; others as they are."""
    value = name.rpartition("@")[0]
    return value if value in graph.values and name not in graph.values else name


def planned_loops(graph: Graph, request: Callable[[Graph], PlanRequest]) -> LoopPlan:
    """A plan for a quantised graph, its loops by some steps that stand for all. Where they do not, loops are
    written out."""
    form = rolled(graph)
    wanted = request(form)
    try:
        return LoopPlan(plan_network(*wanted.arguments), form, graph)
    except TargetError as fault:
        if not form.rolls:
            raise explained(wanted, fault, {}) from None
    form = written_out(graph)
    wanted = request(form)
    try:
        return LoopPlan(plan_network(*wanted.arguments), form, graph)
    except TargetError as fault:
        raise explained(wanted, fault, {}) from None
