"""Every operator x element type: the cycles of its iteration space are those of the
clock over its program's words."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Literal

import pytest

from npuflow.base.errors import ModelError, TargetError
from npuflow.hw.target import Compute, Dma, Memory, Numerics, Target
from npuflow.ir.op import OPS, OpSample
from npuflow.program.codegen.generate import generate
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.report.profile import Profile, profile
from npuflow.search.plan import plan_network
from npuflow.testing.op import quantised, samples
from tests.networks.harness import machine
from tests.tiers import often

NAMES = [name for name in OPS.names() if name != "host" and samples(name)]
# the host's, and views of bytes as they lie
IDLE = {"quantizelinear", "dequantizelinear", "reshape", "split"}
BAR = 0.05
# one lane and four by four places: an operation too many or too few an element is a large part of all cycles
NARROW = Target(
    compute=Compute(
        array_rows=4, array_cols=4, depthwise_macs=3, fill_cycles=4, command_cycles=2, vector_lanes=1
    ),
    numerics=Numerics(acc_bits=48, weight_bits=(4, 8, 16), weight_zero_point=True),
    memory=Memory(local_bytes=1 << 16, local_align=16, burst=1, external_bandwidth=64.0),
    dma=Dma(setup_cycles=2),
)
SCHEMES = {
    "8 bits": Quantize(),
    "16 bits": Quantize(activations=Activations(bits=16)),
    "16 bit weights": Quantize(weights=Weights(bits=16), activations=Activations(bits=16)),
    "4 bit weights": Quantize(weights=Weights(bits=4)),
}


def measured(sample: OpSample, scheme: Quantize, target: Target) -> Profile | None:
    """The clock over a sample's program; None where the operator has no integers of
    these types, or no commands."""
    try:
        graph, _ = quantised(sample, target.numerics, scheme)
    # a function too steep for a table of 16 bits, and the like
    except (ModelError, TargetError):
        return None
    found = profile(generate(graph, plan_network(graph, machine(target), target.numerics), target))
    return found if found.cycles else None


def differences(found: Profile, target: Target) -> list[str]:
    """Figures of the schedule that are farther from the clock than the bar. A command of several may wait for
    an operand less than the whole tile: a transfer's set-up each way is no difference."""
    transfer = target.dma.setup_cycles + target.compute.command_cycles + 1
    pairs = [("cycles", found.cycles, found.program.meta["plan"]["cycles"], transfer)]
    for row in found.layers():
        pairs += [
            (term, clock, row["schedule_terms"].get(term, 0.0), 0) for term, clock in row["terms"].items()
        ]
    return [
        f"{name}: {clock:g} by the clock, {planned:g} by the schedule"
        for name, clock, planned, slack in pairs
        if abs(clock - planned) > max(BAR * max(clock, planned), slack)
    ]


def schemes(name: str) -> list[str]:
    """The element types that an operator can have; only some have weights."""
    weighted = any(s.op.role(1) == "weight" for s in samples(name) if len(s.inputs) > 1)
    return list(SCHEMES) if weighted else ["8 bits", "16 bits"]


@pytest.mark.parametrize("name", often(NAMES, 4))
def test_schedule_and_clock_charge_an_operator_the_same(name: str) -> None:
    wrong, seen = [], 0
    for scheme in schemes(name):
        for k, sample in enumerate(samples(name)):
            found = measured(sample, SCHEMES[scheme], NARROW)
            if found is not None:
                seen += 1
                wrong += [f"{scheme}, sample {k}: {text}" for text in differences(found, NARROW)]
    assert not wrong, "\n".join(wrong)
    assert bool(seen) == (name not in IDLE), f"{name}: {seen} programs with commands"


@pytest.mark.parametrize(
    ("name", "dataflow"),
    often(
        product(["gemm", "matmul", "conv", "convtranspose"], ["weight_stationary", "output_stationary"]), 5
    ),
)
def test_arrays_of_both_kinds_and_of_several_positions(
    name: str, dataflow: Literal["weight_stationary", "output_stationary"]
) -> None:
    pixels = 3 if dataflow == "weight_stationary" else 1
    target = replace(
        NARROW, compute=replace(NARROW.compute, dataflow=dataflow, array_pixels=pixels, pass_cycles=3)
    )
    wrong = []
    for scheme in schemes(name):
        for k, sample in enumerate(samples(name)):
            found = measured(sample, SCHEMES[scheme], target)
            assert found is not None
            wrong += [f"{scheme}, sample {k}: {text}" for text in differences(found, target)]
    assert not wrong, "\n".join(wrong)
