"""Data movers larger than a staging slot: cut so that rows on both sides stay long."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.ir.op import OPS, OpSample
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize
from npuflow.report.profile import profile
from npuflow.search.plan import plan_network
from npuflow.testing.op import check_tiles, quantised
from tests.networks.harness import machine
from tests.schedule.test_assembly import WIDE


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(
    ("shape", "turned"),
    [((1, 60, 70, 8), (0, 3, 1, 2)), ((1, 8, 60, 70), (0, 2, 3, 1)), ((1, 70, 60, 3), (0, 3, 1, 2))],
)
def test_a_transpose_of_few_channels_moves_little_more_than_its_bytes(bits, shape, turned) -> None:
    """Channels last to channels first and back: cut by channels it would read rows of two elements."""
    sample = OpSample(OPS["transpose"](turned), (np.random.default_rng(1).normal(size=shape).astype("f4"),))
    scheme = Quantize(activations=Activations(bits=bits))
    check_tiles(sample, WIDE, scheme)
    graph, _ = quantised(sample, WIDE.numerics, scheme)
    found = profile(generate(graph, plan_network(graph, machine(WIDE), WIDE.numerics), WIDE))
    size = int(np.prod(shape)) * bits // 8
    assert found.cycles < 2.6 * size / WIDE.memory.external_bandwidth + 1500
