"""Plans of networks with loops, for estimates: one step's groups stand for those of all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from npuflow.base.errors import TargetError
from npuflow.ir.graph import Graph
from npuflow.ir.loops import Loop, loops
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
        """What each group makes, by the names in the source, and its costs. Where some steps of loops stand
        for all, the groups of one step count as often as there are steps."""
        counted = self._counted() if self.graph.rolls else {}
        for group in self.plan.groups:
            times = min(counted.get(n, 1) for n in group.nodes)
            if times:
                made = (value_of(self.source, o) for n in group.nodes for o in self.graph.nodes[n].outputs)
                yield tuple(dict.fromkeys(made)), several(group.costs, times)

    def _counted(self) -> dict[int, int]:
        """By node of a step for how many steps it stands: those of the last but one that was written out for
        all, others for none."""
        owner = {
            o: loop for loop in loops(self.source) for i in loop.nodes for o in self.source.nodes[i].outputs
        }
        placed = list[tuple[int, Loop, int]]()
        for i, node in enumerate(self.graph.nodes):
            out = next((o for o in node.outputs if o), "")
            value, _, step = out.rpartition("@")
            if value in owner and out not in self.source.values:
                placed.append((i, owner[value], int(step.strip("'"))))
        written: dict[str, set[int]] = {}
        for _, loop, number in placed:
            written.setdefault(loop.name, set()).add(number)
        chosen = {name: sorted(numbers)[-2:][0] for name, numbers in written.items()}
        return {i: loop.steps if number == chosen[loop.name] else 0 for i, loop, number in placed}


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
