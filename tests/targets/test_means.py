"""Means on targets whose scales are powers of two: a division becomes m / 2^n."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow import targets as shipped
from npuflow.hw.numerics import multiplier_shift
from npuflow.hw.target import Target
from npuflow.ir.op import OPS, No, OpSample, Yes
from npuflow.testing.op import case, check_integer, check_tiles
from npuflow.testing.target import load, scheme

FOLDER = Path(str(shipped.__file__)).parent
POWERS = ("edge-pow2", "dpuczdx8g-b4096", "dpucvdx8g")


def named(name: str) -> Target:
    return load(FOLDER / f"{name}.toml")


def mean(size: int) -> OpSample:
    rng = np.random.default_rng(size)
    return OpSample(OPS["globalaveragepool"](), (rng.normal(0.3, 1, (1, 5, size, size)).astype(np.float32),))


@pytest.mark.parametrize("name", POWERS)
def test_a_mean_of_49_runs_on_the_npu(name: str) -> None:
    """On the machine as it is: within a code of the float mean, simulated as the reference has it."""
    target, sample = named(name), mean(7)
    graph = case(sample).graph
    site = graph.site(graph.nodes[0])
    assert isinstance(sample.op.accepts(site, target), Yes)
    assert check_integer(sample, target.numerics, scheme(target)) <= 1
    check_tiles(sample, target, scheme(target))
    alone = replace(target, numerics=replace(target.numerics, mean_bits=0))
    refused = sample.op.accepts(site, alone)
    assert isinstance(refused, No) and "a mean of 49 elements" in refused.reason


def test_the_error_of_means_is_the_one_stated() -> None:
    numerics = named("edge-pow2").numerics.of_means
    wrong = {}
    for count in range(1, 2000):
        m, n = multiplier_shift([1 / count], numerics)
        wrong[count] = abs(m[0] / 2**n * count - 1)
    assert max(wrong.values()) <= 1 / 256 and wrong[49] == pytest.approx(0.0011, abs=1e-4)
    assert all(wrong[1 << k] == 0 for k in range(10))
