"""Calibration as a build: the same bytes for any executor, and only what is new is computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuflow.flow.recipe_build import build
from npuflow.flow.run import Result


def network(path: Path, last: float = 1.0) -> None:
    """Two convolutions; the second one's weights are multiplied."""
    rng = np.random.default_rng(0)
    first = rng.normal(0, 0.5, (4, 1, 3, 3)).astype(np.float32)
    second = (rng.normal(0, 0.5, (3, 4, 3, 3)) * last).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    held = [numpy_helper.from_array(first, "w1"), numpy_helper.from_array(second, "w2")]
    ends = [info("x", TensorProto.FLOAT, [1, 1, 12, 12])], [info("y", TensorProto.FLOAT, [1, 3, 12, 12])]
    graph = helper.make_graph(nodes, "g", *ends, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    network(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(0, 1, (90, 1, 12, 12)).astype(np.float32))
    text = 'target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "x.npy"\ncount = 70\nchoose = "first"\n'
    (tmp_path / "net.toml").write_text(text + '[calibrate]\nmethod = "kl"\n')
    return tmp_path / "net.toml"


def run(recipe: Path, cache: str, *sets: str, **more: object) -> Result:
    return build(recipe, sets, cache=recipe.parent / cache, out=recipe.parent / f"out-{cache}", until="thresholds", **more)


def products(result: Result) -> dict[str, str]:
    return {stage: result.outputs[stage] for stage in ("statistics", "thresholds")}


@pytest.mark.slow
def test_threads_processes_and_a_cluster_give_the_same_bytes(recipe: Path) -> None:
    from distributed import LocalCluster

    one = products(run(recipe, "one", jobs=1))
    assert products(run(recipe, "threads", scheduler="threads", jobs=3)) == one
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster:
        assert products(run(recipe, "cluster", scheduler=cluster.scheduler_address)) == one


@pytest.mark.slow
def test_a_second_store_behind_a_shared_folder_gives_the_same_bytes(recipe: Path) -> None:
    """Two machines that share nothing but a folder: the second takes what the first computed."""
    shared = (recipe.parent / "shared").as_uri()
    first = run(recipe, "here", remote=shared)
    second = run(recipe, "there", remote=shared)
    assert products(second) == products(first) and second.ran == 0


@pytest.mark.slow
def test_more_samples_compute_no_old_ones(recipe: Path) -> None:
    run(recipe, "cache")
    more = run(recipe, "cache", "data.count=80")
    counts = list(more.status["observed"].values())
    assert counts.count("ran") == 10 and counts.count("hit") == 70
    fresh = run(recipe, "fresh", "data.count=80")
    assert products(fresh) == products(more)


@pytest.mark.slow
def test_another_method_runs_no_network(recipe: Path) -> None:
    run(recipe, "cache")
    other = run(recipe, "cache", "calibrate.method=octav")
    assert {stage for stage, items in other.status.items() if "ran" in items.values()} == {"thresholds"}
