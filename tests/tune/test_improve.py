"""The rule by which changes are taken: what is taken, on what the next one builds, what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from npuflow.tune.improve import ASKED, CLOSER, NETWORK, Acceptance, Proposal, Trial, improve, in_all


def adding(step: float, rule: Acceptance, now: float) -> Proposal[float]:
    return Proposal("add", now + step, f"by {step:g}", step, rule)


def test_changes_are_taken_that_come_closer_and_the_next_starts_from_them() -> None:
    asked: list[float] = []

    def error(number: float) -> float:
        asked.append(number)
        return abs(number - 5.0)

    steps = (partial(adding, step, CLOSER) for step in (2.0, 4.0, -1.0, 2.0))
    done, trials = improve(0.0, steps, error)
    assert done == 5.0 and [t.kept for t in trials] == [True, True, True, False]
    assert [(t.before, t.after) for t in trials] == [(5.0, 3.0), (3.0, 1.0), (1.0, 0.0), (0.0, 2.0)]
    assert len(asked) == 5, "what stands is judged once"


@pytest.mark.parametrize(("rule", "taken"), [(CLOSER, False), (ASKED, True), (Acceptance(margin=-2.0), True)])
def test_what_a_recipe_asks_for_is_taken_whatever_its_error(rule: Acceptance, taken: bool) -> None:
    done, (trial,) = improve("best", [Proposal("change", "worse", rule=rule)], len)
    assert trial.kept == taken == (done == "worse") and trial.layer == NETWORK


def test_a_margin_must_be_passed_not_reached() -> None:
    rule = Acceptance(margin=0.5)
    assert not rule.takes(2.0, 1.5) and rule.takes(2.0, 1.25)


def test_errors_of_a_layer_decide_without_the_network() -> None:
    steps = [Proposal("bias", "b", "one", errors=(2.0, 1.0)), Proposal("bias", "c", "two", errors=(1.0, 3.0))]
    done, trials = improve("a", steps)
    assert done == "b" and [(t.layer, t.kept) for t in trials] == [("one", True), ("two", False)]
    with pytest.raises(AssertionError, match="without errors"):
        improve("a", [Proposal("bias", "b")])


def test_parts_are_kept_with_the_whole_and_obstacles_are_recorded() -> None:
    refused = Trial("scale", "first", None, None, False, 0.0, "another layer reads it")

    def nothing(now: str) -> Sequence[Trial]:
        return [refused]

    parts = (Trial("scale", "second", None, None, True, 2.0), refused)
    for changed, kept in (("s", True), ("longer", False)):
        _, trials = improve("now", [nothing, Proposal("scale", changed, parts=parts)], len)
        assert trials[0] == refused
        assert [t.kept for t in trials[1:]] == [kept, False, kept]


def test_the_record_of_all_changes_together_is_the_way_from_the_first_to_the_last_that_was_kept() -> None:
    steps = [partial(adding, step, CLOSER) for step in (2.0, -9.0, 1.0, -9.0)]
    _, trials = improve(0.0, steps, lambda number: abs(number - 5.0))
    assert in_all(trials)[-1] == Trial("add", NETWORK, 5.0, 2.0, True) and in_all(()) == ()
    _, none = improve(5.0, steps[:1], lambda number: abs(number - 5.0))
    assert in_all(none)[-1] == Trial("add", NETWORK, 0.0, 0.0, False)
