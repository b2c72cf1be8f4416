"""Recipes with [model] shapes: one artifact of shared weights, and what a change of one shape runs."""

from __future__ import annotations

import http.client
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from typer.testing import CliRunner

from npuflow import Runner
from npuflow.apps.serve.served import Served
from npuflow.base.errors import DataError, ModelError, RecipeError
from npuflow.cli._app import application
from npuflow.flow.recipe import load
from npuflow.flow.recipe_build import Settings, open_cache, plan_recipe, run_plan
from npuflow.flow.run_state import Result
from npuflow.flow.stage import STAGES
from npuflow.ort import InferenceSession
from npuflow.program.packing.package import load_package
from npuflow.stages.package import PackedShapes
from npuflow.stages.quantize import Quantized
from npuflow.stages.shape_programs import ShapedProgram
from npuflow.testing.stage import built, check_deterministic, check_products
from tests.serve.served import running

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,T,16] x) => (float[1,T,8] y) {
    a = MatMul(x, first) b = Add(a, bias) c = Relu(b) d = Softmax<axis=1>(c) e = Mul(c, d)
    y = MatMul(e, last) }"""
RECIPE = """target = "%s"
[model]
path = "net.onnx"
shapes = [%s]
[data]
source = "x.npz"
"""
SHAPES = "{ T = 12 }, { T = 20 }"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The project with both shapes built, for tests that change nothing there."""
    folder = written(tmp_path_factory.mktemp("shapes"))
    return folder, ran(folder, SHAPES)[0]


def written(folder: Path) -> Path:
    proto, rng = parser.parse_model(TEXT), np.random.default_rng(0)
    weights = {"first": (16, 24), "bias": (24,), "last": (24, 8)}
    for name, shape in weights.items():
        array = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save_model(proto, str(folder / "net.onnx"))
    np.savez(folder / "x.npz", x=rng.normal(size=(24, 12, 16)).astype(np.float32))
    return folder


def recipe(project: Path, shapes: str = SHAPES, target: str = "edge-4t") -> Path:
    path = project / "net.toml"
    path.write_text(RECIPE % (target, shapes))
    return path


def ran(project: Path, shapes: str, *sets: str) -> tuple[Result, dict[str, int]]:
    """A build, and how many tasks of each step ran."""
    settings = Settings(cache=project / "cache")
    loaded = load(recipe(project, shapes), list(sets))
    plan, store, count = plan_recipe(loaded, STAGES, settings), open_cache(loaded, settings), dict[str, int]()

    def seen(event: object) -> None:
        if getattr(event, "status", None) == "ran":
            count[event.stage] = count.get(event.stage, 0) + 1  # type: ignore[attr-defined]

    return run_plan(plan, loaded, store, settings, seen).check(), count


def test_one_file_runs_every_shape(made: tuple[Path, Result]) -> None:
    project, done = made
    store = open_cache(load(project / "net.toml"), Settings(cache=project / "cache"))
    packed = store.load(done.refs["package"].digest, PackedShapes)
    file = project / "out" / "net" / "model.npu"
    assert list(load_package(file).networks) == ["T=12", "T=20"] and done.products["program"] == file
    assert packed.summary()["bytes"] == file.stat().st_size < packed.apart
    (one,) = (store.load(ref.digest, ShapedProgram) for ref in done.refs["shape_programs"].items.values())
    assert one.simulation.summary()["different"] == 0 and one.simulation.summary()["hazards"] == 0
    runner, commands = Runner(file), Runner(file, exact="simulator")
    session = InferenceSession(str(file))
    for size in (12, 20):
        x = np.random.default_rng(size).normal(size=(1, size, 16)).astype(np.float32)
        y = runner.run({"x": x})["y"]
        assert y.shape == (1, size, 8)
        np.testing.assert_array_equal(commands.run({"x": x})["y"], y)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], y)
    with pytest.raises(DataError, match="1x13x16") as fault:
        runner.run({"x": np.zeros((1, 13, 16), np.float32)})
    assert "1x12x16" in str(fault.value.because) and "1x20x16" in str(fault.value.because)


