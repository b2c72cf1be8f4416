"""Program and exported QDQ model: rounding is reported from a bias, whatever it grows to
on the way to the outputs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
import pytest

from npuflow import build, load_recipe
from npuflow.checks.qdq_check import TensorParting, explained, forced, parted, rounded, showing
from npuflow.checks.qdq_verdict import QdqVerdict, verdict
from npuflow.flow.artifact import Artifact
from npuflow.flow.recipe_build import Settings, open_cache
from npuflow.flow.run_state import Result
from npuflow.hw.target import Numerics
from npuflow.ir.graph import Graph
from npuflow.ir.types import QuantType, TensorType
from npuflow.report.accuracy import of_qdq
from npuflow.run.interpret import interpret
from npuflow.stages.qdq import FILE, Qdq
from npuflow.stages.qdq_check import QdqComparison
from npuflow.stages.quantize import Quantized
from tests.networks import recipes
from tests.networks.onnx_text import model, normal

A = TypeVar("A", bound=Artifact)
NUMERICS = Numerics(acc_bits=32, multiplier_bits=31)
NET = model(
    "float[1,3,12,12] x => float[1,5] z",
    "a = Conv<pads=[1,1,1,1]>(x, k) b = HardSwish(a) c = Conv<pads=[1,1,1,1]>(b, l) d = Add(b, c) e = "
    "Relu(d) "
    "f = GlobalAveragePool(e) g = Flatten(f) z = Gemm(g, w)",
    {"k": normal(0, 4, 3, 3, 3), "l": normal(1, 4, 4, 3, 3), "w": normal(2, 4, 5)},
)
RECIPE = recipes.RECIPE + """\
[calibrate]
method = "minmax"
"""
INPUT = "x:q"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with its quantised graph and QDQ model in the cache. Its pixels are steps of a scale, so that
    many values lie half-way between two codes.
    """
    path = tmp_path_factory.mktemp("net")
    (path / "net.toml").write_text(RECIPE)
    (path / "net.onnx").write_bytes(NET)
    pixels = np.random.default_rng(3).integers(0, 256, (8, 3, 12, 12))
    np.savez(path / "calib.npz", x=((pixels - 127.5) / 127.5).astype(np.float32))
    return path


@pytest.fixture(scope="module")
def made(folder: Path) -> Result:
    return build(folder / "net.toml", until="qdq_check", cache=folder / "cache")


def product(folder: Path, result: Result, stage: str, kind: type[A]) -> A:
    kept = open_cache(load_recipe(folder / "net.toml"), Settings(cache=folder / "cache"))
    found = kept.load(result.outputs[stage], kind)
    assert isinstance(found, kind)
    return found


@pytest.fixture(scope="module")
def graph(folder: Path, made: Result) -> Graph:
    return product(folder, made, "quantize", Quantized).graph


@pytest.fixture(scope="module")
def qdq(folder: Path, made: Result) -> bytes:
    return product(folder, made, "qdq", Qdq).exported.model


def feeds(folder: Path) -> list[dict[str, np.ndarray]]:
    with np.load(folder / "calib.npz") as held:
        return [{"x": held["x"][i : i + 1]} for i in range(2)]


def edited(qdq: bytes, change: Callable[[onnx.ModelProto], None]) -> bytes:
    proto = onnx.load_model_from_string(qdq)
    change(proto)
    return bytes(proto.SerializeToString())


def shifted(name: str, by: int) -> Callable[[onnx.ModelProto], None]:
    """Another zero point for a tensor, where it is rounded and where it is read."""

    def change(proto: onnx.ModelProto) -> None:
        one = next(t for t in proto.graph.initializer if t.name == f"{name}:zero")
        zero = onnx.numpy_helper.to_array(one)
        one.CopyFrom(onnx.numpy_helper.from_array((zero.astype(int) + by).astype(zero.dtype), one.name))

    return change


