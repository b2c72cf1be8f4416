"""Cycles of the MAC array by the widths of its operands: the schedule and the clock agree."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import pytest

from npuflow.hw.target import ArrayRate, Compute, Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS
from npuflow.quantise.config import Activations, Quantize, Weights
from npuflow.report.profile import profile
from npuflow.report.profile.measure import Profile
from npuflow.report.profile.schedule import compare
from npuflow.testing.quantised import quantize_graph
from tests.networks.harness import SMALL, build
from tests.networks.small import Builder
from tests.tiers import often

RATES = (ArrayRate(), ArrayRate(16, 8, 0.5), ArrayRate(8, 4, 2.0), ArrayRate(4, 4, 3.0))


def test_the_fastest_rate_that_covers_both_widths_counts() -> None:
    compute = Compute(array_rates=RATES)
    found = {
        (a, w): compute.slowness(a, w) for a, w in ((8, 8), (4, 8), (8, 4), (4, 4), (16, 8), (16, 4), (8, 16))
    }
    halved, third = Fraction(1, 2), Fraction(1, 3)
    assert found == {
        (8, 8): 1, (4, 8): 1, (8, 4): halved, (4, 4): third, (16, 8): 2, (16, 4): 2, (8, 16): 4
    }
    assert compute.paced(7, Fraction(1, 2)) == 4 and compute.paced(7, Fraction(4)) == 28


def test_rates_that_leave_a_width_out_are_refused() -> None:
    faults = list(Compute(array_rates=(ArrayRate(16, 8, 0.5),)).check())
    assert [f.field for f in faults] == ["array_rates"] and "16 by 16" in faults[0].message
    assert not list(Compute().check())


def profiled(target: Target, quantize: Quantize) -> Profile:
    b = Builder()
    x = b.conv(b.input("x", (1, 16, 12, 12)), 32, 3)
    x = b.conv(b.conv(x, 32, 3, depthwise=True), 24, 1)
    y = b.add(OPS["gemm"](transB=1), b.add(OPS["reshape"]((24, 144)), x), b.const((20, 144), 0.1))
    graph = Graph(("x",), (y,), tuple(b.nodes), MappingProxyType(b.values), MappingProxyType(b.consts))
    ranges = {k: (float(a.min()), float(a.max())) for k, a in b.arrays.items()}
    done = quantize_graph(graph, lambda _: True, ranges, quantize, target.numerics).graph
    return profile(build(done, target))


@pytest.mark.parametrize("dataflow", often(["weight_stationary", "output_stationary"], 2))
def test_the_clock_and_the_schedule_pay_the_same(dataflow: str) -> None:
    numerics = Numerics(weight_bits=(4, 8, 16), wide_acc_bits=48)
    compute = replace(SMALL.compute, array_rates=RATES, dataflow=dataflow, pass_cycles=1, array_pixels=1)  # type: ignore[arg-type]
    target = replace(SMALL, compute=compute, numerics=numerics)
    times = {}
    for weights, activations in ((8, 8), (4, 8), (8, 16), (16, 16)):
        found = profiled(target, Quantize(Weights(bits=weights), Activations(bits=activations)))
        terms = {row.name: row for row in compare(found)}
        assert terms["array"].error == pytest.approx(0, abs=0.005), list(terms.values())
        times[weights, activations] = found.totals()["terms"]["array"]
    # tiles differ with the widths, and with them the array's edges
    wanted = {(8, 8): 1, (4, 8): 0.5, (8, 16): 2, (16, 16): 4}
    assert {k: v / times[8, 8] for k, v in times.items()} == pytest.approx(wanted, rel=0.1)
