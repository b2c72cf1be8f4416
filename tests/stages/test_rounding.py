"""Rounding as steps of a build: wired, cached, exact on the simulator; another method runs no inference."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from npuflow import load_recipe
from npuflow.base.errors import RecipeError
from npuflow.cli._show_step import step_text
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.run_state import Result
from npuflow.hw.target import Numerics
from npuflow.ir.sparsity import Pattern
from npuflow.onnx.export import export_model
from npuflow.quantise.config import Weights
from npuflow.rounders import ROUNDERS
from npuflow.stages.moments import LayerMoments
from npuflow.tune.improve import NETWORK
from npuflow.tune.rounding.rounded import LayerScheme
from npuflow.tune.rounding.rounded import rounded as rounded_by
from tests.networks import recipes
from tests.networks.floats import Net
from tests.stages.builds import made, products
from tests.tiers import often

OWN = ("moments.picked", "moments.grids", "moments.columns", "moments", "rounded.items", "rounded")
RECIPE = recipes.RECIPE.replace("edge-4t", "bm1684x") + """\
[calibrate]
method = "minmax"
[quantize]
weights = { bits = 4 }
[precision]
strategy = "none"
[moments]
held_out = 6
"""


def folder(path: Path, text: str = RECIPE, samples: int = 24) -> Path:
    net = Net(3, 1, 4, 8, 8)
    net.conv("stem", "x", 12, clip=(0.0, 6.0))
    net.conv("deep", "stem", 12, depthwise=True, clip=(0.0, 6.0))
    net.conv("point", "deep", 16, 1, bias=False)
    net.conv("last", "point", 6, clip=(0.0, float("inf")))
    (path / "net.onnx").write_bytes(export_model(net.graph("last")))
    mixed = net.rng.normal(size=(4, 4))
    plain = [feed["x"] for feed in net.feeds(samples, mean=0.3)]
    feeds = [np.einsum("ij,njhw->nihw", mixed, x).astype(np.float32) for x in plain]
    np.savez(path / "calib.npz", x=np.concatenate(feeds))
    (path / "net.toml").write_text(text)
    return path / "net.toml"


def ran(result: Result, stage: str) -> int:
    return sum(state == "ran" for state in result.status[stage].values())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe whose cache several tests share."""
    return folder(tmp_path_factory.mktemp("rounded.items"))


@pytest.mark.parametrize(
    ("method", "per"),
    often([*((name, "channel") for name in sorted(ROUNDERS.names())), ("coordinate", "tensor")], 4),
)
def test_every_method_is_exact_on_the_simulator(shared: Path, method: str, per: str) -> None:
    recipe = shared
    sets = [f"round.method='{method}'", f"quantize.weights={{bits=4, per='{per}'}}"]
    result = made(recipe, *sets, until="simulate")
    quantized, simulation = products(recipe, result, "correct", "simulate")
    assert simulation.checks and not any(c.different for c in simulation.checks)
    if method == "nearest":
        return
    (rounded,) = products(recipe, result, "rounded")
    assert len(rounded.weights) == 4 or method == "auto"
    graph = quantized.graph
    for name, one in rounded.weights.items():
        value = graph.values[f"{name}:q"]
        assert value.quant is not None and value.quant.scale == one.quant.scale
        np.testing.assert_array_equal(graph.consts[value.const], one.codes)


def test_an_exception_for_a_layer_rounds_that_layer_anew(shared: Path) -> None:
    sets = ("round.method='coordinate'", "quantize.weights.method='percentile'",
            "quantize.weights.percentile.percentile=99.5")
    made(shared, *sets, until="rounded")
    again = made(shared, *sets, 'quantize.overrides=[{layers=["point"],weight_bits=6}]', until="rounded")
    assert ran(again, "rounded.items") == 1 and ran(again, "rounded") == 1
    weights = products(shared, again, "rounded")[0].weights
    assert sorted(one.quant.bits for one in weights.values()) == [4, 4, 4, 6]
    other = made(shared, *sets[:2], "quantize.weights.percentile.percentile=99", until="rounded")
    assert ran(other, "rounded.items") == 4