def test_the_server_takes_every_shape(made: tuple[Path, Result]) -> None:
    """Alone, and samples of both shapes at the same time: a batch holds samples of one shape."""
    runner = Runner(made[0] / "out" / "net" / "model.npu", batch=4, linger=0.05)
    rng = np.random.default_rng(3)
    given = [rng.normal(size=(1 + k % 3, 12 + 8 * (k % 2), 16)).astype(np.float32) for k in range(8)]
    wanted = [
        np.concatenate([y["y"] for y in runner.run_many([{"x": row[None]} for row in x])]) for x in given
    ]
    with running(Served("net", runner)) as server, ThreadPoolExecutor(8) as pool:

        def asked(x: np.ndarray) -> tuple[int, dict[str, Any]]:
            tensor = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
            connection = http.client.HTTPConnection(server.place, timeout=30)
            connection.request("POST", "/v2/models/net/infer", json.dumps({"inputs": [tensor]}))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        for (status, found), y in zip(pool.map(asked, given), wanted, strict=True):
            assert status == 200, found
            (output,) = found["outputs"]
            assert output["shape"] == list(y.shape)
            np.testing.assert_array_equal(np.float32(output["data"]).reshape(y.shape), y)
        status, refused = asked(np.zeros((1, 13, 16), np.float32))
        assert status == 400 and "13" in refused["error"]


def test_a_further_shape_runs_its_own_tasks_alone(made: tuple[Path, Result], tmp_path: Path) -> None:
    project = shutil.copytree(made[0], tmp_path / "project")
    assert ran(project, f"{SHAPES}, {{ T = 28 }}")[1] == {"shapes": 1, "shape_programs": 1, "package": 1}
    assert ran(project, "{ T = 12 }, { T = 32 }, { T = 28 }")[1] == \
        {"shapes": 1, "shape_programs": 1, "package": 1}
    assert ran(project, "{ T = 12 }, { T = 28 }")[1] == {"package": 1}
    assert ran(project, "{ T = 12 }, { T = 28 }")[1] == {}


def test_weights_have_the_codes_of_the_first_shape(project: Path) -> None:
    """Also where calibration changes weights and biases: a target of one scale for each weight tensor."""
    for target in ("edge-4t", "edge-pow2"):
        path = recipe(project, SHAPES, target)
        one = built(path, project / "cache", "shapes")
        (network,), (first,) = (one.products(name).values() for name in ("shapes", "correct"))
        assert isinstance(network, Quantized) and isinstance(first, Quantized)
        graphs = first.graph, network.graph
        weights = [
            {v: g.values[v].const for n in g.nodes for v in n.inputs[1:] if g.const(v) is not None}
            for g in graphs
        ]
        assert weights[0] == weights[1] and len(weights[0]) >= 3


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ("{ T = 12 }, { T = 12 }", "T=12 stands twice"),
        ("{ T = 12 }, { T = 0 }", "T=0 cannot be built"),
        ("{ T = 12 }, { x = [1, 8, 16] }", "other names than the first"),
    ],
)
def test_what_a_recipe_cannot_ask_for(project: Path, shapes: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        ran(project, shapes)


def test_a_shape_that_the_model_cannot_have(project: Path) -> None:
    with pytest.raises(ModelError, match=r"x=1x20x9: .*cannot have the shape \[1, 20, 9\]") as fault:
        ran(project, "{ x = [1, 12, 16] }, { x = [1, 20, 9] }")
    assert fault.value.where.key == "model.shapes"


@pytest.mark.slow
def test_the_stages_are_deterministic_and_their_products_are_whole(project: Path) -> None:
    one, other = (built(recipe(project), project / name, "package") for name in ("one", "other"))
    for stage in ("shapes", "shape_programs", "package"):
        check_deterministic(one, other, stage)
        check_products(one, stage)


def test_verbs_choose_by_the_shape(made: tuple[Path, Result], tmp_path: Path) -> None:
    project = shutil.copytree(made[0], tmp_path / "project")
    file, rng = project / "out" / "net" / "model.npu", np.random.default_rng(3)
    for size in (12, 20):
        np.savez(project / f"in{size}.npz", x=rng.normal(size=(1, size, 16)).astype(np.float32))
        inputs, outputs = str(project / f"in{size}.npz"), str(project / "out.npz")
        said = CliRunner().invoke(application(), ["run", f"{file}#T={size}", inputs, "-o", outputs])
        assert said.exit_code == 0, said.output
        said = CliRunner().invoke(application(), ["compare", str(file), outputs, "-i", inputs])
        assert said.exit_code == 0 and "1 of 1 tensors agree" in said.output, said.output
    said = CliRunner().invoke(application(), ["profile", str(file), "--json"])
    rows = [json.loads(line) for line in said.output.splitlines()]
    assert [row["name"] for row in rows] == ["T=12", "T=20"] and 0 < rows[0]["cycles"] < rows[1]["cycles"]
    (project / "net.toml").write_text(
        (project / "net.toml").read_text() + '[evaluate]\nsource = "x.npz"\nmetric = "sqnr"\n'
    )
    words = ["eval", str(project / "net.toml"), "--program", str(file), "--cache", str(project / "cache")]
    said = CliRunner().invoke(application(), words)
    assert said.exit_code == 0 and "24 samples" in said.output, said.output
