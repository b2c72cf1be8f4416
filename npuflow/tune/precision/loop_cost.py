"""Plans of networks with loops, for estimates: one step's groups stand for those of all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from npuflow.base.errors import TargetError
from npuflow.ir.graph import Graph
from npuflow.ir.loops import steps_of
from npuflow.ir.unroll import rolled, written_out
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
        """What each group makes, by the names in the source, and its costs; of a loop the groups of one step,
        as often as there are steps."""
        counted = self._counted()
        for group in self.plan.groups:
            times = min(counted.get(n, 1) for n in group.nodes)
            if times:
                made = (o for n in group.nodes for o in self.graph.nodes[n].outputs)
                yield tuple(value_of(self.source, o) for o in made), several(group.costs, times)

    def _counted(self) -> dict[int, int]:
        """By node of a step for how many steps it stands: the last but one that was written out for all."""
        steps, found = steps_of(self.source), dict[int, int]()
        made: dict[str, dict[int, list[int]]] = {}
        for i, node in enumerate(self.graph.nodes):
            out = next((o for o in node.outputs if o), "")
            value, _, step = out.rpartition("@")
            if value in steps and out not in self.source.values:
                made.setdefault(value, {}).setdefault(int(step.strip("'")), []).append(i)
        for value, by_step in made.items():
            order = sorted(by_step)
            chosen = order[-2 if len(order) > 1 else -1]
            found.update((i, steps[value] if step == chosen else 0) for step in order for i in by_step[step])
        return found


def several(costs: Costs, times: int) -> Costs:
    """Of a group that runs so often."""
    if times == 1:
        return costs
    named = ("cycles", "load", "store", "tensor", "vector", "bus", "bytes", "bound_cycles", "bound_bytes")
    return replace(costs, **{name: getattr(costs, name) * times for name in named})


def value_of(graph: Graph, name: str) -> str:
    """The value of a loop's body that has this name in a step which is written out; others as they are."""
    value = name.rpartition("@")[0]
    return value if value in graph.values and name not in graph.values else name


def planned_loops(graph: Graph, request: Callable[[Graph], PlanRequest]) -> LoopPlan:
    """A plan for a quantised graph, its loops by some steps that stand for all. Where they do not, loops are
    written out."""
    numerics = request(graph).numerics
    form = rolled(graph, numerics)
    wanted = request(form)
    try:
        return LoopPlan(plan_network(*wanted.arguments), form, graph)
    except TargetError as fault:
        if not form.rolls:
            raise explained(wanted, fault, {}) from None
    form = written_out(graph, numerics)
    wanted = request(form)
    try:
        return LoopPlan(plan_network(*wanted.arguments), form, graph)
    except TargetError as fault:
        raise explained(wanted, fault, {}) from None
