"""Random edits: a cached build equals a clean one, and the plan foresaw what ran."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from world import EDITS, NO_TASKS, World

from npuflow.base.code_module import SourceModule
from npuflow.base.code_scope import ImportTarget, Reference
from npuflow.base.code_steps import StepTable
from npuflow.base.code_walk import ClosureWalk
from npuflow.flow import run_step
from npuflow.flow.keys import Bound
from tests.tiers import often, tiered


class Edits(RuleBasedStateMachine):
    """A user at work: an edit or two, then a build."""

    edits = 0

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="npuflow-edits-"))
        self.counter = itertools.count()

    @initialize()
    def begin(self) -> None:
        self.world = World(self.root / "world")
        self.quiet = False
        self._check()

    @rule(kinds=st.lists(st.sampled_from(sorted(EDITS)), min_size=1, max_size=2), seed=st.integers(0, 2**32))
    def edit(self, kinds: list[str], seed: int) -> None:
        rnd = random.Random(seed)
        for kind in kinds:
            EDITS[kind](self.world.state, rnd)
            type(self).edits += 1
        self.world.write()
        ran = self._check()
        assert ran == 0 or not NO_TASKS.issuperset(kinds), f"{kinds} ran {ran} steps"

    def _check(self) -> int:
        scratch = self.root / f"clean{next(self.counter)}"
        try:
            return self.world.check(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    @invariant()
    def nothing(self) -> None:
        """The checks are in the rules: they need the edit that led to them."""

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()
        shutil.rmtree(self.root, ignore_errors=True)


def campaign(examples: int, steps: int, *, derandomize: bool = True) -> int:
    """Run the machine; the number of edits made."""
    machine = type("Edits", (Edits,), {"edits": 0})
    phases = (Phase.generate,)  # a failing sequence is short as it is, and a build takes its time
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            phases=phases,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )
    return int(machine.edits)


@pytest.mark.slow
def test_random_edits() -> None:
    assert campaign(4, 10) >= 34


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("examples", tiered((12, 50), 1))
def test_many_random_edits(examples: int) -> None:
    made = campaign(examples, 30, derandomize=False)
    print(f"{made} edits")
    assert made >= 20 * examples


@pytest.mark.parametrize("kind", often(sorted(EDITS), 4))
def test_each_kind_of_edit(tmp_path: Path, kind: str) -> None:
    """Every kind of edit is really made, seen by the build where it should be, and by nothing else."""
    world = World(tmp_path / "world")
    try:
        assert world.check(tmp_path / "clean") == 3 + 3 + 4
        rnd, total = random.Random(1), 0
        for round_ in range(4):
            EDITS[kind](world.state, rnd)
            world.write()
            total += world.check(tmp_path / f"clean{round_}")
        assert (total == 0) == (kind in NO_TASKS)
    finally:
        world.close()


@pytest.mark.parametrize("name", ["alpha", "beta", "gamma"])
def test_a_method_that_no_step_calls_is_in_no_key(tmp_path: Path, name: str) -> None:
    """Of plug-ins that a table names, that artifacts name, and that nobody names."""
    world = World(tmp_path / "world")
    try:
        world.build()
        world.state.entries[name]["other"] = 7
        world.write()
        assert world.build()[1] == {}
    finally:
        world.close()


BREAKS = {
    "code": ["stage code"],
    "config": ["recipe"],
    "inputs": ["helper behind a facade"],
    "plugins": ["plug-in facet", "plug-in"],
    "item input": ["sample"],
    "item files": ["sample"],
    "item detail": ["recipe"],
    "late import": ["function-level import"],
    "package data": ["package data"],
}


def _break(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Leave something out of every key."""
    shared, item, imported = Bound.shared.func, Bound.item, ClosureWalk._imported
    kind, _, part = broken.partition(" ")
    if kind == "item":
        names = {"input": "input", "files": "files", "detail": "detail"}

        def bare(self: Bound, name: str) -> dict[str, Any]:
            return {k: v for k, v in item(self, name).items() if k != names[part]}

        monkeypatch.setattr(Bound, "item", bare)
    elif broken == "late import":

        late, reference = ("edited.late", "edited.deep"), StepTable._reference

        def blind(self: ClosureWalk, target: ImportTarget, *rest: Any) -> None:
            if target.module not in late:
                imported(self, target, *rest)

        def stepless(self: StepTable, module: SourceModule, of: Reference) -> Any:
            left_out = isinstance(of.root, ImportTarget) and of.root.module in late
            return () if left_out else reference(self, module, of)

        monkeypatch.setattr(ClosureWalk, "_imported", blind)
        monkeypatch.setattr(StepTable, "_reference", stepless)
    elif broken == "package data":
        monkeypatch.setattr(ClosureWalk, "_package_file", lambda self, origin: None)
    else:
        less = property(lambda self: {k: v for k, v in shared(self).items() if k != broken})
        monkeypatch.setattr(Bound, "shared", less)
    # A run is held to its key besides, which would refuse the stage before any product could differ.
    monkeypatch.setattr(Bound, "reach", frozenset())
    monkeypatch.setattr(run_step, "touching", lambda: nullcontext(set()))


@pytest.mark.parametrize("broken", often(sorted(BREAKS), 3))
def test_a_broken_key_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The checks must fail when a key leaves something out: else they prove nothing."""
    _break(monkeypatch, broken)
    world, rnd = World(tmp_path / "world"), random.Random(2)
    try:
        with pytest.raises(AssertionError, match="differs from a clean one"):
            for round_ in range(40):
                world.check(tmp_path / f"clean{round_}")
                EDITS[rnd.choice(BREAKS[broken])](world.state, rnd)
                world.write()
    finally:
        world.close()


@pytest.mark.slow
def test_the_random_edits_find_a_broken_key(monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, "plugins")
    with pytest.raises(AssertionError, match="differs from a clean one"):
        campaign(20, 20)
