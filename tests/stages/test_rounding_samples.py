"""Samples that weights are rounded by: those that fit, and a few of those that choose."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

from npuflow.flow.stage import Items
from npuflow.input.data.config import InputSample
from npuflow.stages._calibration import TuningSamples
from npuflow.stages._rounding_samples import RoundingSamples
from npuflow.stages.choose import ChoosingSample
from npuflow.stages.fit import FitSample
from npuflow.stages.samples import Sample
from npuflow.tune.rounding.config import Counting

S = TypeVar("S", bound=Sample)


def items(kind: type[S], part: str, count: int, broken: tuple[int, ...] = ()) -> Items[S]:
    whole = {
        f"{part}{i:03}": kind(InputSample({"x": np.zeros(1)}, (), False, None, "torn" if i in broken else ""))
        for i in range(count)
    }
    return Items({name: (lambda one=one: one) for name, one in whole.items()})


def samples(fit: int, choose: int, broken: tuple[int, ...] = ()) -> TuningSamples:
    return TuningSamples(items(FitSample, "f", fit, broken), items(ChoosingSample, "c", choose))


@pytest.mark.parametrize("fit", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("choose", [0, 1, 9, 64])
def test_one_part_rounds_and_another_judges(fit: int, choose: int) -> None:
    mine, held = RoundingSamples(samples(fit, choose), Counting()).names
    assert {name[0] for name in mine} == {"f"} and all(name[0] == "c" for name in held)
    assert len(held) == min(16, choose) and len(mine) == min(fit, 128 - len(held))


def test_as_many_as_the_recipe_has_it_and_none_that_cannot_be_read() -> None:
    fit, held = RoundingSamples(samples(200, 60, (3, 50)), Counting(samples=20)).names
    assert len(fit) == 10 and len(held) == 10 and not {"f003", "f050"} & {*fit}
