"""Outputs are judged on held-out samples, the tensor that spoils one is found by
substitution, and advice is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuflow.checks.evaluate import Score
from npuflow.hw.target import Numerics, Target
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import QuantType, TensorType, Value
from npuflow.place.place import place
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Override, Quantize
from npuflow.report.statement import (
    AccuracyWarning,
    Advice,
    JudgedOn,
    Statement,
    accuracy_warnings,
    evaluated,
    figures,
    statement,
)
from npuflow.stages.verdict import Verdict
from npuflow.strategies import Budget, Output
from npuflow.tune.error import outputs_of
from npuflow.tune.judge import Judge, judged_outputs
from npuflow.tune.precision.advice import FixSearch
from npuflow.tune.precision.culprit import culprits
from npuflow.tune.precision.fakequant import FakeQuantNetwork
from npuflow.tune.precision.harness import Harness
from npuflow.tune.precision.output_check import JudgedOutput, affordable, clipped, close, shown
from npuflow.tune.precision.widened import override_text, widened
from npuflow.tune.quality import apart, quality
from tests.networks.floats import Net, floats

WIDE = Numerics(weight_bits=(8, 16), activation_bits=(8, 16))
TARGET = Target(numerics=WIDE)
RELU: dict[str, Any] = {"clip": (0.0, float("inf"))}
PLANTED = "c3"


@pytest.fixture(scope="module")
def net() -> Net:
    made = Net(5, 1, 4, 8, 8)
    last = "x"
    for i in range(1, 6):
        last = made.conv(f"c{i}", last, 8, **RELU)
    made.conv("y", last, 4)
    made.conv("other", "c1", 4)
    return made


def rigged(net: Net, scheme: Quantize | None = None, plant: float = 1.0, value: str = PLANTED) -> Harness:
    graph = net.graph("y", "other")
    net.rng = np.random.default_rng(9)
    feeds = net.feeds(24)
    extrema: dict[str, tuple[float, float]] = {}
    for feed in feeds:
        for name, array in floats(graph, feed).items():
            lo, hi = extrema.get(name, (0.0, 0.0))
            extrema[name] = min(lo, float(array.min())), max(hi, float(array.max()))
    lo, hi = extrema[value]
    ranges = {**extrema, value: (plant * lo, plant * hi)}
    candidate = Candidate(graph, place(graph, TARGET), scheme or Quantize(), WIDE, ranges)
    return Harness(FakeQuantNetwork(candidate), extrema, Judge(graph, feeds[:8], feeds[8:]))


def clinic(harness: Harness, recipe: Quantize | None = None) -> FixSearch:
    return FixSearch(
        harness,
        recipe or Quantize(),
        TARGET,
        Budget(),
        False,
        harness.wide_ranges,
        dict,
        lambda: None,
        lambda _: None,
    )


def built(harness: Harness) -> Graph:
    return harness.judge.built(harness.network.candidate)


def test_a_ruined_output_is_poor_and_others_are_not(net: Net) -> None:
    harness = rigged(net, plant=0.1)
    found = {s.output.name: s for s in shown(harness.judge, harness.judge.outputs(built(harness)), Budget())}
    assert not found["y"].ok and found["y"].output.sqnr < 15 and found["other"].ok
    fine = rigged(net)
    assert all(s.ok for s in shown(fine.judge, fine.judge.outputs(built(fine)), Budget()))


def test_the_budget_has_a_slack_and_answers_may_stand_in_for_decibels() -> None:
    budget = Budget(20.0, 0.99)
    assert close(budget, Output("y", 20.0, 19.2)) and not close(budget, Output("y", 20.0, 17.0))
    assert close(budget, Output("y", 5.0, 2.0, 0.985)) and not close(budget, Output("y", 5.0, 2.0, 0.97))


def test_large_networks_are_judged_on_fewer_samples(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, feeds = net.graph("y"), [{"x": np.full((1, 4, 8, 8), i, np.float32)} for i in range(32)]
    assert len(affordable(graph, feeds)) == 32 and affordable(graph, []) == []
    monkeypatch.setattr("npuflow.tune.precision.output_check.EFFORT", 1.0)
    assert [int(f["x"].max()) for f in affordable(graph, feeds)] == [0, 4, 9, 13, 18, 22, 27, 31]


def test_real_numbers_of_another_type_have_decibels() -> None:
    """A Cast to float64 behind the network: equality of numbers that noise moves said nothing of them."""
    kinds = {"x": TensorType((1, 4)), "a": TensorType((1, 4)), "d": TensorType((1, 4), "float64")}
    values = {name: Value(name, kind) for name, kind in kinds.items()}
    host = OPS["host"](op_type="Cast", attributes=(("to", 11),))
    nodes = (Node(OPS["relu"](), ("x",), ("a",), ("r",)), Node(host, ("a",), ("d",), ("c",)))
    feeds = [{"x": np.random.default_rng(k).uniform(1, 2, (1, 4)).astype(np.float32)} for k in range(8)]
    judge = Judge(Graph(("x",), ("d",), nodes, values), feeds)
    (exact,) = shown(judge, judge.truth, Budget())
    noisy = [[a * (1.0 + 0.01 * (-1.0) ** s) for s, a in enumerate(judge.truth[0])]]
    (one,) = shown(judge, noisy, Budget())
    assert exact.ok and one.ok and one.output.agreement is None
    assert one.output.sqnr == pytest.approx(40.0) and one.output.low == pytest.approx(40.0)


@pytest.mark.parametrize(("value", "plant"), [("c3", 0.2), ("c1", 0.2), ("c5", 40.0), ("x", 0.1)])
def test_the_planted_tensor_is_named(net: Net, value: str, plant: float) -> None:
    harness = rigged(net, plant=plant, value=value)
    column = [part.name for part in harness.judge.parts].index("y")
    first = culprits(harness, column, lambda *_: None)[0]
    assert (first.kind, first.value) == ("activation", value) and first.after > first.before + 3
    assert first.layer == (f"/{value}" if value != "x" else "x")


def test_the_planted_weight_is_named(net: Net) -> None:
    harness = rigged(net, Quantize(overrides=(Override(("c4",), weight_bits=2),)))
    first = culprits(harness, 0, lambda *_: None)[0]
    assert (first.kind, first.layer) == ("weight", "/c4")


def test_of_large_networks_runs_of_units_are_substituted_first(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npuflow.tune.tuned.CULPRIT_MACS", 1.0)
    monkeypatch.setattr("npuflow.tune.tuned.CULPRIT_FEWEST", 8)
    harness = rigged(net, plant=0.2)
    found = culprits(harness, 0, lambda *_: None)
    assert found[0].value == PLANTED and len(found) < len(harness.names)


def test_only_what_leads_to_the_output_is_substituted(net: Net) -> None:
    harness = rigged(net, plant=0.2)
    column = [part.name for part in harness.judge.parts].index("other")
    assert {one.value for one in culprits(harness, column, lambda *_: None)} == {
        "x",
        "c1",
        "other",
        "c1.w",
        "other.w",
    }


def test_advice_is_measured_and_does_what_it_says(net: Net) -> None:
    harness = rigged(net, plant=0.1)
    here = clinic(harness)
    before = next(o for o in judged_outputs(harness.judge.score(built(harness))) if o.name == "y")
    fixes = here.fixes("y", before, culprits(harness, 0, lambda *_: None))
    first = fixes[0]
    assert first.what == 'min-max range for "c3"' and first.holds and first.cycles == pytest.approx(1.0)
    assert first.toml == '[[calibrate.layers]]\nlayers = ["c3"]\nmethod = "minmax"'
    assert first.line == f'min-max range for "c3": {before.sqnr:.1f} -> {first.after.sqnr:.1f} dB, no cycles'
    applied = replace(harness, network=harness.network.with_(ranges=harness.wide_ranges))
    after = next(
        o
        for o in quality(
            harness.network.graph, harness.judge.truth, outputs_of(built(applied), harness.judge.held)
        )
        if o.name == "y"
    )
    assert after.sqnr == pytest.approx(first.after.sqnr) and after.sqnr > before.sqnr + 10


def test_advice_that_does_not_help_is_not_given(net: Net) -> None:
    """Weights of two bits: neither ranges nor wider activations help, 16 bits for the weights do."""
    recipe = Quantize(overrides=(Override(("c4",), weight_bits=2),))
    harness = rigged(net, recipe)
    made = outputs_of(built(harness), harness.judge.held)
    before = quality(harness.network.graph, harness.judge.truth, made)[0]
    fixes = clinic(harness, recipe).fixes("y", before, culprits(harness, 0, lambda *_: None))
    assert fixes and fixes[0].what == '16 bits for the weights of "/c4"' and fixes[0].cycles > 1.0
    assert 'layers = ["c4"]\nweight_bits = 16' in fixes[0].toml
    assert all(f.after.sqnr >= before.sqnr + 1 for f in fixes) and not any("min-max" in f.what for f in fixes)


def test_clipped_values_are_counted(net: Net) -> None:
    graph = net.graph("y")
    feeds = [{"x": np.linspace(-2, 2, 256, dtype=np.float32).reshape(1, 4, 8, 8)}]
    quant = QuantType(8, True, (1 / 127,), (0,))
    assert clipped(graph, {"x": quant}, feeds)["x"] == pytest.approx(0.5, abs=0.02)
    assert clipped(graph, {"x": quant.with_(scale=(2 / 127,))}, feeds)["x"] == 0.0


def test_the_statement_says_it_with_numbers(net: Net) -> None:
    harness = rigged(net, plant=0.1)
    found = shown(harness.judge, harness.judge.outputs(built(harness)), Budget())
    first = culprits(harness, 0, lambda *_: None)[0]
    said = statement(found, JudgedOn(8), "", Budget(), Advice(first, ()))
    assert (
        said.ok is False
        and 'the output "y"' in said.text
        and "8 held-out" in said.text
        and '"/c3"' in said.text
    )
    assert "20 dB asked for" in said.text and "no single change" in said.hint
    none = statement((), JudgedOn(0), "the calibration samples are random numbers", Budget(), Advice())
    assert none.ok is None
    good = statement(found[1:], JudgedOn(8), "", Budget(), Advice())
    assert good.ok and '"other"' in good.text and "unverified" not in good.text
    worse = statement(found, JudgedOn(1, verified=False), "", Budget(), Advice())
    assert worse.ok is False and "choices were made by (unverified: 6" in worse.text
    few = statement(found[1:], JudgedOn(1, verified=False), "", Budget(), Advice())
    assert few.ok and "on 1 calibration sample that choices were made by (unverified: 6" in few.text
    unlike = statement(found[1:], JudgedOn(8), "", Budget(), Advice(), '"x" has another scale')
    assert unlike.ok is False and "another scale" in unlike.text


def test_an_evaluation_that_is_poor_counts_more_than_samples_that_look_well() -> None:
    good = Statement(True, "every output is close")
    score = Score("top1", 100, {"top1": 0.5}, {"top1": 0.9}, {"y": 12.0}, 0.55, 1.0)
    said = evaluated(good, score)
    assert said.ok is False and "top1 0.5 (float 0.9)" in said.text and "55.0 %" in said.text
    fine = evaluated(good, replace(score, figures={"top1": 0.89}, agreement=0.98))
    assert fine.ok and fine.text == "every output is close; top1 0.89 (float 0.9) on 100 evaluation samples"
    assert evaluated(good, None) is good


def test_a_metric_that_is_kept_counts_more_than_decibels() -> None:
    """18.3 dB, and all characters are right."""
    text, both = 'the output "y" is far from the float model\'s: 18.3 dB', ("y", "z (part)")
    noisy, levels = Statement(False, text, "wider", both), {"y": 18.0, "z": 15.0}
    figures = {"characters": 0.995}, {"characters": 1.0}
    score = Score("characters", 60, *figures, levels, None, 1.0, reads=("y", "z"))
    said = evaluated(noisy, score)
    assert said.ok is True and said.text.startswith("characters 0.995 (float 1) on 60 evaluation samples, as")
    assert "18.3 dB" in said.text
    for other in (
        replace(score, figures={"characters": 0.97}), replace(score, samples=20),
        replace(score, reads=("y",)), replace(score, sqnr_db={"y": 4.0}),
        replace(score, figures={"sqnr_db": 18.0}, baseline={"sqnr_db": 200.0}),
        replace(score, figures={"agreement": 0.5}, baseline={"agreement": 1.0}),      # of no row of scores
    ):
        assert evaluated(noisy, other).ok is False
    assert evaluated(replace(noisy, noisy=()), score).ok is False       # samples that are unlike, NaN


def test_an_arg_max_that_hardly_any_noise_moves_is_no_alarm() -> None:
    """Of outputs that are no scores (a flag for every place) the largest value is no answer:
    at 40 dB it tells ties apart."""
    good = Statement(True, "every output is close")
    score = Score("agreement", 64, {"agreement": 0.89}, {"agreement": 1.0}, {"y": 40.2}, 0.89, 1.0)
    assert evaluated(good, score).ok is True
    assert evaluated(good, replace(score, sqnr_db={"y": 40.2, "z": 18.0})).ok is True
    assert evaluated(good, replace(score, sqnr_db={"y": 24.0})).ok is False


def test_an_output_that_is_ruined_counts_beside_one_with_equal_answers() -> None:
    good = Statement(True, "every output is close")
    score = Score("agreement", 64, {"agreement": 1.0}, {"agreement": 1.0}, {"y": 24.0, "z": 4.0}, 1.0, 1.0)
    said = evaluated(good, score)
    assert said.ok is False and 'the output "z" has 4.0 dB' in said.text
    assert evaluated(good, replace(score, sqnr_db={"y": 4.0, "z": 24.0})).ok is True


def test_what_was_widened_is_a_table_and_a_text_to_paste(net: Net) -> None:
    graph = net.graph("y")
    overrides = (
        Override(("c3",), bits=16),
        Override(("c1",), input_bits=16),
        Override(("c2",), weight_bits=16),
    )
    names = [("activation", "x"), ("activation", "c3"), ("weight", "c2.w")]
    rows = widened(graph, overrides, names, np.array([0.1, 0.01, 0.001]).reshape(3, 1, 1))
    assert [(w.name, w.layer, w.kind, round(w.alone or 0)) for w in rows] == [
        ("x", "/c1", "input", 10), ("c3", "/c3", "activation", 20), ("c2.w", "/c2", "weight", 30),
    ]
    assert override_text(overrides[:1]) == '[[quantize.overrides]]\nlayers = ["c3"]\nbits = 16\n'


@pytest.mark.parametrize(
    ("share", "text"), [(0.00018, "0.018 % of c"), (0.69, "69 % of c"), (0.999, "all of c")]
)
def test_the_most_clipped_tensor_is_a_plain_number(share: float, text: str) -> None:
    assert Verdict(clipped={"b": share / 2, "c": share}).summary()["most_clipped"] == text


def test_a_search_that_ends_short_is_said_with_the_figures_of_the_program(net: Net) -> None:
    harness = rigged(net, plant=0.1)
    found = shown(harness.judge, harness.judge.outputs(built(harness)), Budget())
    poor = statement(found, JudgedOn(8), "", Budget(), Advice(short=True))
    reached = f"{found[0].output.sqnr:.1f} dB"
    assert reached in poor.text
    assert "(20 dB asked for, which the search for widths did not reach)" in poor.text
    good = statement(found[1:], JudgedOn(8), "", Budget(), Advice(short=True))
    assert good.ok and good.text.endswith("; the search for widths did not reach the 20 dB asked for")
    assert "search for widths" not in statement(found, JudgedOn(8), "", Budget(), Advice()).text


def parted(*parts: float) -> JudgedOutput:
    return JudgedOutput(Output("y", 25.0, 24.0), True, parts_db=parts)


def test_a_figure_is_given_with_what_it_may_be_off() -> None:
    """By Student's t for four parts: 3.18 times their deviation over two."""
    assert parted(24.0, 25.0, 26.0, 25.0).give_or_take == pytest.approx(3.18 * np.sqrt(2 / 3) / 2)
    assert "25.0 dB give or take 1.3" in figures(parted(24.0, 25.0, 26.0, 25.0))
    assert parted().give_or_take is None and "give" not in figures(parted())
    assert "give" not in figures(parted(25.0, 25.0, 25.0, 25.0))


