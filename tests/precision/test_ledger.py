"""The account of an output's noise: its parts add up, and a planted fault comes first."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.hw.target import Target
from npuflow.ir.graph import Graph
from npuflow.quantise.config import Quantize, Weights
from npuflow.tune.bias import BiasCorrection, correct_biases, shifted
from npuflow.tune.improve import ASKED
from npuflow.tune.precision import ledger as account
from npuflow.tune.precision.cost import CostModel
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.ledger import (
    CLIPPING,
    CORRECTION,
    ROUNDING,
    WEIGHT_ROUNDING,
    Ledger,
    LedgerEntry,
    ledger,
    lines,
)
from npuflow.tune.precision.problem import cost_of
from tests.precision.harnesses import BOTH, extrema, feeds_of, harness_of, mixed_net


def split(harness: Harness, column: int = 0) -> Ledger:
    target = Target(numerics=BOTH)
    cost: CostModel = cost_of(harness, target)
    built = harness.built((0,) * len(harness.names))
    return ledger(harness, built, cost, column, lambda done, of: None)


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_the_parts_add_up(seed: int) -> None:
    found = split(harness_of(mixed_net(seed)))
    assert found.sqnr > 15 and abs(sum(one.share for one in found.entries) - 1) < 1e-9
    assert min(one.share for one in found.entries) > -0.1
    assert {ROUNDING, WEIGHT_ROUNDING} <= {one.cause for one in found.entries}
    assert list(found.entries) == sorted(found.entries, key=lambda one: -one.share)


@pytest.mark.parametrize("value", ["c1", "c2", "sum", "gated"])
def test_a_range_a_quarter_of_what_it_should_be_comes_first(value: str) -> None:
    graph = mixed_net()
    lo, hi = extrema(graph, feeds_of(graph, 8))[value]
    found = split(harness_of(graph, {value: (lo / 4, hi / 4)}))
    first = found.entries[0]
    assert (first.cause, first.tensor) == (CLIPPING, value), first
    assert first.fix and first.without is not None and first.without > found.sqnr + 3


def test_what_removes_a_part_is_worth_what_it_says() -> None:
    """The dB without a part is that of the network with this part in the widest codes."""
    harness = harness_of(mixed_net())
    found = split(harness)
    first = next(one for one in found.entries if one.cause == ROUNDING)
    assert first.without is not None
    unit = [name for _, name in harness.names].index(first.tensor)
    levels = tuple(int(k == unit) for k in range(len(harness.names)))
    noise = harness.judge.noise(harness.mixed(levels, harness.judge.held))[:, 0]
    assert abs(-10 * np.log10(noise.mean()) - first.without) < 1.5


def test_few_samples_leave_no_part_that_the_whole_does_not_have() -> None:
    """With two samples of a small output, where switching a cause off draws every rounding behind it anew."""
    found = split(harness_of(mixed_net(), held=2), column=1)
    shares = [one.share for one in found.entries]
    assert abs(sum(shares) - 1) < 1e-9 and max(map(abs, shares)) < 1


def test_small_parts_are_not_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npuflow.tune.tuned.LEDGER_MEASURED", 4)
    found = split(harness_of(mixed_net()))
    measured = [one for one in found.entries if one.tensor and one.alone is not None]
    assert len(measured) == 4 and all(one.without is not None for one in measured)
    others = [one.share for one in found.entries if one.alone is None]
    assert others and min(one.share for one in measured) >= max(others)


def test_it_reads_as_a_table() -> None:
    text = list(lines(split(harness_of(mixed_net())), most=4))
    assert text[0].startswith('output "y": ') and "held-out samples" in text[0]
    assert any("16 bits" in line for line in text)
    assert any("others" in line for line in text)


@pytest.mark.parametrize("answers", [True, False])
def test_noise_that_corrected_biases_add_goes_to_the_cause_they_answer_to(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """With `answers` biases move for a range alone that is too small; else whatever else the network has."""
    graph = mixed_net()
    lo, hi = extrema(graph, feeds_of(graph, 8))["c1"]
    harness = harness_of(graph, {"c1": (lo / 3, hi / 3)})
    target = Target(numerics=BOTH)
    plain = harness.built((0,) * len(harness.names))

    def moved(made: Graph) -> Graph:
        at = next(i for i, node in enumerate(made.nodes) if node.outputs[0] == "c2")
        return shifted(made, at, np.full(made.type(made.nodes[at].outputs[0]).shape[1], 0.4), BOTH)

    def corrected(real: Graph, made: Graph, *others: object) -> BiasCorrection:
        return BiasCorrection(made if answers else moved(made), ())

    monkeypatch.setattr(account, "correct_biases", corrected)
    found = ledger(harness, moved(plain), cost_of(harness, target), 0, lambda done, of: None)
    shares = {one.cause: one.share for one in found.entries if one.cause == CORRECTION}
    assert abs(sum(one.share for one in found.entries) - 1) < 1e-9
    if answers:
        assert abs(shares[CORRECTION]) < 0.02 and found.entries[0].tensor == "c1"
    else:
        assert shares[CORRECTION] > 0.3


def test_shares_are_of_the_noise_that_corrected_biases_found() -> None:
    """Few bits per tensor shift means, which corrected biases take back: most of the noise is gone then."""
    feeds = feeds_of(mixed_net(), 40)
    scheme = Quantize(weights=Weights(bits=4, per="tensor"))
    harness = harness_of(mixed_net(), scheme=scheme, numerics=BOTH, feeds=[{"x": abs(f["x"])} for f in feeds])
    plain = harness.built((0,) * len(harness.names))
    network = harness.network
    built = correct_biases(network.reference, plain, network.numerics, harness.judge.fit, (), ASKED).graph
    found = ledger(harness, built, cost_of(harness, Target(numerics=BOTH)), 0, lambda done, of: None)
    shares = {one.cause: one.share for one in found.entries if not one.tensor}
    taken = shares[CORRECTION]
    assert found.before is not None and found.before < found.sqnr - 1
    assert -1 < taken < -0.2 and 10 * np.log10(1 + taken) == pytest.approx(found.before - found.sqnr)
    assert sum(one.share for one in found.entries if one.cause != CORRECTION) == pytest.approx(1)


def test_large_parts_that_take_noise_away_are_named() -> None:
    entries = [LedgerEntry("l", f"t{i}", ROUNDING, 0.2 - 0.01 * i, None, None) for i in range(20)]
    entries.append(LedgerEntry("", "", CORRECTION, -0.6, None, None))
    text = list(lines(Ledger("y", 20.0, 8, tuple(entries), 16.0), most=15))
    assert "20.0 dB on 8 held-out samples, 16.0 dB before biases were corrected" in text[0]
    assert any("-60.0 %" in line and CORRECTION in line for line in text)
    others = [line for line in text if "others" in line]
    assert len(others) == 1 and "6 others" in others[0] and not others[0].strip().startswith("-")
