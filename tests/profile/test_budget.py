"""What is too slow is explained: the least possible, what binds it, and levers that bring it
into its budget when pulled."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from npuflow.cli._app import application
from npuflow.hw.target import LimitRule, Target
from npuflow.ir.graph import Graph
from npuflow.report.profile import profile
from npuflow.report.profile.budget import FREE, BudgetCase, MissedBudget, minimal, too_slow
from npuflow.search.plan import plan_network
from tests.networks.harness import SMALL, local, machine
from tests.networks.small import Builder, mixed
from tests.search.test_unfit import integers
from tests.targets.test_models import lenet

TARGET = local(SMALL, 1 << 14)


def missed(graph: Graph, target: Target, share: float, level: int = 1) -> MissedBudget:
    case = BudgetCase(graph, target, level)
    found = profile(case.program())
    bounds = plan_network(graph, machine(target), target.numerics, level).bounds
    return MissedBudget(case, found, bounds, share * found.cycles)


def test_a_resource_that_costs_nothing_never_slows() -> None:
    one = missed(mixed(TARGET.numerics)[0], TARGET, 0.9)
    assert one.at(TARGET) == one.found.cycles
    assert all(one.free([name]) <= one.found.cycles * 1.001 for name in FREE)
    assert one.free(list(FREE)) < 0.2 * one.found.cycles


@pytest.mark.parametrize("share", [0.95, 0.8, 0.6, 0.4])
def test_of_what_binds_it_nothing_is_needless(share: float) -> None:
    one = missed(mixed(TARGET.numerics)[0], TARGET, share)
    binding = minimal(one)
    assert binding
    others = [n for n in FREE if n not in binding]
    assert one.free(others) > one.allowed                         # these alone make it too slow
    for name in binding:
        assert one.free([*others, name]) <= one.allowed           # without any one of them it is in time


def product(channels: int) -> Graph:
    """A matrix-vector product: all weights once, for one row."""
    b = Builder()
    return integers(b, b.conv(b.input("x", (1, channels, 1, 1)), channels, 1), SMALL)


def test_a_product_of_a_vector_waits_for_its_weights() -> None:
    target = replace(SMALL, memory=replace(SMALL.memory, external_bandwidth=1.0, local_bytes=1 << 14))
    one = missed(product(256), target, 0.5)
    assert minimal(one) == ["bandwidth"] and one.bounds.traffic > one.allowed
    error = too_slow(one, {})
    assert error.code == "NF-FIT-002" and "no plan meets it here" in error.because
    assert "limiting resources: 1 bytes per cycle" in error.because
    (rate,) = map(float, re.findall(r"target.memory.external_bandwidth >= ([\d.]+): ", error.hint))
    assert 1.5 < rate < 6
    wider = one.case.changed("memory", external_bandwidth=rate)
    assert (wider.cycles() or 1e9) <= one.allowed                 # pulled again, it works
    narrower = one.case.changed("memory", external_bandwidth=rate / 2)
    assert (narrower.cycles() or 0) > one.allowed


def test_suggestions_state_what_they_do() -> None:
    one = missed(mixed(TARGET.numerics)[0], TARGET, 0.7)
    error = too_slow(one, {"same": TARGET})
    assert "target = same" not in error.hint
    reported = re.findall(r"^(.*): ([\d.e-]+) ms(, not enough by itself)?$", error.hint, re.M)
    assert reported and len(reported) == len(error.hint.splitlines())
    limit = one.case.milliseconds(one.allowed)
    for _, time, short in reported:
        assert bool(short) == (float(time) > limit * 1.001)
    for change, time, _ in reported:
        if change.startswith("target.compute.cores"):
            again = one.case.changed("compute", cores=int(change.split()[-1]))
            assert again.milliseconds(again.cycles() or 0) == pytest.approx(float(time), rel=1e-3)


@pytest.mark.slow
def test_targets_that_refuse_a_layer_are_not_suggested() -> None:
    one = missed(mixed(TARGET.numerics)[0], TARGET, 0.5)
    compute = replace(TARGET.compute, vector_lanes=4096, array_rows=64, array_cols=64, depthwise_macs=4096)
    memory = replace(TARGET.memory, external_bandwidth=64.0)
    wider = replace(TARGET, memory=memory, compute=compute, dma=replace(TARGET.dma, setup_cycles=0))
    without = replace(wider, limits=replace(wider.limits, refuse=("sigmoid",)))
    narrow = replace(wider, limits=replace(wider.limits, rules=(LimitRule(("conv",), "kernel_h <= 1"),)))
    hint = too_slow(one, {"wider": wider, "without": without, "narrow": narrow}).hint
    assert "target = wider: " in hint and "target = without" not in hint and "target = narrow" not in hint


def test_narrow_codes_are_tried() -> None:
    """Where a network of 8 bits is in time and the one of 16 is not, it says so."""
    from npuflow.quantise.config import Activations, Quantize
    from npuflow.testing.op import quantised, samples

    wide, _ = quantised(samples("conv")[0], SMALL.numerics, Quantize(activations=Activations(bits=16)))
    narrow, _ = quantised(samples("conv")[0], SMALL.numerics, Quantize())
    slow, quick = missed(wide, TARGET, 1.0), missed(narrow, TARGET, 1.0)
    assert quick.found.cycles < slow.found.cycles
    middle = replace(slow, allowed=quick.found.cycles * 1.001)
    assert "bits = 8" not in too_slow(middle, {}).hint
    assert (
        "activations = { bits = 8 }"
        in too_slow(replace(middle, case=replace(slow.case, narrow=lambda: narrow)), {}).hint
    )


QUICK = ("data.count=4", "tiling.level=1", "precision.strategy=none", "correct.bias=off")


def test_the_stage_refuses_or_warns(tmp_path) -> None:  # type: ignore[no-untyped-def]
    recipe = lenet(tmp_path)
    words = [
        "build",
        str(recipe),
        "--until",
        "budget",
        "--cache",
        str(tmp_path / "cache"),
        "--out",
        str(tmp_path),
        "--json",
    ]

    def built(*sets: str):  # type: ignore[no-untyped-def]
        options = [part for s in (*sets, *QUICK) for part in ("--set", s)]
        return CliRunner().invoke(application("build"), [*words, *options])

    done = built("budget.ms=100.0")
    assert done.exit_code == 0 and "too long" not in done.output, done.output
    short = built("budget.cycles=2000")
    assert (
        short.exit_code == 2
        and "too long" in short.output
        and "no plan on this machine takes less" in short.output
    )
    warned = built("budget.cycles=2000", 'budget.on_miss="warn"')
    assert warned.exit_code == 0 and any(
        json.loads(line)["event"] == "warning" and "too long" in line
        for line in warned.output.splitlines()
        if line[:1] == "{"
    ), warned.output
    nothing = built("budget.ms=0.0")
    assert nothing.exit_code != 0 and "the budget is empty" in nothing.output + str(nothing.exception)
