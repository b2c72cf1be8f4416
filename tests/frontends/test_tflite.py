"""TFLite files: the float network, stated codes, layouts, refusals and damage, judged by
LiteRT's reference kernels."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

pytest.importorskip("tflite", reason="npuflow[tflite] is not installed")
pytest.importorskip("ai_edge_litert", reason="the reference kernels (ai-edge-litert) are not installed")

from npuflow import build, load_recipe
from npuflow.base.errors import ModelError, NpuflowError
from npuflow.base.isolated import isolated
from npuflow.cli import main
from npuflow.cli._model import ports
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.frontends import FRONTENDS, Bindings
from npuflow.frontends.tflite.convert import opened
from npuflow.onnx.export import export_model
from npuflow.rewrite.rewrite import rewrite
from npuflow.stages.rewrite_check import RewriteCheck
from tests.frontends.test_damaged import damaged
from tests.frontends.tflite_models import MOBILE, Net, mobile, per_layer, reference


def outputs(data: bytes, feeds: list[np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime makes of the graph as it was read."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    graph = FRONTENDS["tflite"]().read(data, Bindings()).graph
    session = onnxruntime.InferenceSession(export_model(graph), options)
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], feeds, strict=True)))


def test_a_float_network_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    data = mobile(rng)
    x = rng.standard_normal((1, 9, 9, 3)).astype(np.float32)
    (got,), (wanted,) = outputs(data, [x]), reference(data, [x])
    assert np.abs(got - wanted).max() <= 1e-6


def test_layouts_cancel_and_tensors_keep_their_names() -> None:
    """One transposition at the input; what the pooling leaves of the image needs none.
    Origins are names of tensors."""
    graph = rewrite(FRONTENDS["tflite"]().read(mobile(np.random.default_rng(0)), Bindings()).graph).graph
    assert [type(n.op).__name__ for n in graph.nodes].count("Transpose") == 1
    assert {"c", "d", "s", "p", "f", "l", "y"} <= {o for n in graph.nodes for o in n.origin}
    assert graph.inputs == ("x",) and graph.type("x").shape == (1, 9, 9, 3)


def test_codes_are_stated_as_the_file_has_them() -> None:
    data = mobile(np.random.default_rng(0), MOBILE)
    reading = FRONTENDS["tflite"]().read(data, Bindings())
    for name, (scale, zero) in MOBILE.items():
        stated = reading.stated[name]
        assert (stated.bits, stated.signed, stated.zero_point) == (8, True, (zero,)), name
        assert np.float32(stated.scale[0]) == np.float32(scale), name
    weights = [q for q in reading.stated.values() if q.axis is not None]
    assert sorted(len(q.scale) for q in weights) == [6, 8, 8]


def test_every_layer_gives_the_codes_of_the_reference_kernels() -> None:
    """Fed with the reference's codes, on a target with 31-bit multipliers that
    rounds halves away from zero."""
    shares = per_layer(mobile(np.random.default_rng(0), MOBILE), 8)
    assert {"Conv", "Add", "AveragePool", "Gemm", "Softmax"} <= set(shares)
    for kind, (equal, worst) in shares.items():
        assert worst <= 1, kind
        assert equal >= 0.995 or kind in ("AveragePool", "Softmax"), (kind, equal)


def test_the_recipe_builds_a_tflite_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    (tmp_path / "net.tflite").write_bytes(mobile(rng))
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((4, 9, 9, 3)).astype(np.float32))
    (tmp_path / "net.toml").write_text(
        'target = "linq-128"\n[model]\npath = "net.tflite"\n[data]\nsource = "data.npz"\n'
    )
    made = build(tmp_path / "net.toml", cache=tmp_path / "cache", out=tmp_path / "out", until="rewrite_check")
    store = open_cache(load_recipe(tmp_path / "net.toml"), Settings(cache=tmp_path / "cache"))
    check = store.load(made.outputs["rewrite_check"], RewriteCheck)
    assert isinstance(check, RewriteCheck)
    assert check.samples == 2 and not any(e.moved for e in check.errors)


def test_inspect_and_new_read_a_tflite_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(mobile(np.random.default_rng(0), MOBILE))
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == {"x": "float32[1, 9, 9, 3]"}
    found = ports(path)
    assert [str(p) for p in found.inputs] == ["float[1, 9, 9, 3]"]


def test_the_recipe_s_bindings_hold() -> None:
    """Cut points, an input held constant, sizes, and names that the file lacks."""
    data = mobile(np.random.default_rng(0), MOBILE)
    cut = FRONTENDS["tflite"]().read(data, Bindings(outputs=("s",), inputs={"x": (1, 9, 9, 3)})).graph
    assert cut.outputs == ("s",) and cut.inputs == ("x",) and "l" not in cut.values
    for wrong in (
        Bindings(outputs=("z",)),
        Bindings(inputs={"z": (1,)}),
        Bindings(inputs={"x": (1, 8, 9, 3)}),
        Bindings(constants={"x": 1.0}),
    ):
        with pytest.raises(ModelError) as caught:
            FRONTENDS["tflite"]().read(data, wrong)
        assert caught.value.code in ("NF-MODEL-010", "NF-MODEL-019", "NF-MODEL-008")


def test_an_input_held_constant_folds() -> None:
    net = Net()
    for name in ("x", "t", "a", "y"):
        net.tensor(name, (1, 4))
    net.op("EXP", ["t"], ["a"])
    net.op("ADD", ["x", "a"], ["y"], "AddOptions", fusedActivationFunction=0)
    graph = FRONTENDS["tflite"]().read(net.done(["x", "t"], ["y"]), Bindings(constants={"t": 0.0})).graph
    assert graph.inputs == ("x",) and [type(n.op).__name__ for n in graph.nodes] == ["Add"]


def test_rounding_that_is_no_single_code_stays() -> None:
    """One float value rounded in two ways, and an input rounded to an output: QuantizeLinear and back."""
    x = np.random.default_rng(0).standard_normal((1, 8)).astype(np.float32)
    net = Net()
    net.tensor("x", (1, 8)), net.tensor("m", (1, 8))
    net.op("NEG", ["x"], ["m"])
    for name, scale in (("q", 0.05), ("r", 0.13)):
        net.tensor(name, (1, 8), "int8", ([scale], [3], 0)), net.tensor(f"{name}f", (1, 8))
        net.op("QUANTIZE", ["m"], [name], "QuantizeOptions", version=2)
        net.op("DEQUANTIZE", [name], [f"{name}f"], "DequantizeOptions", version=2)
    data = net.done(["x"], ["qf", "rf"])
    reading = FRONTENDS["tflite"]().read(data, Bindings())
    assert not reading.stated and "stay as they are" in reading.notes[0]
    for mine, theirs in zip(outputs(data, [x]), reference(data, [x]), strict=True):
        assert np.abs(mine - theirs).max() <= 1e-6


def test_operators_that_cannot_be_converted_are_listed_at_once() -> None:
    net = Net()
    for name in ("x", "a", "b", "c", "y"):
        net.tensor(name, (1, 4))
    net.op("Sphere", ["x"], ["a"])
    net.op("ABS", ["a"], ["b"])
    net.op("HASHTABLE", ["b"], ["c"])
    net.op("Sphere", ["c"], ["y"])
    with pytest.raises(ModelError) as caught:
        FRONTENDS["tflite"]().read(net.done(["x"], ["y"]), Bindings())
    assert caught.value.code == "NF-MODEL-066"
    assert "CUSTOM Sphere (2 times)" in caught.value.because and "HASHTABLE" in caught.value.because
    assert "ABS" not in caught.value.because


def test_a_missing_package_is_one_error_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tflite.py").write_text("raise ImportError('no such package here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "net.tflite"
    path.write_bytes(mobile(np.random.default_rng(0)))
    with pytest.raises(ModelError) as caught:
        isolated(opened, path)
    assert "npuflow[tflite]" in caught.value.hint and caught.value.where.file == str(path)


def test_the_parser_is_imported_by_its_own_process_only(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(mobile(np.random.default_rng(0)))
    code = """
