"""Recipes with `cores_mode`: the program of one core, the figures of all, and what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from npuflow.base.errors import ModelError, NpuflowError
from npuflow.checks.agreement import require_same
from npuflow.cli._app import application
from npuflow.hw.target import Compute, Target
from npuflow.program.container import Program, fingerprint, require_target
from tests.stages.builds import made, products

RECIPE = """[target]
extends = "edge-4t"
compute.cores = 4
dma.multicast = true
memory.local_bytes = 32768
[model]
path = "m.onnx"
[data]
source = "x.npy"
[calibrate]
method = "minmax"
"""
MANY = 'target.compute.cores_mode="data_parallel"'


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("cores"), np.random.default_rng(0)
    weights = {"w": rng.normal(size=(16, 3, 3, 3)), "v": rng.normal(size=(8, 16, 3, 3))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["y"], strides=[2, 2]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in
            (("x", [1, 3, 12, 12]), ("y", [1, 8, 5, 5]))]
    held = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "m", ends[:1], ends[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "m.onnx")
    np.save(folder / "x.npy", rng.normal(size=(8, 3, 12, 12)).astype(np.float32))
    (folder / "m.toml").write_text(RECIPE)
    return folder / "m.toml"


def program(recipe: Path, *sets: str) -> tuple[Program, dict]:
    compiled, simulated = products(recipe, made(recipe, *sets, until="simulate"), "codegen", "simulate")
    return compiled.program, simulated.totals["throughput"]


def test_data_parallel_runs_an_inference_on_each_core(recipe: Path) -> None:
    whole, alone = program(recipe)
    each, many = program(recipe, MANY)
    assert (len(whole.commands), len(each.commands)) == (4, 1)
    assert (alone["instances"], many["instances"], each.meta["instances"]) == (1, 4, 4)
    assert 1.5 < many["speed_up"] <= 4 and many["per_second"] > alone["per_second"]
    assert many["overlapped"] and many["latency"] >= alone["latency"] / 4


def test_profile_reports_throughput(recipe: Path, tmp_path: Path) -> None:
    program(recipe, MANY)[0].save(tmp_path / "m.npu")
    found = CliRunner().invoke(application(), ["profile", str(tmp_path / "m.npu")])
    assert "inferences a second" in found.output and "4 cores with an inference each" in found.output


def test_a_difference_is_an_error(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances that share their DATA disturb each other: hazards, or other numbers."""
    each, _ = program(recipe, MANY)
    assert require_same(each, [{"x": np.ones((1, 3, 12, 12), np.float32)}]) >= 8
    monkeypatch.setattr("npuflow.program.copies.Copies.stride", 0)
    with pytest.raises(NpuflowError):
        require_same(each, [{"x": np.full((1, 3, 12, 12), k, np.float32)} for k in range(4)])


def test_memory_for_all_instances_is_required(recipe: Path) -> None:
    each, _ = program(recipe, MANY)
    with pytest.raises(NpuflowError) as caught:
        room = len(each.const) + 3 * each.meta["data_bytes"]
        made(recipe, MANY, f"target.memory.external_bytes={room}", until="codegen")
    (fault,) = caught.value.faults()
    assert fault.code == "NF-TARGET-035" and "target.compute.cores" in fault.hint


def test_the_program_is_of_the_whole_machine(recipe: Path) -> None:
    """How the cores are used is no part of the fingerprint; their number is."""
    each, _ = program(recipe, MANY)
    target = replace(each.target, compute=replace(each.target.compute, cores=4))
    require_target(each, target, "server-32t")
    assert fingerprint(target) == fingerprint(
        replace(target, compute=replace(target.compute, cores_mode="data_parallel"))
    )
    with pytest.raises(ModelError):
        require_target(each, replace(target, compute=replace(target.compute, cores=2)), "half of it")


def test_one_core_has_one_instance() -> None:
    assert Compute(cores=1, cores_mode="data_parallel").instances == 1
    assert Target(compute=Compute(cores=6)).compute.of_one_inference.cores == 6
