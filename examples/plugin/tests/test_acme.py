"""The published suites on every entry of the package, and a build that uses all of them."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest
from npuflow_acme.census import Counts
from npuflow_acme.tails import AcmeTails

import npuflow
from npuflow import lang
from npuflow.base.errors import ModelError
from npuflow.base.registry import Registry
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.quantise.config import Activations, Quantize
from npuflow.testing import calibrator
from npuflow.testing.op import OpSuite, check_infer, check_onnx, samples
from npuflow.testing.rule import RuleSuite
from npuflow.testing.stage import StageSuite
from npuflow.testing.target import TargetSuite

SYMMETRIC = Quantize(activations=Activations(symmetric=True))


def model(text: str) -> bytes:
    head = '<ir_version: 10, opset_import: ["": 21, "acme": 1]>\n'
    return bytes(onnx.parser.parse_model(head + text).SerializeToString())


PAIR = "net (float[1,4,6,6] a, float[1,4,6,6] b) => (float[1,4,6,6] y) { d = Sub(a, b) y = Abs(d) }"
APART = "net (float[1,4,6,6] a, float[4,1,1] b) => (float[1,4,6,6] y) { d = Sub(a, b) y = Abs(d) }"


class TestAbsDiff(OpSuite):
    name = "absdiff"
    schemes = (Quantize(), SYMMETRIC)


def test_the_host_operator() -> None:
    for sample in samples("centroid"):
        check_infer(sample)
        check_onnx(sample)


class TestFuseAbsdiff(RuleSuite):
    name = "fuse_absdiff"
    applies = (model(PAIR),)
    leaves = (model(APART),)


def test_the_threshold_method() -> None:
    calibrator.check(AcmeTails())


class TestAcme1(TargetSuite):
    path = Path(str(files("npuflow_acme") / "acme-1.toml"))


def recipe(folder: Path) -> Path:
    """Two images through AbsDiff and a heatmap through Centroid, all entries of the package named."""
    layers = [
        {"op": "absdiff", "in": ["a", "b"], "out": "d"},
        {"op": "sigmoid", "in": ["d"], "out": "s"},
        {"op": "centroid", "in": ["s"], "out": "y"},
    ]
    inputs = {"a": [1, 2, 8, 8], "b": [1, 2, 8, 8]}
    (folder / "net.acme").write_text(json.dumps({"inputs": inputs, "layers": layers, "outputs": ["y"]}))
    rng = np.random.default_rng(0)
    np.savez(
        folder / "data.npz", **{name: rng.standard_normal((6, 2, 8, 8)).astype(np.float32) for name in "ab"}
    )
    (folder / "net.toml").write_text(
        'target = "pkg:npuflow_acme/acme-1.toml"\n[model]\npath = "net.acme"\n[data]\nsource = "data.npz"\n'
        '[calibrate]\nmethod = "acme_tails"\n[calibrate.acme_tails]\nshare = 0.001\n[acme_census]\n'
    )
    return folder / "net.toml"


class TestAcmeCensus(StageSuite):
    stage = "acme_census"
    matters = ("acme_census.least=2",)
    irrelevant = ("data.count=4", "calibrate.acme_tails.share=0.01")

    @pytest.fixture(autouse=True)
    def written(self, tmp_path: Path) -> None:
        self.recipe = recipe(tmp_path)


def test_a_build_uses_all_of_it(tmp_path: Path) -> None:
    path = recipe(tmp_path)
    result = npuflow.build(path, cache=tmp_path / "cache")
    build = npuflow.load_build(path, cache=tmp_path / "cache")
    assert isinstance(counts := build.artifact("acme_census"), Counts)
    assert counts.counts == {"AbsDiff": 1, "Centroid": 1, "Sigmoid": 1}
    assert {row["method"] for row in build.thresholds if row["tensor"] in "abd"} == {"acme_tails"}
    assert build.artifact("simulate").summary()["different"] == 0
    runner = npuflow.Runner(result.products["program"])
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((1, 2, 8, 8)).astype(np.float32) for _ in range(2))
    heat = 1 / (1 + np.exp(-np.abs(a - b)))
    wanted = (heat.sum(2) * np.arange(8)).sum(2) / heat.sum((2, 3))
    assert np.abs(runner.run({"a": a, "b": b})["y"][..., 0] - wanted).max() < 0.1


def test_onnx_files_keep_the_operator(tmp_path: Path) -> None:
    """Stated by a node of its domain; with a function of the file beside it, too."""
    plain = model("net (float[1,4] a, float[1,4] b) => (float[1,4] y) { y = acme.AbsDiff(a, b) }")
    body = '<domain: "acme", opset_import: ["": 21]> AbsDiff (a, b) => (y) { d = Sub(a, b) y = Abs(d) }'
    held = onnx.load_model_from_string(plain)
    held.functions.append(onnx.parser.parse_function(body))
    for data in (plain, held.SerializeToString()):
        (node,) = FRONTENDS["onnx"]().read(bytes(data), Bindings()).graph.nodes
        assert node.op.onnx_type() == ("acme", "AbsDiff")
    unlike = model("net (float[1,4] a, float[1,5] b) => (float[1,4] y) { y = acme.AbsDiff(a, b) }")
    with pytest.raises(ModelError, match="differ"):
        FRONTENDS["onnx"]().read(unlike, Bindings())


def test_the_function_of_the_operator() -> None:
    a, b = (lang.input(name, (1, 4)) for name in "ab")
    (node,) = lang.graph(lang.absdiff(a, b)).nodes
    assert node.op.onnx_type() == ("acme", "AbsDiff")


def test_a_damaged_network_is_one_error() -> None:
    for text in (b"", b"{}", b'{"inputs": {"a": [1]}, "layers": [{"op": "sphere"}], "outputs": []}'):
        with pytest.raises(Exception) as caught:
            FRONTENDS["acme"]().read(text, Bindings())
        assert caught.value.message                                  # type: ignore[attr-defined]


def test_every_entry_is_announced() -> None:
    import_module("npuflow.cli")
    mine = {
        name: entry
        for registry in Registry.known.values()
        for name in registry.names()
        if (entry := registry.source(name).plugin) == "npuflow-acme"
    }
    assert set(mine) == {
        "absdiff", "acme", "acme_absdiff", "acme_census", "acme_tails", "centroid", "fuse_absdiff"
    }
