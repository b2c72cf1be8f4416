"""Samples that weights are rounded by: none of them judges the build later."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.flow.stage import Items
from npuflow.input.data.config import InputSample
from npuflow.stages._rounding_samples import RoundingSamples
from npuflow.stages.samples import Sample
from npuflow.tune.correct.config import Correct
from npuflow.tune.correct.error import split
from npuflow.tune.precision.config import Probing
from npuflow.tune.rounding.config import Counting


def samples(count: int, broken: tuple[int, ...] = ()) -> Items[Sample]:
    whole = {
        f"{i:03}": Sample(InputSample({"x": np.zeros(1)}, (), False, None, "torn" if i in broken else ""))
        for i in range(count)
    }
    return Items({name: (lambda one=one: one) for name, one in whole.items()})


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 40, 64, 96, 128, 300])
def test_what_judges_later_is_never_rounded_by(count: int) -> None:
    names = [f"{i:03}" for i in range(count)]
    fit, held = RoundingSamples(samples(count), Counting(), Correct(), Probing()).names
    for table in (Correct(), Probing()):
        judges = split(names[: table.samples], table.held_out)[1]
        assert set(fit).isdisjoint(judges)
    assert set(fit).isdisjoint(held) and fit and len(fit) + len(held) <= 128
    assert len(held) == min(16, count // 2) and len(set(held)) == len(held)


def test_as_many_as_the_recipe_has_it_and_none_that_cannot_be_read() -> None:
    fit, held = RoundingSamples(
        samples(200, (3, 50)), Counting(samples=20), Correct(), Probing()
    ).names
    assert len(fit) == 10 and len(held) == 10 and not {"003", "050"} & {*fit, *held}
