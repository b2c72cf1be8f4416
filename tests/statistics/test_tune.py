"""Ranges judged by the layers that read them, and the choice among methods."""

from __future__ import annotations

import numpy as np
import pytest

from npuflow.calibrators import CALIBRATORS, Grid
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.op import OPS, Node
from npuflow.ir.types import TensorType, Value
from npuflow.quantise.config import Quantize
from npuflow.quantise.types import activation_type
from npuflow.stages.search import RatedRanges, RivalRanges, winner
from npuflow.stages.thresholds import Thresholds
from npuflow.stages.tune import JudgedRanges, chosen
from npuflow.statistics.observe import Counter
from npuflow.statistics.statistics import merged
from npuflow.tune.judge import Rating, rating
from npuflow.tune.precision.range_search import (
    SearchTable,
    Tune,
    best,
    consumers_of,
    judged,
    spans_to_search,
    spans_to_tune,
)
from npuflow.tune.ranges.thresholds import Calibrate, LayerCalibration, choices

UNSIGNED = Grid(8, False, False)


def network() -> Graph:
    """x feeds a tanh, which saturates, and a sum, which does not."""
    kind = TensorType((1, 400))
    nodes = (
        Node(OPS["tanh"](), ("x",), ("soft",), ("tanh",)),
        Node(OPS["add"](), ("x", "soft"), ("y",), ("sum",)),
    )
    return Graph(("x",), ("soft", "y"), nodes, {v: Value(v, kind) for v in ("x", "soft", "y")})


def feeds(count: int = 3) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": (rng.laplace(0, 2, (1, 400))).astype(np.float32)} for _ in range(count)]


def codes(x: np.ndarray, lo: float, hi: float) -> np.ndarray:
    """Rounded to 256 codes with a zero point, written out."""
    step = np.float32((hi - lo) / 255)
    zero = np.clip(np.rint(-lo / float(step)), 0, 255)
    return (
        (np.clip(np.rint(x.astype(np.float64) / float(step)) + zero, 0, 255) - zero) * float(step)
    ).astype(np.float32)


def test_losses_are_those_at_the_consumers_outputs() -> None:
    spans = {"x": [(-4.0, 4.0), (-12.0, 12.0), (-1.0, 20.0)]}
    found = judged(network(), lambda i: True, spans, {"x": UNSIGNED}, feeds())["x"]
    wanted = np.zeros((2, 3))
    for feed in feeds():
        x = feed["x"]
        for j, span in enumerate(spans["x"]):
            rounded = codes(x, *span)
            wanted[0, j] += ((np.tanh(rounded) - np.tanh(x)).astype(np.float64) ** 2).sum()
            wanted[1, j] += ((rounded - x).astype(np.float64) ** 2).sum()
    assert found == pytest.approx(wanted, rel=1e-3)
    # The tanh likes the narrow range, the sum the wide one: the wide one is taken.
    assert np.argmin(found[0]) == 0 and np.argmin(found[1]) == 1
    assert best(spans["x"], found) == 1


@pytest.mark.parametrize(
    "grid", [Grid(4, False, False), Grid(6, True, True, narrow=True), Grid(16, False, False)]
)
def test_losses_of_any_width_in_any_parts(grid, monkeypatch) -> None:
    spans = {"x": [(-2.0, 2.0), (-6.0, 6.0)], "soft": [(-1.0, 1.0), (-0.5, 0.5)]}
    args = (network(), lambda i: True, spans, {"x": grid, "soft": grid}, feeds())
    whole = judged(*args)
    for j, span in enumerate(spans["x"]):
        kind = activation_type(*span, grid)
        scale, zero = float(kind.scale[0]), kind.zero_point[0]
        wanted = 0.0
        for feed in feeds():
            made = scale * (np.clip(np.rint(feed["x"] / scale) + zero, kind.lo, kind.hi) - zero)
            wanted += ((np.tanh(made) - np.tanh(feed["x"])) ** 2).sum()
        assert whole["x"][0, j] == pytest.approx(wanted, rel=1e-3, abs=1e-7)
    monkeypatch.setattr("npuflow.tune.tuned.RANGE_WEIGHTS", -1)
    parts = judged(*args)
    assert all((parts[name] == whole[name]).all() for name in spans)


