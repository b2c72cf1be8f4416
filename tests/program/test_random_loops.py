"""Programs of random loops: repeated commands against the reference, without hazards.

Some are written out, since targets are very small: see docs/explanation/loops.md. The seeds here are some
whose steps are repeated: as they are, or with copies of what is made elsewhere or handed on as it came. In
154 cores hand each other parts of what a step makes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from npuflow.base.errors import TargetError
from npuflow.checks.agreement import compare
from npuflow.ir.unroll import rolled
from npuflow.program.codegen.generate import generate
from npuflow.program.container import Program
from npuflow.program.order import order_of
from npuflow.search.plan import plan_network
from npuflow.sim.hazards import hazards_of
from tests.networks import random_loops
from tests.networks.harness import machine
from tests.networks.random_loops import quantised, subject
from tests.tiers import often

STEPS = (10, 11, 12, 13, 14, 17, 20, 24)
SEEDS = (10, 21, 36, 51, 64, 90, 33, 5, 4, 13, 34, 79, 25, 154)


@pytest.fixture(autouse=True)
def long_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_loops, "STEPS", STEPS)


def differences(seed: int) -> Iterator[str] | None:
    """What is wrong with the program of a seed; None where its loops are no rounds."""
    one = subject(seed)
    graph = None if one is None else quantised(one)
    few = None if graph is None else rolled(graph)
    if one is None or graph is None or few is None or not few.rolls:
        return None
    target = one.target
    try:
        plan = plan_network(few, machine(target), target.numerics)
    except TargetError:
        return None
    program = Program.from_bytes(generate(few, plan, target).to_bytes())
    checks = compare(graph, program, target.numerics, [{i: one.feed[i] for i in graph.inputs}])
    wrong = [f"{seed}: {c.value}" for c in checks if c.different or c.executor]
    return iter([*wrong, *(f"{seed}: {h}" for h in hazards_of(program, order_of(program)))])


@pytest.mark.parametrize("seed", often(SEEDS, 8))
def test_programs_of_random_loops(seed: int) -> None:
    found = differences(seed)
    assert found is not None, "its loops are no rounds any more: another seed"
    assert not list(found)


def test_a_constant_that_one_step_stacks_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an output of the network."""
    monkeypatch.setattr(random_loops, "STEPS", (1,))
    assert random_loops.program_differences(555) == ([], "straight")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3216, 3000, 3013, 3073, 3296, 3506, 5118])
def test_two_random_loops_run_as_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 3013 a step hands on a part of what the next one makes; in 3073 no command names a value, but views
    of it; in 3216 a step stacks what entered it, of rank 5; in 3296 a core has no step but the last;
    in 3506 three steps share a place by way of a part; in 5118 a step hands on a view of what entered."""
    monkeypatch.setattr(random_loops, "PAIRS", True)
    assert random_loops.program_differences(seed) == ([], "paired")


def test_the_last_step_reads_a_view_of_what_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Reshape of what is handed to it: it lies where the part of all steps has gone on to."""
    monkeypatch.setattr(random_loops, "PAIRS", True)
    assert random_loops.program_differences(3057) == ([], "rolled")


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(1000, 5000, 100))
def test_many_programs_of_random_loops(first: int) -> None:
    found = [differences(seed) for seed in range(first, first + 100)]
    assert any(one is not None for one in found)
    assert not [text for one in found if one is not None for text in one]
