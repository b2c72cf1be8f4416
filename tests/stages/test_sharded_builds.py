"""Calibration as a build: the same bytes for any executor, and only what is new is computed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuflow.flow.events import Running
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, build, open_cache, plan_recipe, run_plan
from npuflow.flow.run import Result
from npuflow.flow.stage import STAGES


def network(path: Path, last: float = 1.0) -> None:
    """Two convolutions; the second one's weights are multiplied."""
    rng = np.random.default_rng(0)
    first = rng.normal(0, 0.5, (4, 1, 3, 3)).astype(np.float32)
    second = (rng.normal(0, 0.5, (3, 4, 3, 3)) * last).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    info = helper.make_tensor_value_info
    held = [numpy_helper.from_array(first, "w1"), numpy_helper.from_array(second, "w2")]
    ends = [info("x", TensorProto.FLOAT, [1, 1, 12, 12])], [info("y", TensorProto.FLOAT, [1, 3, 12, 12])]
    graph = helper.make_graph(nodes, "g", *ends, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    network(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(0, 1, (90, 1, 12, 12)).astype(np.float32))
    text = (
        'target = "edge-4t"\n[model]\npath = "net.onnx"\n[data]\nsource = "x.npy"\ncount = 70\nchoose = '
        '"first"\n'
    )
    (tmp_path / "net.toml").write_text(text + '[calibrate]\nmethod = "kl"\n')
    return tmp_path / "net.toml"


def run(recipe: Path, cache: str, *sets: str, **more: object) -> Result:
    return build(
        recipe,
        sets,
        cache=recipe.parent / cache,
        out=recipe.parent / f"out-{cache}",
        until="thresholds",
        **more,
    )


def observed(result: Result) -> dict[str, str]:
    """What happened to every sample that ranges come from: some of all choose and verify."""
    return dict(result.status["statistics.items"])


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
def test_a_killed_worker_costs_its_shard(recipe: Path) -> None:
    """A worker dies by the kernel's hand while it observes: the build goes on
    without it, to the same bytes."""
    from distributed import Client, LocalCluster

    sets = "data.count=90", 'statistics.max_memory="1MB"'
    one = products(run(recipe, "one", *sets, jobs=1))
    # most samples are there already
    before = observed(run(recipe, "killed", *sets[1:], scheduler="threads", jobs=1))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster:
        with Client(cluster) as client:
            pids = list(client.run(os.getpid).values())
        victims = iter(pids[:1])

        def kill(event: object) -> None:
            if isinstance(event, Running) and event.stage == "statistics.items":
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)

        settings = Settings(
            cache=recipe.parent / "killed", until="thresholds", scheduler=cluster.scheduler_address
        )
        loaded = load(recipe, sets)
        plan, store = plan_recipe(loaded, STAGES, settings), open_cache(loaded, settings)
        result = run_plan(plan, loaded, store, settings, kill).check()
    assert next(victims, None) is None, "nothing was killed"
    assert products(result) == one
    after = observed(result)
    assert len(after) > len(before) > 30
    assert {after[name] for name in before.keys() & after.keys()} == {"hit"}
    assert set(after.values()) == {"hit", "ran"}


@pytest.mark.slow
def test_processes_with_stores_of_their_own_share_an_object_server(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines that have nothing but an S3 server between them: the second computes
    only what the first has not."""
    moto = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        s3fs.S3FileSystem(endpoint_url=endpoint).mkdir("sharded")
        remote = f"s3://sharded/cache?endpoint_url={endpoint}"
        first = apart(recipe, "first", "data.count=30", remote=remote)
        second = apart(recipe, "second", "data.count=45", remote=remote)
    finally:
        server.stop()
    _only_new_ones_ran(first["statistics.items"], second["statistics.items"])
    assert second["outputs"] == products(run(recipe, "alone", "data.count=45", jobs=1))


def apart(recipe: Path, cache: str, *sets: str, remote: str) -> dict[str, Any]:
    """A build in a process of its own."""
    code = (
        "import json, sys\nfrom pathlib import Path\n"
        "from npuflow.flow.recipe_build import build\n"
        "recipe, cache, remote, *sets = sys.argv[1:]\n"
        "places = dict(cache=Path(cache), out=Path(cache + '-out'), remote=remote)\n"
        "found = build(Path(recipe), sets, until='thresholds', jobs=1, **places)\n"
        "outputs = {stage: found.outputs[stage] for stage in ('statistics', 'thresholds')}\n"
        "items = dict(found.status['statistics.items'])\n"
        "print(json.dumps({'outputs': outputs, 'statistics.items': items}))\n"
    )
    command = [sys.executable, "-c", code, str(recipe), str(recipe.parent / cache), remote, *sets]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_second_store_behind_a_shared_folder_gives_the_same_bytes(recipe: Path) -> None:
    """Two machines that share nothing but a folder: the second takes what the first computed."""
    shared = (recipe.parent / "shared").as_uri()
    first = run(recipe, "here", remote=shared)
    second = run(recipe, "there", remote=shared)
    assert products(second) == products(first) and second.ran == 0


@pytest.mark.slow
def test_more_samples_compute_no_old_ones(recipe: Path) -> None:
    first = run(recipe, "cache")
    more = run(recipe, "cache", "data.count=80")
    _only_new_ones_ran(observed(first), observed(more))
    fresh = run(recipe, "fresh", "data.count=80")
    assert products(fresh) == products(more)


def _only_new_ones_ran(before: dict[str, str], after: dict[str, str]) -> None:
    assert set(before.values()) == {"ran"} and len(after) > len(before)
    assert {name for name, how in after.items() if how == "ran"} == after.keys() - before.keys()
    assert {name for name, how in after.items() if how == "hit"} == after.keys() & before.keys()


@pytest.mark.slow
def test_another_method_runs_no_network(recipe: Path) -> None:
    run(recipe, "cache")
    other = run(recipe, "cache", "calibrate.method=octav")
    ran = {stage for stage, items in other.status.items() if "ran" in items.values()}
    assert ran == {"checked", "thresholds"}  # `checked` reads the tables alone
