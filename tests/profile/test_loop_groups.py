"""Groups of loops by clock and schedule: what all rounds take, beside what all rounds take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from npuflow.program.container import Program
from npuflow.program.loop_steps import LoopSteps
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import worst_groups
from tests.frontends.test_nested_loops import loop_in_scan
from tests.networks.looped import program_of, quantised
from tests.program.test_loop_cores import TWO
from tests.program.test_repeats import TARGET
from tests.rules.test_recurrent import layer
from tests.tiers import often

BOTH = 'direction="bidirectional"'


def recurrent(kind: str, paired: bool = False, cores: int = 1) -> Program:
    target = TWO if cores > 1 else TARGET
    graph, _ = quantised(layer(kind, steps=17, attributes=BOTH, directions=2), target)
    return program_of(graph, target, paired, cores)


def nested() -> Program:
    graph, _ = quantised(loop_in_scan(12, 11), TARGET)
    return program_of(graph, TARGET, nested=True, level=1)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "one after the other": lambda: recurrent("GRU"), "a pair": lambda: recurrent("LSTM", paired=True),
    "each on a core": lambda: recurrent("LSTM", cores=2), "loops in loops": nested,
}


@pytest.mark.parametrize("name", often(reversed(PROGRAMS), 3))
def test_what_all_rounds_take_is_compared_with_what_all_rounds_take(name: str) -> None:
    """The clock has each round of a group behind the group before it, as the schedule has; and what a round
    loads for layers behind the loop is those layers', by both."""
    found = profile(PROGRAMS[name]())
    rows, groups = worst_groups(found, 1000), found.layers()
    assert len(rows) > 5 and any(row.name.startswith("cycles of") for row in rows)
    assert not [str(row) for row in rows if not row.within]
    assert sum(row["cycles"] for row in groups) == pytest.approx(found.cycles)
    rounds = {n for own in found.program.meta["loops"] for step in own["nodes"][4:6] for n in step}
    inside = [row for row in groups if rounds.issuperset(row["nodes"])]
    at_once = LoopSteps(found.program).at_once
    assert bool(at_once) == (name == "each on a core")
    assert len(inside) > 1 and all(row["cycles"] > 1 for row in inside if at_once.isdisjoint(row["nodes"]))