def test_the_default_is_judged_and_helps(shared: Path) -> None:
    recipe = shared
    rounded, quantized = products(recipe, made(recipe), "rounded", "quantize")
    whole = rounded.trials[-1]
    assert whole.layer == NETWORK and whole.kept and whole.after < 0.7 * whole.before
    assert quantized.trials == rounded.trials
    bias = {one.bias for one in rounded.weights.values()}
    assert {"stem.b", "deep.b", "last.b"} >= bias - {""}


def test_another_method_or_width_runs_no_inference(tmp_path: Path) -> None:
    recipe = folder(tmp_path)
    first = made(recipe, "round.method='coordinate'")
    assert ran(first, "moments.columns") == 14 + 6         # of 24 samples: those that fit, those that choose
    assert ran(first, "moments") == ran(first, "rounded.items") == 4
    for change in ("round.method='gptq'", "round.method='adaround'", "quantize.weights.bits=3"):
        again = made(recipe, "round.method='coordinate'", change)
        assert (
            not ran(again, "moments.columns")
            and not ran(again, "moments")
            and ran(again, "rounded.items") == 4
        )
        assert {"moments.columns", "moments"} <= again.status.keys()


NAMED = sorted(name for name in ROUNDERS.names() if not ROUNDERS[name]().judged)