@pytest.mark.parametrize(
    ("parts", "warns"),
    [
        ((15.0, 25.0, 26.0, 25.0), True),
        ((17.0, 25.0, 26.0, 25.0), False),
        ((60.0, 45.0, 80.0, 52.0), False),             # all of them clean
        ((26.0, 45.0, 40.0, 42.0), False),
        ((24.0, 45.0, 40.0, 42.0), True),
        ((), False),
    ],
)
def test_parts_that_disagree_are_warned_of(parts: tuple[float, ...], warns: bool) -> None:
    made = Verdict((parted(*parts),), 16)
    found = accuracy_warnings(made.outputs, None, made.statement, None)
    assert bool(found) == warns
    if warns:
        said = found[0].text
        assert f'the output "y" has from {min(parts)} to {max(parts)} dB' in said and made.statement.ok


def test_a_stricter_budget_is_not_settled_by_a_metric(net: Net) -> None:
    harness = rigged(net, plant=0.1)
    for budget, settles in ((Budget(), True), (Budget(30.0), False)):
        found = shown(harness.judge, harness.judge.outputs(built(harness)), budget)
        assert bool(statement(found, JudgedOn(8), "", budget, Advice()).noisy) == settles


def test_a_metric_that_is_kept_settles_what_would_be_warnings() -> None:
    outputs = (parted(15.0, 25.0, 26.0, 25.0),)
    good, bias = Statement(True, "every output is close"), AccuracyWarning("a bias", "trust the program")
    score = Score("top1", 60, {"top1": 0.9}, {"top1": 0.9}, {"y": 20.0}, None, 1.0, reads=("y",))
    assert accuracy_warnings(outputs, bias, good, score) == []
    for other in (
        replace(score, reads=("z",)), replace(score, samples=20), replace(score, figures={"top1": 0.8}),
    ):
        assert '"y" has from 15.0 to 26.0 dB' in accuracy_warnings(outputs, None, good, other)[0].text
    assert accuracy_warnings((), bias, good, replace(score, samples=20)) == [bias]
    assert accuracy_warnings((), bias, replace(good, ok=False), score) == [bias]


