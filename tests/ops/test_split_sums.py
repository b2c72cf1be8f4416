"""Sums that no tile holds are split along their terms, bit for bit; what cannot be
split is refused with numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuflow.base.errors import TargetError
from npuflow.hw.target import Compute, Memory, Numerics, Target
from npuflow.ir.op import OPS, OpSample
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.schedule.machine import Machine
from npuflow.search.plan import plan_network
from npuflow.testing.op import check_integer, check_program, quantised
from tests.tiers import often

SMALL = Target(
    compute=Compute(array_rows=4, array_cols=4), numerics=Numerics(weight_zero_point=True),
    memory=Memory(local_bytes=2048, local_align=16, burst=16, external_bytes=1 << 24),
)
SCHEMES = {
    "symmetric": Quantize(),
    "zero points": Quantize(weights=Weights(symmetric=False, signed=False, per="tensor")),
    "zero points per channel": Quantize(weights=Weights(symmetric=False)),
    "codes of 16 bits": Quantize(activations=Activations(bits=12)),
}


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(0.2, 1, shape).astype(np.float32)


ONE = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
LONG = {
    "gemm": OpSample(OPS["gemm"](transB=1), (drawn(1, 3000), drawn(3, 3000), drawn(3)), (1, 2)),
    "matmul": OpSample(OPS["matmul"](), (drawn(2, 3000), drawn(3000, 2)), (1,)),
    "computed": OpSample(OPS["matmul"](), (drawn(2, 3000), drawn(3000, 2))),
    "conv": OpSample(OPS["conv"](**ONE), (drawn(1, 400, 4, 4), drawn(2, 400, 3, 3), drawn(2)), (1, 2)),
    "reducemean": OpSample(OPS["reducemean"](axes=(1,)), (drawn(2, 6000),)),
}


@pytest.mark.parametrize(
    ("name", "scheme"),
    often([(n, s) for n in LONG for s in SCHEMES if n != "reducemean" or s == "symmetric"], 3),
)
def test_sums_longer_than_local_memory(name: str, scheme: str) -> None:
    """The terms of one output alone need more than local memory has."""
    check_integer(LONG[name], SMALL.numerics, SCHEMES[scheme])
    graph, one = quantised(LONG[name], SMALL.numerics, SCHEMES[scheme])
    plan = plan_network(graph, Machine(SMALL.compute, SMALL.memory, SMALL.dma), SMALL.numerics)
    program = generate(graph, plan, SMALL)
    onto = [
        c.fields["accumulate"]
        for core in program.decoded
        for c in core
        if c.opcode in ("CONV", "MATMUL", "REDUCE")
    ]
    assert sum(onto) >= 1 and 0 in onto
    check_program(graph, one.inputs, SMALL, name)


WHOLE = {
    "groups": OpSample(OPS["conv"](**ONE, group=2), (drawn(1, 800, 4, 4), drawn(4, 400, 3, 3)), (1,)),
    "a window": OpSample(
        OPS["conv"](kernel_shape=(40, 40)), (drawn(1, 3, 44, 44), drawn(2, 3, 40, 40)), (1,)
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_stays_whole_is_refused_with_numbers(name: str) -> None:
    """The channels of a group, and a window, are never cut."""
    graph, _ = quantised(WHOLE[name], SMALL.numerics, Quantize())
    numbers = r"a tile needs [\d,]+ bytes of local memory, the target has 2048: [\d,]+ too few"
    with pytest.raises(TargetError, match=numbers) as fault:
        plan_network(graph, Machine(SMALL.compute, SMALL.memory, SMALL.dma), SMALL.numerics)
    assert "weight" in str(fault.value.because)


def test_sums_beyond_the_accumulator_are_refused_with_numbers_and_suggestions() -> None:
    """A split would not help: parts of the sum meet in the same accumulator."""
    narrow = replace(SMALL.numerics, acc_bits=20, weight_bits=(8, 16))
    with pytest.raises(
        TargetError, match=r"sums of .* reach \[-?\d+, \d+\]: \d+ bits, the accumulator has 20"
    ) as fault:
        quantised(LONG["gemm"], narrow, Quantize())
    assert "wider accumulator" in str(fault.value.hint)
