"""Which products in front of loops are made in them: what gives the fastest plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from npuflow.base.errors import TargetError
from npuflow.ir.graph import Graph
from npuflow.schedule.machine import Machine
from npuflow.schedule.per_step import made_by_step, step_products
from npuflow.search.plan import TilingPlan

TRIES = 12                                # plans, at most: each takes as long as that of the whole network
BEST = 3                                  # plans that go on from loop to loop: what one has is another's room


def with_products_in_loops(
    plan: TilingPlan, graph: Graph, machine: Machine, planned: Callable[[Graph], TilingPlan]
) -> TilingPlan:
    """The plan, or a better one with products in loops: loop by loop, those of most steps first. `graph`: the
    quantised network, whose plan `planned` makes. The bounds stay those of the network as it is."""
    tries, found = 0, [plan]
    for options in step_products(graph, machine) if not graph.lengths else ():
        for before in tuple(found):
            for option in options[: TRIES - tries]:
                tries += 1
                values = (*before.by_step, *option)
                try:
                    other = planned(made_by_step(graph, values))
                except TargetError:
                    continue
                found.append(replace(other, by_step=values, bounds=plan.bounds))
        found = sorted(found, key=lambda one: machine.worth(one.cycles, one.bytes))[:BEST]
    return found[0]