import pathlib, sys
from npuflow.frontends.tflite import Tflite
Tflite().gather(pathlib.Path(sys.argv[1]))
print("tflite" in sys.modules, "flatbuffers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("data", [b"", b"TFL3", b"\0" * 64, b"version https://git-lfs.github.com/spec/v1"])
def test_other_bytes_are_no_model(data: bytes) -> None:
    with pytest.raises(ModelError) as caught:
        FRONTENDS["tflite"]().read(data, Bindings())
    assert caught.value.code in ("NF-MODEL-063", "NF-MODEL-064")


def test_damaged_files_are_refused() -> None:
    campaign(0, 60)


@pytest.mark.slow
def test_many_damaged_files() -> None:
    campaign(1, 300)


def campaign(seed: int, count: int) -> None:
    """Every mutation either builds a graph or is a ModelError with a message; all else fails the test."""
    rng = np.random.default_rng(seed)
    pool, refused = [mobile(rng), mobile(rng, MOBILE)], 0
    for i in range(count):
        data, started = damaged(pool[i % 2], rng), time.monotonic()
        try:
            FRONTENDS["tflite"]().read(data, Bindings())
        except NpuflowError as fault:
            assert fault.message
            refused += 1
        assert time.monotonic() - started < 30
    sys.stdout.write(f"tflite: {refused} of {count} refused\n")
    assert refused
