"""Whatever the tiling, the simulated program computes the operator's integers, without a hazard."""

import random

import pytest

from npuflow.ir.op import OPS
from npuflow.quantise.config import Quantize
from npuflow.testing.op import quantised, samples
from tests.networks import random_tilings
from tests.networks.harness import SMALL, check_exact, local, machine
from tests.tiers import often, tiered

RUNS = [(name, n) for name in OPS.names() for n in range(len(samples(name)))]
TARGET = local(SMALL, 1 << 16)


@pytest.mark.parametrize(("name", "number"), often(RUNS, 3), ids=[f"{a}-{n}" for a, n in RUNS])
def test_planned_and_random_tilings(name: str, number: int) -> None:
    graph, case = quantised(samples(name)[number], SMALL.numerics, Quantize())
    if not any(n.is_integer for n in graph.nodes):
        pytest.skip("runs on the host")
    check_exact(graph, case.inputs, TARGET)
    rng = random.Random(number)
    for _ in range(2):
        plan = random_tilings.plan(graph, machine(TARGET), SMALL.numerics, rng)
        check_exact(graph, case.inputs, TARGET, plan)


@pytest.mark.parametrize("part", tiered(range(5), 1))
@pytest.mark.parametrize("name", OPS.names())
def test_many_random_tilings(name: str, part: int) -> None:
    rng = random.Random(f"{name} {part}")
    for sample in samples(name):
        graph, case = quantised(sample, SMALL.numerics, Quantize())
        if not any(n.is_integer for n in graph.nodes):
            continue
        for _ in range(5):
            check_exact(
                graph, case.inputs, TARGET, random_tilings.plan(graph, machine(TARGET), SMALL.numerics, rng)
            )
