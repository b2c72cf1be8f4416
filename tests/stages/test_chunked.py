"""Plans in chunks of a free length: which the stage takes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from npuflow.flow.stage import STAGES
from npuflow.program.codegen.generate import generate
from npuflow.program.order import order_of
from npuflow.search.plan import plan_network
from npuflow.sim.clock import timeline_of
from npuflow.stages._targets import PlannedTarget
from npuflow.stages.chunked import MORE
from npuflow.stages.costs import Effort, SubgraphCosts
from npuflow.stages.quantize import Quantized, to_plan
from npuflow.stages.tiling import Planning, Tiled, Tiling, planned_by, shipped_targets
from tests.networks import free_lengths
from tests.networks.harness import machine
from tests.networks.looped import free_length
from tests.tiers import often

TARGET = shipped_targets()["edge-4t"]
PLANNED = PlannedTarget(TARGET.compute, TARGET.memory, TARGET.dma, TARGET.numerics, TARGET.host)


def taken(most: int, tiling: Tiling, states: int = 16) -> tuple[Quantized, Tiled, Tiled]:
    """A network, its plan with whole layers, and what the stage makes of it."""
    make = partial(free_lengths.lstm, states=states, inputs=states)
    quantized = Quantized(free_length(make, most, TARGET)[0])
    tiled = Tiled(plan_network(to_plan(quantized.graph), machine(TARGET), TARGET.numerics))
    planning = Planning(Effort(), tiling, None)
    return quantized, tiled, STAGES["chunked"](tiled, quantized, SubgraphCosts({}), planning, PLANNED)


@pytest.mark.slow
def test_a_plan_in_chunks_is_hardly_slower_at_the_most_steps_and_faster_at_few() -> None:
    quantized, whole, made = taken(192, Tiling(), 64)
    assert made.plan.chunk and not whole.plan.chunk
    name, times = quantized.graph.lengths[0].name, []
    for one in (whole, made):
        program = generate(planned_by(one.plan, quantized), one.plan, TARGET)
        shorter = [program.at({name: steps}) for steps in (192, 24)]
        times.append([timeline_of(p, order_of(p)).cycles for p in shorter])
    assert times[1][0] <= MORE * times[0][0] and times[1][1] < times[0][1]
    assert np.mean(np.divide(times[1], times[0])) < 1


@pytest.mark.slow
def test_a_prime_number_of_steps_has_chunks() -> None:
    _, whole, made = taken(193, Tiling(), 64)
    assert 193 % made.plan.chunk and not whole.plan.chunk


@pytest.mark.parametrize("case", often([((40, Tiling()),), ((96, Tiling(keep=("y:q",))),)], 2))
def test_layers_stay_whole_where_steps_are_few_or_the_plan_is_pinned(
    case: tuple[int, Tiling],
) -> None:
    _, whole, made = taken(*case)
    assert made is whole
