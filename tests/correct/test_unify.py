"""Scale unification: one range for what an addition reads, kept only where held-out samples say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuflow import build, load_recipe
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.ir.op import OPS
from npuflow.onnx.export import export_model
from npuflow.quantise.candidate import Candidate
from npuflow.quantise.config import Quantize
from npuflow.stages.quantize import Quantized
from npuflow.stages.thresholds import Thresholds
from npuflow.testing.quantised import placed_by
from npuflow.tune.correct.unify import partners, unify
from npuflow.tune.improve import ASKED, CLOSER, NETWORK
from npuflow.tune.judge import Judge
from tests.networks import recipes
from tests.networks.floats import USUAL, Net, floats

RECIPE = recipes.RECIPE + """\
[unify]
held_out = 6
"""


def residual(seed: int = 0) -> Net:
    """Two additions, a product and a concat."""
    net = Net(seed, 1, 4, 6, 6)
    net.conv("a", "x", 4)
    net.conv("b", "x", 4, spread=2.0)
    net.add("s", OPS["add"](), "a", "b")
    net.conv("c", "s", 4)
    net.add("t", OPS["add"](), "s", "c")
    net.add("p", OPS["mul"](), "t", "a")
    net.add("k", OPS["concat"](axis=1), "t", "p")
    net.conv("y", "k", 3)
    return net


def candidate(graph, ranges) -> Candidate:
    return Candidate(graph, placed_by(graph, lambda _: True), Quantize(), USUAL, ranges)


def test_additions_are_found_and_products_and_concats_are_not() -> None:
    graph = residual().graph("y")
    free = dict.fromkeys(graph.values, (-1.0, 1.0))
    assert [ids for _, ids in partners(graph, lambda _: True, free)] == [("a", "b"), ("s", "c")]
    del free["b"]
    assert [ids for _, ids in partners(graph, lambda _: True, free)] == [("s", "c")]
    assert partners(graph, lambda _: False, free) == []


@pytest.mark.parametrize("judge", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_each_trial_is_the_error_of_that_network_and_the_last_that_of_all(seed: int, judge: bool) -> None:
    net = residual(seed)
    graph = net.graph("y")
    feeds = net.feeds(8)
    seen = [floats(graph, feed) for feed in feeds]
    ranges = {
        v: (float(min(f[v].min() for f in seen)), float(max(f[v].max() for f in seen))) for v in "xabsctpky"
    }
    by, plain = Judge(graph, feeds), candidate(graph, ranges)
    pairs = partners(graph, lambda _: True, ranges)
    found = unify(pairs, plain, lambda one: by.score(one).error, CLOSER if judge else ASKED)
    kept = [t for t in found.trials if t.kept and t.layer != NETWORK]
    assert len(kept) == len(found.sets) and (judge or len(kept) == len(found.trials) - 1)
    changed = dict(ranges)
    for ids in found.sets:
        hull = (min(changed[v][0] for v in ids), max(changed[v][1] for v in ids))
        changed.update(dict.fromkeys(ids, hull))
    last = found.trials[-1]
    before, after = (by.score(candidate(graph, one)).error for one in (ranges, changed))
    assert (last.before, last.after) == (before, after)
    assert after <= before or not judge
    if not judge:
        quants = by.built(candidate(graph, changed)).values
        assert quants["a"].quant == quants["b"].quant


def test_additions_that_one_layer_was_written_out_to_are_tried_at_once() -> None:
    """The steps of an LSTM: one trial, not one for every step."""
    graph = residual().graph("y")
    one = replace(graph, nodes=tuple(replace(n, origin=("layer",)) for n in graph.nodes))
    ranges = dict.fromkeys(graph.values, (-1.0, 1.0)) | {"a": (-4.0, 4.0), "c": (-2.0, 3.0)}
    judged: list[dict[str, tuple[float, float]]] = []

    def error(changed: Candidate) -> float:
        judged.append(dict(changed.ranges))
        return 1.0

    pairs = partners(one, lambda _: True, ranges)
    found = unify(pairs, candidate(graph, ranges), error, ASKED)
    assert [t.layer for t in found.trials] == ["layer", NETWORK] and len(judged) == 2
    assert found.sets == (("a", "b"), ("s", "c"))
    assert judged[1]["b"] == (-4.0, 4.0) and judged[1]["s"] == (-2.0, 3.0)
    assert found.trials[0].change == 4.0


def test_as_a_step_of_a_build(tmp_path: Path) -> None:
    net = residual()
    (tmp_path / "net.onnx").write_bytes(export_model(net.graph("y")))
    np.savez(tmp_path / "calib.npz", x=np.concatenate([f["x"] for f in net.feeds(24)]))
    path = tmp_path / "net.toml"
    path.write_text(RECIPE)
    store = open_cache(load_recipe(path), Settings(cache=tmp_path / "cache"))
    for choice in ("auto", "on", "off"):
        result = build(path, [f"unify.scales='{choice}'"], until="quantize", cache=tmp_path / "cache")
        plain, made = (store.load(result.outputs[name], Thresholds) for name in ("thresholds", "unify"))
        kept = {t.layer for t in made.trials if t.kept} - {NETWORK}
        moved = {name for name in plain.ranges if made.methods[name] == "unify"}
        assert bool(kept) == bool(moved) and all(
            made.ranges[n] == plain.ranges[n] for n in plain.ranges if n not in moved
        )
        assert (choice != "off" or not made.trials) and (choice != "on" or moved >= {"a", "b"})
        graph = store.load(result.outputs["quantize"], Quantized).graph
        if choice == "on":
            assert graph.values["a"].quant == graph.values["b"].quant