def test_only_npu_nodes_are_consumers() -> None:
    assert [n.name for n in consumers_of(network(), lambda i: i == 1, ["x", "soft", "y"])["x"]] == ["sum"]
    assert set(consumers_of(network(), lambda i: True, ["x", "soft", "y"])) == {"x", "soft"}


def made() -> dict[str, object]:
    counter = Counter(("x", "soft"))
    stats = merged([(str(i), counter.observe([f["x"], np.tanh(f["x"])])) for i, f in enumerate(feeds())])
    calibrate = Calibrate(method="mse", layers=(LayerCalibration(("tanh",), range=(-1.0, 1.0)),))
    return choices(network(), stats, calibrate, Quantize(), Numerics(), [])


def test_candidates_lie_between_kl_and_the_extrema() -> None:
    chosen = made()
    own = {name: one.range() for name, one in chosen.items()}
    spans = spans_to_tune(chosen, own, Tune(candidates=5))
    assert set(spans) == {"x"}  # the other's range was written by hand
    kl, whole = (
        CALIBRATORS["kl"]()(chosen["x"].tensor, UNSIGNED),
        CALIBRATORS["minmax"]()(chosen["x"].tensor, UNSIGNED),
    )
    assert spans["x"][0] == own["x"] and spans["x"][-1] == whole
    assert kl in spans["x"] or kl == whole
    assert all(whole[0] <= lo <= 0 <= hi <= whole[1] for lo, hi in spans["x"])


def test_every_method_that_is_searched_gives_its_own_range() -> None:
    found = spans_to_search({"x": made()["x"]}, SearchTable().methods)
    assert set(found) == set(SearchTable().methods)
    for method, ranges in found.items():
        assert ranges["x"] == CALIBRATORS[method]()(made()["x"].tensor, UNSIGNED)


def thresholds() -> Thresholds:
    return Thresholds({"a": (0.0, 1.0), "b": (0.0, 2.0)}, {"a": "mse", "b": "by hand"})


def test_tune_leaves_what_was_written_by_hand() -> None:
    spans = ((0.0, 1.0), (0.0, 3.0))
    items = {v: JudgedRanges(spans, np.array([[1.0, 0.5]])) for v in "ab"}
    done = chosen(items, thresholds(), Tune())
    assert (done.ranges, done.methods) == ({"a": (0.0, 3.0), "b": (0.0, 2.0)}, {"a": "tune", "b": "by hand"})
    unread = {"a": JudgedRanges(spans, np.zeros((0, 2)))}
    assert chosen(unread, thresholds(), Tune()).ranges == thresholds().ranges


@pytest.mark.parametrize(("objective", "best"), [("sqnr", "kl"), ("cosine", "ema")])
def test_search_takes_the_best_rival(objective, best) -> None:
    ratings = {"recipe": Rating(10.0, 0.98), "kl": Rating(20.0, 0.99), "ema": Rating(19.0, 0.995)}
    rivals = {
        n: RivalRanges({"a": (0.0, float(i)), "b": (0.0, 9.0)}, {"a": n, "b": n})
        for i, n in enumerate(ratings)
    }
    rated = {n: RatedRanges(one) for n, one in ratings.items()}
    done = winner(rated, thresholds(), rivals, None, SearchTable(objective=objective))
    assert done.methods == {"a": best, "b": "by hand"} and done.ranges["b"] == (0.0, 2.0)
    rated["recipe"] = RatedRanges(Rating(20.0, 0.995))
    assert winner(rated, thresholds(), rivals, None, SearchTable(objective=objective)) == thresholds()


def test_ratings() -> None:
    truth = [[np.array([3.0, 4.0], np.float32)]]
    assert rating(truth, [[np.array([3.0, 3.5], np.float32)]]).sqnr == pytest.approx(20.0)
    assert rating(truth, [[np.array([6.0, 8.0], np.float32)]]).cosine == pytest.approx(1.0)