def test_parts_of_the_samples_are_disjoint_and_need_two_samples_each(net: Net) -> None:
    harness = rigged(net)
    graph = harness.network.graph
    made = harness.judge.outputs(built(harness))
    assert all(len(one.parts_db) == 4 for one in shown(harness.judge, made, Budget()))
    few = Judge(graph, harness.judge.held[:7])
    assert all(one.parts_db == () for one in shown(few, few.outputs(built(harness)), Budget()))
    quiet = [[np.zeros_like(a) if s % 4 else a for s, a in enumerate(c)] for c in harness.judge.truth]
    ruined = [[a + (s % 4 == 0) for s, a in enumerate(column)] for column in quiet]
    assert [level < 100 for level in apart(graph, quiet, ruined)["y"]] == [True, False, False, False]


def test_a_part_with_hardly_a_signal_counts_as_a_tenth_of_the_usual_one(net: Net) -> None:
    """Not as nothing but noise."""
    harness = rigged(net)
    factors = (0.001, 1.0, 1.0, 1.0)
    truth = [[a * factors[s % 4] for s, a in enumerate(column)] for column in harness.judge.truth]
    made = [[a + 0.01 * np.sqrt((a**2).mean() + 0.1) for a in column] for column in truth]
    parts = apart(harness.network.graph, truth, made)["y"]
    assert max(parts) - min(parts) < 12 and min(parts) > 20
