"""Channels removed in a build: fewer cycles and bytes, exact; another share without inference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuflow import build
from npuflow.base.errors import NpuflowError
from npuflow.onnx.export import export_model
from tests.networks.floats import Net
from tests.stages.builds import made, products
from tests.stages.test_rounding import RECIPE, ran

PARTS = ("pruned.picked", "pruned.peaks", "pruned.grids", "pruned.columns", "pruned.layers")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layers so wide that half of their channels are fewer bytes and cycles."""
    path = tmp_path_factory.mktemp("pruned")
    net = Net(3, 1, 8, 16, 16)
    net.conv("stem", "x", 64, clip=(0.0, 6.0))
    net.conv("deep", "stem", 64, depthwise=True, clip=(0.0, 6.0))
    net.conv("point", "deep", 64, 1, bias=False)
    net.conv("last", "point", 8, clip=(0.0, float("inf")))
    (path / "net.onnx").write_bytes(export_model(net.graph("last")))
    np.savez(path / "calib.npz", x=np.concatenate([f["x"] for f in net.feeds(12, mean=0.3)]))
    (path / "net.toml").write_text(RECIPE.replace("held_out = 6", "held_out = 4"))
    return path / "net.toml"


def test_a_build_without_channels_is_smaller_exact_and_judged_by_the_whole_network(shared: Path) -> None:
    whole = products(shared, made(shared, until="simulate"), "simulate")[0]
    sets = ["prune.channels.share=0.5", "prune.channels.multiple=2"]
    result = made(shared, *sets, until="simulate")
    parsed, simulation = products(shared, result, "pruned", "simulate")
    assert not any(c.different for c in simulation.checks) and simulation.checks
    assert simulation.summary()["cycles"] < whole.summary()["cycles"]
    assert simulation.summary()["mb"] < 0.9 * whole.summary()["mb"]
    assert parsed.whole.type("stem").shape[1] == 64 and parsed.graph.type("stem").shape[1] == 32
    assert parsed.graph.type("point").shape[1] == 32
    trial = parsed.trials[-1]
    assert trial.after < trial.before


def test_another_share_or_method_runs_no_inference(shared: Path) -> None:
    made(shared, "prune.channels.share=0.5", "prune.channels.multiple=2", until="pruned")
    result = made(shared, "prune.channels={share=0.25,multiple=1,method='magnitude'}", until="pruned")
    assert ran(result, "pruned") == 1 and all(ran(result, name) == 0 for name in PARTS)


def test_masks_are_a_product_by_the_names_of_weights(shared: Path, tmp_path: Path) -> None:
    sets = ["prune.channels.share=0.5", "prune.channels.multiple=2"]
    done = build(shared, sets, out=tmp_path, cache=shared.parent / "cache")
    with np.load(done.products["channel_masks"]) as masks:
        assert masks["stem.w"].shape == (64, 8, 3, 3)
        assert masks["stem.w"].any(axis=(1, 2, 3)).sum() == 32
        assert masks["point.w"].any(axis=(1, 2, 3)).sum() == 32


@pytest.mark.slow
def test_channels_and_patterns_of_zeros_together(shared: Path) -> None:
    sets = ["prune={pattern='2:4', channels={share=0.5, multiple=4}}", "quantize.weights.bits=8"]
    result = made(shared, *sets, until="simulate")
    masks, simulation = products(shared, result, "masks", "simulate")
    assert not any(c.different for c in simulation.checks)
    assert {name: mask.shape for name, mask in masks.tensors.items()} == {"point.w:kept": (32, 32, 1, 1)}


def test_names_of_the_table_are_checked(shared: Path) -> None:
    with pytest.raises(NpuflowError, match="no layer is called"):
        made(shared, "prune.channels.layers=['/stemm']", until="pruned")
    with pytest.raises(NpuflowError, match="cannot be removed"):
        made(shared, "prune.channels.overrides=[{layers=['/last'],share=0.5}]", until="pruned")


@pytest.mark.slow
def test_both_and_another_order_give_each_product_once(shared: Path, tmp_path: Path) -> None:
    sets = ["prune={pattern='2:4', permute=true, channels={share=0.5, multiple=4}}", "round.method='nearest'"]
    done = build(shared, sets, out=tmp_path, cache=shared.parent / "cache")
    assert {"channel_masks", "masks"} <= done.products.keys()


@pytest.mark.slow
def test_channels_in_another_order_lose_less_and_the_program_is_exact(shared: Path) -> None:
    sets = ["prune={pattern='2:4', permute=true}", "quantize.weights.bits=8"]
    result = made(shared, *sets, until="simulate")
    ordered, masks, simulation = products(shared, result, "ordered", "masks", "simulate")
    assert not any(c.different for c in simulation.checks) and simulation.checks
    assert any(one.correction == "order" and one.kept for one in ordered.trials)
    sets[0] = "prune={pattern='2:4'}"
    (plain,) = products(shared, made(shared, *sets, until="masks"), "masks")
    lost, before = ({one.layer: one.after for one in some.trials} for some in (masks, plain))
    assert lost.keys() == before.keys() and sum(lost.values()) < sum(before.values())
    assert ran(result, "ordered") == 1 and "ordered" not in made(shared, until="parse").status


def test_channels_that_all_stay_are_told(shared: Path) -> None:
    """A share of a multiple that the layers do not have removes nothing."""
    result = made(shared, "prune.channels.share=0.05", until="pruned")
    (parsed,) = products(shared, result, "pruned")
    said = parsed.summary()["warning"]
    assert said.startswith("[prune.channels] removes no channel: ")
    assert "a share of 0.05 of 64 channels leaves no smaller multiple of 8" in said
    assert "a smaller multiple" in parsed.summary()["warning_hint"]
    (whole,) = products(shared, made(shared, until="parse"), "parse")
    assert "warning" not in whole.summary()
