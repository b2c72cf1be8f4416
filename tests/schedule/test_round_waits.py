"""Jobs of both rounds of a loop wait alike, as commands of a block do: plans take what the clock says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import npuflow
from npuflow.ir.unroll import rolled
from npuflow.program.codegen.generate import generate
from npuflow.report.profile import profile
from npuflow.schedule import round_waits
from npuflow.schedule.round_waits import wait_alike
from npuflow.search.plan import plan_network
from npuflow.testing.target import load
from tests.networks.harness import machine
from tests.networks.looped import quantised
from tests.program.test_nested_forms import both_directions

LOADS, STORES = 0, 1
TARGETS = Path(npuflow.__file__).parent / "targets"


@dataclass(frozen=True)
class OneLoop:
    """The groups of a loop's rounds, and of its last step."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]


@pytest.fixture
def one_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_waits, "by_depth", lambda loops: [loops])


@pytest.mark.usefixtures("one_level")
def test_a_twin_waits_for_as_many_jobs_behind_the_beginning_of_its_round() -> None:
    """A load and a store in front of the rounds, in each of them, and behind them."""
    queues, groups = [LOADS, STORES] * 4, [0, 0, 1, 1, 2, 2, 3, 3]
    loops = [OneLoop((1,), (2,), ((0,), (1,), (2,), (3,)))]
    after: list[tuple[int, ...]] = [(), (0,), (), (2,), (3,), (), (), ()]
    wait_alike(after, queues, groups, loops, 0, 2)  # type: ignore[arg-type]
    # the second load waits for the store of the round before: so does the first; each store for its load
    assert after == [(), (0,), (1,), (2,), (3,), (4,), (), ()]


@pytest.mark.usefixtures("one_level")
def test_what_earlier_runs_have_done_is_not_waited_for() -> None:
    queues, groups = [*[LOADS, STORES] * 3, LOADS], [0, 0, 1, 1, 2, 2, 3]
    loops = [OneLoop((1,), (2,), ((1,), (2,), (3,)))]
    after: list[tuple[int, ...]] = [(), (), (1,), (2,), (3,), (), ()]
    wait_alike(after, queues, groups, loops, 2, 2)  # type: ignore[arg-type]
    assert after == [(), (), (), (2,), (3,), (4,), ()]


def planned(kind: str, steps: int, inner: int, paired: bool, level: int) -> tuple[float, float]:
    """The cycles of a layer of both directions in a Scan, by its plan and by the clock, where the bus is
    wide."""
    target = load(TARGETS / "edge-4t.toml")
    graph, _ = quantised(both_directions(kind, steps, inner, 16), target)
    few = rolled(graph, paired, nested=True)
    program = generate(few, plan_network(few, machine(target), target.numerics, level), target)
    return program.meta["plan"]["cycles"], profile(program).cycles


@pytest.mark.slow
def test_the_plans_cycles_are_the_clocks_in_loops_in_loops() -> None:
    """36,221 by a plan whose rounds wait for their own jobs alone, 36,288 by the clock."""
    plan, clock = planned("RNN", 10, 10, paired=True, level=1)
    assert plan == pytest.approx(clock, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("paired", [False, True])
def test_larger_layers_in_loops_take_what_their_plans_say(paired: bool) -> None:
    """As a pair 35,578 and 36,370 cycles, 2.2 % apart, where each round waited for its own jobs alone."""
    plan, clock = planned("LSTM", 12, 10, paired, level=2)
    assert plan == pytest.approx(clock, rel=1e-9)