def judged(graph: Graph, model: bytes, folder: Path) -> tuple[QdqVerdict, dict[str, TensorParting]]:
    tensors = parted(graph, model, NUMERICS, feeds(folder))
    return verdict(tensors, graph.outputs, NUMERICS), tensors


def test_rounding_is_no_bias(folder: Path, graph: Graph, qdq: bytes) -> None:
    reported, tensors = judged(graph, qdq, folder)
    assert reported.kind == "rounding" and reported.biased == () and 0.5 < reported.equal < 1
    # half-way values of the input
    assert tensors[INPUT].fed_different == tensors[INPUT].rounding > 10
    rest = {name: one for name, one in tensors.items() if name != INPUT}
    assert sum(one.different for one in rest.values()) > 100 > sum(one.fed_different for one in rest.values())
    assert (
        reported.text.startswith("program and QDQ model differ by rounding")
        and "%" in reported.text
        and " dB)" in reported.text
    )
    assert f'{tensors[INPUT].fed_different} of them in "{INPUT}"' in reported.text


@pytest.mark.parametrize(("name", "by"), [("a", 1), ("b", -1), (INPUT, 1)])
def test_a_shifted_zero_point_is_a_bias(folder: Path, graph: Graph, qdq: bytes, name: str, by: int) -> None:
    reported, tensors = judged(graph, edited(qdq, shifted(name, by)), folder)
    assert reported.kind == "bias" and reported.biased[0] == name
    # some codes are at an end of their range
    assert tensors[name].mean == pytest.approx(by, abs=0.2)
    assert f'"{name}" of "{tensors[name].layer}"' in reported.text
    assert f"{tensors[name].mean:+.2f} of a code off on average" in reported.text


def test_a_zero_point_shifted_at_the_reader_is_the_readers_bias(
    folder: Path, graph: Graph, qdq: bytes
) -> None:
    def change(proto: onnx.ModelProto) -> None:
        zero = next(t for t in proto.graph.initializer if t.name == "c:zero")
        proto.graph.initializer.append(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(zero) + np.uint8(1), "other")
        )
        next(n for n in proto.graph.node if n.op_type == "DequantizeLinear" and n.input[0] == "c").input[
            2
        ] = "other"

    reported, tensors = judged(graph, edited(qdq, change), folder)
    reader = next(n for n in graph.nodes if "c" in n.inputs)
    assert reported.biased[0] == reader.outputs[0] and tensors[reader.outputs[0]].mean < -0.2


def test_a_wrong_scale_is_a_bias_where_its_mean_is_zero(folder: Path, graph: Graph, qdq: bytes) -> None:
    def change(proto: onnx.ModelProto) -> None:
        one = next(t for t in proto.graph.initializer if t.name.endswith(":scale") and t.name.startswith("k"))
        one.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(one) * np.float32(1.1), one.name)
        )

    reported, _ = judged(graph, edited(qdq, change), folder)
    assert reported.kind == "bias" and reported.biased[0] == "a"


def test_equal_codes_are_said_to_be_equal() -> None:
    reported = verdict(
        {"a": TensorParting("n", 10, 0, None, 256), "y": TensorParting("m", 4, 0, None)}, ["y"], NUMERICS
    )
    assert (
        reported.kind == "nothing"
        and reported.equal == reported.outputs_equal == 1
        and reported.text.endswith("the same codes in 1 tensor")
    )


@pytest.mark.parametrize(
    ("real", "code", "rounding", "expected"),
    [
        (2.5, 3, "half_up", True),
        (2.5, 2, "half_up", True),
        (2.5000001, 2, "half_up", True),
        (2.6, 2, "half_up", False),
        (2.6, 2, "truncate", True),
        (-2.6, -2, "truncate", True),
        (2.4, 3, "half_away", False),
        (300.0, 127, "half_up", True),
        (np.nan, 5, "half_up", False),
    ],
)
def test_what_rounding_explains(real: float, code: int, rounding: str, expected: bool) -> None:
    numerics = Numerics(acc_bits=32, multiplier_bits=31, rounding=rounding)  # type: ignore[arg-type]
    quant = QuantType(8, True, (0.5,), (3,))
    codes = np.clip(np.array([code + 3]), -128, 127)
    assert explained(np.float32([real * 0.5]), codes, quant, numerics).tolist() == [expected]