def test_every_named_method_on_known_moments_creates_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All methods that a recipe can name (adaround is one of them), called as the stage calls them."""
    recipe = folder(tmp_path)
    refs = made(recipe, "round.method='gptq'", until="moments").refs["moments"]
    store = open_cache(load_recipe(recipe), Settings(cache=tmp_path / "cache"))
    known = {name: store.load(ref, LayerMoments) for name, ref in refs.items.items()}
    assert len(known) == 4 and {"adaround", "coordinate", "gptq"} <= set(NAMED)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a session was created")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refused)
    for method in NAMED:
        for name, one in known.items():
            seen = one.matrix, one.layer.bias, one.fit, one.held
            scheme = LayerScheme(ROUNDERS[method](), Weights(bits=4), Numerics(weight_bits=(4, 8)))
            done = rounded_by(scheme, *seen)
            assert done.weight.codes.size == one.matrix.tensor.size, (method, name)


def test_one_sample_more_is_one_pass_more(tmp_path: Path) -> None:
    recipe = folder(tmp_path)
    made(recipe, "data.count=23")
    again = made(recipe)
    assert ran(again, "moments.columns") == 1 and ran(again, "moments") == 4


def test_wide_weights_need_no_moments(tmp_path: Path) -> None:
    recipe = folder(tmp_path, RECIPE.replace("[round]\nheld_out = 6\n", ""))
    eight = made(recipe, "quantize.weights.bits=8")
    assert not set(OWN) & eight.status.keys()
    four = made(recipe)
    assert set(OWN) <= four.status.keys()
    named = made(recipe, "round.method='gptq'", "quantize.weights.bits=8")
    (rounded,) = products(recipe, named, "rounded")
    assert {one.quant.bits for one in rounded.weights.values()} == {8}
    mixed = made(recipe, "quantize.overrides=[{layers=['stem', 'deep'], weight_bits=8}]")
    (rounded,) = products(recipe, mixed, "rounded")
    assert set(rounded.weights) <= {"point.w", "last.w"}


def test_noise_rounds_nothing(tmp_path: Path) -> None:
    text = RECIPE.replace('source = "calib.npz"', 'source = "random"\ncount = 12')
    recipe = folder(tmp_path, text)
    (rounded,) = products(recipe, made(recipe), "rounded")
    assert not rounded.weights


@pytest.mark.parametrize("method", often(["gptq", "coordinate", "adaround"], 3))
def test_moments_that_are_too_large_are_taken_by_blocks_of_input_channels(shared: Path, method: str) -> None:
    sets = [f"round.method='{method}'", "moments.most_terms=40"]
    result = made(shared, *sets, until="simulate")
    rounded, simulation = products(shared, result, "rounded", "simulate")
    assert set(rounded.weights) == {"stem.w", "deep.w", "point.w", "last.w"}
    assert simulation.checks and not any(c.different for c in simulation.checks)
    cut, whole = (
        next(t for t in products(shared, one, "rounded")[0].trials if t.layer == "/last")
        for one in (result, made(shared, f"round.method='{method}'", until="rounded"))
    )
    assert cut.after < 0.9 * cut.before and whole.after < cut.after      # less is known, still better
    log = step_text("moments.grids", shared, sets, shared.parent / "cache", log=True)
    assert "/last: moments in 4 blocks of input channels: its products have more terms than [moments]" in log


def test_a_method_and_a_mode_for_some_layers(shared: Path) -> None:
    """The others are as without: what a layer has is its own."""
    layers = "round.layers=[{layers=['/point'], method='nearest'}, {layers=['/last'], mode='sequential'}]"
    sets = ["round.method='gptq'", "round.mode='parallel'"]
    result = made(shared, *sets, layers, until="simulate")
    at_once, in_turn, simulation = products(shared, result, "rounded", "sequential", "simulate")
    plain, turned = (
        products(shared, made(shared, sets[0], f"round.mode='{mode}'", until=stage), stage)[0]
        for mode, stage in (("parallel", "rounded"), ("sequential", "sequential"))
    )
    assert set(at_once.weights) == {"stem.w", "deep.w", "last.w"}
    for name in ("stem.w", "deep.w"):
        np.testing.assert_array_equal(in_turn.weights[name].codes, plain.weights[name].codes)
    assert (in_turn.weights["last.w"].codes != plain.weights["last.w"].codes).any()
    assert turned.weights.keys() == plain.weights.keys()
    assert simulation.checks and not any(c.different for c in simulation.checks)
    with pytest.raises(RecipeError, match='no layer is called "poin"'):
        made(shared, "round.layers=[{layers=['poin'], method='gptq'}]")


def test_one_layer_after_the_other(shared: Path) -> None:
    """Each layer sees what the rounded ones before it make: the first as at once,
    the others not; exact as ever."""
    sets = ["round.method='gptq'", "round.mode='sequential'"]
    result = made(shared, *sets, until="simulate")
    at_once, in_turn, quantized, simulation = products(
        shared, result, "rounded", "sequential", "correct", "simulate"
    )
    assert set(in_turn.weights) == set(at_once.weights) == {"stem.w", "deep.w", "point.w", "last.w"}
    same = {
        name for name in in_turn.weights if (in_turn.weights[name].codes == at_once.weights[name].codes).all()
    }
    assert "stem.w" in same and len(same) < 4
    assert simulation.checks and not any(c.different for c in simulation.checks)
    value = quantized.graph.values["last.w:q"]
    np.testing.assert_array_equal(quantized.graph.consts[value.const], in_turn.weights["last.w"].codes)
    judged = made(shared, "round.mode='sequential'")
    (chosen,) = products(shared, judged, "sequential")
    trial = next(t for t in chosen.trials if t.correction == "sequential")
    assert trial.kept == (trial.after < trial.before)


@pytest.mark.slow
def test_pruned_layers_have_zeros_in_the_program(tmp_path: Path) -> None:
    recipe = folder(tmp_path)
    sets = ["prune.pattern='2:4'", "quantize.weights.bits=8", "target.numerics.sparsity='2:4'"]
    for more in ([], ["quantize.weights.bits=4"], ["round.mode='sequential'"]):
        result = made(recipe, *sets, *more, until="simulate")
        quantized, simulation, masks = products(recipe, result, "correct", "simulate", "masks")
        assert simulation.checks and not any(c.different for c in simulation.checks)
        assert list(masks.layers) == ["point.w"]            # the others look through windows
        graph = quantized.graph
        kind = graph.values["point.w:q"]
        assert kind.quant.sparse == (2, 4)
        codes = graph.consts[kind.const]
        assert Pattern(2, 4).holds(codes.reshape(16, 12)) and np.count_nonzero(codes) > 80
        with np.load(result.products["masks"]) as held:
            np.testing.assert_array_equal(held["point.w"] | (codes == 0), True)
            assert held["point.w"].dtype == bool and held["point.w"].mean() == 0.5


def test_a_refit_makes_up_for_zeros(tmp_path: Path) -> None:
    recipe = folder(tmp_path)
    for sets, factor in (((), 0.9), (("prune.refit=false",), 1.0)):
        (masks,) = products(recipe, made(recipe, "prune.pattern='2:4'", *sets, until="masks"), "masks")
        (trial,) = masks.trials
        assert trial.after <= factor * trial.before


def test_a_pattern_that_is_none_and_layers_that_are_not_there(tmp_path: Path) -> None:
    recipe = folder(tmp_path)
    with pytest.raises(RecipeError, match='"2/4" is no pattern'):
        made(recipe, "prune.pattern='2/4'")
    with pytest.raises(RecipeError, match="nowhere"):
        made(recipe, "prune.pattern='2:4'", "prune.layers=['nowhere']")


@pytest.mark.slow
def test_blocks_descend_and_stay_exact(tmp_path: Path) -> None:
    """The codes of the build are those of the stage, which are kept where held-out samples say so."""
    sets = ["round.method='gptq'", "round.mode='blocks'", "quantize.weights={bits=3, per='tensor'}"]
    few = ["correct.held_out=6", "precision.held_out=6"]                # the same six judge everything
    recipe = folder(tmp_path, samples=36)
    result = made(recipe, *sets, *few, until="simulate")
    in_turn, refined, quantized, simulation = products(
        recipe, result, "sequential", "blocks", "correct", "simulate"
    )
    whole = refined.trials[-1]
    assert (whole.correction, whole.layer) == ("blocks", NETWORK) and whole.kept
    assert whole.after < whole.before
    blocks = [one for one in refined.trials if one.correction == "block"]
    assert {one.kept for one in blocks} == {True, False}   # 20 samples: the first block's gain does not hold
    assert any((one.codes != in_turn.weights[name].codes).any() for name, one in refined.weights.items())
    assert simulation.checks and not any(c.different for c in simulation.checks)
    for name, one in refined.weights.items():
        value = quantized.graph.values[f"{name}:q"]
        np.testing.assert_array_equal(quantized.graph.consts[value.const], one.codes)
    plain = made(recipe, "round.method='gptq'", until="rounded")
    assert "blocks" not in plain.status and "sequential" not in plain.status


def test_distilled_weights_are_exact_and_kept_where_held_out_samples_say_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    sets = ["round.method='gptq'", "round.mode='distilled'", "quantize.weights={bits=3, per='tensor'}"]
    few = ["correct.held_out=6", "precision.held_out=6", "distillation={steps=60, batch=6, rate=0.01}"]
    recipe = folder(tmp_path, samples=72)
    result = made(recipe, *sets, *few, until="simulate")
    in_turn, taught, quantized, simulation = products(
        recipe, result, "sequential", "distilled", "correct", "simulate"
    )
    whole = taught.trials[-1]
    assert (whole.correction, whole.layer) == ("distilled", NETWORK)
    assert whole.kept and whole.after < whole.before
    assert any(one.quant.scale != in_turn.weights[name].quant.scale for name, one in taught.weights.items())
    assert simulation.checks and not any(c.different for c in simulation.checks)
    for name, one in taught.weights.items():
        value = quantized.graph.values[f"{name}:q"]
        np.testing.assert_array_equal(quantized.graph.consts[value.const], one.codes)


def test_distilling_zeros_keeps_them(shared: Path) -> None:
    pytest.importorskip("torch")
    sets = ["prune={pattern='2:4', permute=true}", "round.mode='distilled'", "quantize.weights.bits=8"]
    result = made(shared, *sets, "distillation.steps=5", until="correct")
    quantized, taught = products(shared, result, "correct", "distilled")
    assert len(taught.weights) == 4           # those that no method has rounded are trained as well
    (point,) = (node for node in quantized.graph.nodes if node.name == "/point")
    assert Pattern(2, 4).holds(quantized.graph.const(point.inputs[1]).reshape(16, 12))


def test_without_torch_the_error_says_how_to_get_it(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "npuflow.tune.rounding.distilled", raising=False)
    with pytest.raises(RecipeError, match=r"needs the package torch[\s\S]*npuflow\[torch\]"):
        made(shared, "round.mode='distilled'", "distillation.seed=7", until="distilled")
