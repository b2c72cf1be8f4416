"""The fashion example and a LeNet on every shipped target, from recipe to simulated
program: bit for bit, without hazards.

A few targets by default, the others in turn with -m slow, and whatever is left with -m campaign; they share
one cache, so that statistics are taken once.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from npuflow import build
from npuflow import targets as shipped
from npuflow.cli._app import application
from npuflow.program.container import load_program
from npuflow.report.profile import profile
from npuflow.report.profile.schedule import compare
from npuflow.testing.target import load
from tests.tiers import often, tiered

TARGETS = sorted(p.stem for p in Path(str(shipped.__file__)).parent.glob("*.toml"))
FLOATS = {"gc200": "fp16"}
OFTEN = ("cv18xx", "dpuczdx8g-b4096", "zhouyi-x2")
OTHERS = [target for target in TARGETS if target not in OFTEN]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def check(recipe: Path, target: str, place: Path, *sets: str) -> None:
    """The simulate stage fails on any tensor that differs and on any hazard. A target without integers
    computes in its floats."""
    if not load(Path(str(shipped.__file__)).parent / f"{target}.toml").numerics.integers:
        sets = (*sets, f"quantize.mode={FLOATS[target]}")
    result = build(
        recipe, [f"target={target}", *sets], until="simulate", cache=place / "cache", out=place / target
    )
    assert result.ok and result.refs["simulate"]
    program = load_program(result.products["program"])
    found = profile(program)
    assert compare(found) and sum(step["cycles"] for step in found.path) == pytest.approx(found.cycles)
    assert sum(n["macs"] for n in program.meta["nodes"]) > 400_000


@pytest.mark.parametrize("target", [*tiered(OFTEN, OFTEN), *tiered(OTHERS, OTHERS[::2])])
def test_fashion(target: str, place: Path) -> None:
    check(ROOT / "recipes" / "fashion.toml", target, place, "data.count=16", "simulate.samples=1")


@pytest.mark.parametrize("target", [*often(OFTEN, len(OFTEN)), *tiered(OTHERS, OTHERS[1::2])])
def test_lenet(target: str, place: Path) -> None:
    check(lenet(place), target, place, "simulate.samples=1")


def lenet(place: Path) -> Path:
    """LeNet-5 with seeded random weights, and noise for data."""
    from onnx import TensorProto, helper, numpy_helper, save

    recipe, rng = place / "lenet.toml", np.random.default_rng(0)
    if recipe.exists():
        return recipe
    sizes = {"c1": (6, 1, 5, 5), "c2": (16, 6, 5, 5), "f1": (120, 400), "f2": (84, 120), "f3": (10, 84)}
    weights = {n: (rng.normal(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for n, s in sizes.items()}
    weights |= {f"{n}b": (rng.normal(size=s[0]) * 0.1).astype(np.float32) for n, s in sizes.items()}
    conv = {"kernel_shape": [5, 5]}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "c1", "c1b"], ["a1"], "conv1", pads=[2] * 4, **conv),
        helper.make_node("Tanh", ["a1"], ["t1"], "tanh1"),
        helper.make_node("AveragePool", ["t1"], ["p1"], "pool1", **pool),
        helper.make_node("Conv", ["p1", "c2", "c2b"], ["a2"], "conv2", **conv),
        helper.make_node("Relu", ["a2"], ["t2"], "relu2"),
        helper.make_node("MaxPool", ["t2"], ["p2"], "pool2", **pool),
        helper.make_node("Flatten", ["p2"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "f1", "f1b"], ["g1"], "fc1", transB=1),
        helper.make_node("Relu", ["g1"], ["h1"], "relu3"),
        helper.make_node("Gemm", ["h1", "f2", "f2b"], ["g2"], "fc2", transB=1),
        helper.make_node("Relu", ["g2"], ["h2"], "relu4"),
        helper.make_node("Gemm", ["h2", "f3", "f3b"], ["y"], "fc3", transB=1),
    ]
    kinds = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, 1, 28, 28]), ("y", [1, 10]))
    ]
    graph = helper.make_graph(
        nodes, "lenet", kinds[:1], kinds[1:], [numpy_helper.from_array(w, n) for n, w in weights.items()]
    )
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        str(place / "lenet.onnx"),
    )
    np.savez(place / "noise.npz", x=rng.normal(size=(16, 1, 28, 28)).astype(np.float32))
    model, data = '[model]\npath = "lenet.onnx"\n', '[data]\nsource = "noise.npz"\n'
    recipe.write_text(f'target = "edge-4t"\n{model}{data}[calibrate]\nmethod = "minmax"\n')
    return recipe


@pytest.mark.slow
def test_a_sweep_over_targets_shares_its_first_steps(place: Path) -> None:
    """With one target built, the plan for another runs nothing before the target is asked."""
    recipe = lenet(place)
    first = build(recipe, ["target=zhouyi-z2"], until="simulate", cache=place / "cache", out=place / "s")
    words = [
        "plan",
        recipe,
        "--set",
        "target=linq-128",
        "--until",
        "simulate",
        "--cache",
        place / "cache",
        "--json",
    ]
    planned = CliRunner().invoke(application("plan"), [*map(str, words)])
    assert planned.exit_code == 0, planned.output
    lines = [json.loads(line) for line in planned.output.splitlines()]
    status = {line["stage"]: line["status"] for line in lines if line["event"] == "step"}
    assert {status[s] for s in ("model", "parse", "samples")} == {"hit"}, status
    assert "hit" not in {status[s] for s in ("placement", "tiling", "codegen", "simulate")}, status
    second = build(recipe, ["target=linq-128"], until="simulate", cache=place / "cache", out=place / "s")
    assert second.outputs["statistics"] == first.outputs["statistics"]
    assert set(second.status["statistics"].values()) == {"hit"}          # nothing was measured again