def test_layers_of_the_export_are_fed_from_outside(folder: Path, graph: Graph, qdq: bytes) -> None:
    codes = [v for v in rounded(qdq) if v in graph.values]
    assert set(codes) == {v.id for v in graph.values.values() if v.quant is not None and v.const is None}
    kinds = {v: TensorType(graph.type(v).shape, graph.values[v].dtype) for v in codes}
    fed, own, floats = forced(qdq, kinds)
    onnx.checker.check_model(onnx.load_model_from_string(showing(qdq, graph.outputs)))
    proto = onnx.load_model_from_string(fed)
    assert set(own.values()) | set(floats.values()) == {o.name for o in proto.graph.output}
    assert {i.name for i in proto.graph.input} - {"x"} <= set(codes)
    want = interpret(graph, feeds(folder)[0], NUMERICS, keep=lambda _: True)
    assert {i.name for i in proto.graph.input} <= set(want)


def test_a_build_says_it_and_warns_of_a_bias_alone(folder: Path, made: Result, qdq: bytes) -> None:
    plain = product(folder, made, "qdq_check", QdqComparison)
    assert (
        plain.summary()["part_by"] == "rounding"
        and "warning" not in plain.summary()
        and next(iter(plain.tensors)) == INPUT
    )
    edit = folder / "edited"
    kept = open_cache(load_recipe(folder / "net.toml"), Settings(cache=folder / "cache"))
    shutil.copytree(kept.object_path(made.outputs["qdq"]), edit)
    (edit / FILE).write_bytes(edited(qdq, shifted("a", 1)))
    result = build(folder / "net.toml", until="qdq_check", cache=folder / "cache", override={"qdq": edit})
    reported = product(folder, result, "qdq_check", QdqComparison)
    assert reported.summary()["part_by"] == "bias" and "warning" not in reported.summary()
    assert reported.bias is not None
    assert "differ by a bias" in reported.bias.text and "trust the program" in reported.bias.hint
    assert plain.bias is None


def test_a_model_that_onnxruntime_refuses_is_warned_of(folder: Path, made: Result, qdq: bytes) -> None:
    def change(proto: onnx.ModelProto) -> None:
        next(n for n in proto.graph.node if n.op_type == "HardSwish").op_type = "HardSwoosh"

    edit = folder / "refused"
    kept = open_cache(load_recipe(folder / "net.toml"), Settings(cache=folder / "cache"))
    shutil.copytree(kept.object_path(made.outputs["qdq"]), edit)
    (edit / FILE).write_bytes(edited(qdq, change))
    result = build(folder / "net.toml", until="qdq_check", cache=folder / "cache", override={"qdq": edit})
    reported = product(folder, result, "qdq_check", QdqComparison).summary()
    assert (
        "cannot be used: onnxruntime does not run it at all" in reported["warning"]
        and "HardSwoosh" in reported["compared"]
    )


def test_the_report_shows_what_was_compared(folder: Path, made: Result) -> None:
    check = product(folder, made, "qdq_check", QdqComparison)
    (sentence, table) = of_qdq(check.tensors, check.verdict, check.reason)
    assert check.verdict is not None and sentence[2] == [(check.verdict.text,)]
    assert len(table[1]) == len(table[2][0]) and table[2][0][0] == INPUT
    assert of_qdq({}, None, "no samples")[0][2] == [("not compared: no samples",)]


def test_it_runs_again_only_where_the_codes_change(folder: Path, made: Result) -> None:
    again = build(folder / "net.toml", ["simulate.samples=1"], until="qdq_check", cache=folder / "cache")
    assert again.status["qdq_check"] == {None: "hit"}
