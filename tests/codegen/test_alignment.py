"""Wide sums lie on their own multiples in local memory, however finely the target aligns."""

from dataclasses import replace

import numpy as np
import pytest

from npuflow.hw.target import Numerics
from npuflow.ir.op import OPS, OpSample
from npuflow.quantise.config import Quantize
from npuflow.testing.op import check_program, quantised
from tests.networks.harness import SMALL


@pytest.mark.parametrize("align", [1, 4, 12, 16])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_sums_of_64_bits_are_aligned(align: int, rows: int) -> None:
    rng = np.random.default_rng(rows)
    shapes = ((rows, 7), (7, 3))
    sample = OpSample(OPS["matmul"](), tuple(rng.normal(size=s).astype(np.float32) for s in shapes), (1,))
    memory = replace(SMALL.memory, local_align=align)
    target = replace(SMALL, memory=memory, numerics=Numerics(acc_bits=48))
    graph, case = quantised(sample, target.numerics, Quantize())
    check_program(graph, case.inputs, target, f"alignment {align}")
